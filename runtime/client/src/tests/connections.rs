//! Shared connections: windows, streams larger than a window, and links that limit each connection.

use super::fetching::{answer_all, assert_complete, retry, samples, source, start_with, take};
use crate::fetch::StragglerPolicy;
use crate::retry::RetryPolicy;
use crate::{HostClient, Link, RowKind, Source};
use bytes::Bytes;
use frostline_fake_host::{Answer, FakeHost, Reply, extraction};
use frostline_wire::{ObjectInfo, RowFormat};
use futures::{StreamExt, stream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

/// Number of values per row (1.6 MB). Answers with three rows exceed the stream window (4 MiB), and batches
/// exceed the connection window (16 MiB).
const WIDE: usize = 400_000;
const ROW: usize = WIDE * 4;
const BATCH: usize = 15;

fn number(key: &str) -> f32 {
    key[1..].parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slowest_of_large_answers_holds_back_no_other() {
    let released = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&released);
    let host = FakeHost::start(move |call, _, body| {
        let request = extraction(body);
        let format = RowFormat::F32(vec![WIDE]);
        let rows = request
            .samples
            .iter()
            .fold(Answer::new(format), |answer, sample| {
                answer.row(sample.position, vec![number(&sample.sample.key); WIDE])
            });
        let Reply::Whole(mut first) = rows.finished() else {
            unreachable!()
        };
        if call > 0 {
            return Reply::Whole(first);
        }
        // Send a third of the answer, then wait until all other answers have arrived.
        let later = first.split_off(first.len() / 3);
        let gate = Arc::clone(&gate);
        let held = stream::once(async move { gate.acquire().await.unwrap().forget() });
        let later = held.flat_map(move |()| stream::iter(later.clone()));
        Reply::Stream(stream::iter(first).chain(later).boxed())
    })
    .await;
    let client = HostClient::new(&host.url, None).unwrap();
    let source = Source {
        shape: vec![WIDE],
        ..source(RowKind::Values)
    };
    let policy = RetryPolicy {
        stragglers: StragglerPolicy {
            min_history: usize::MAX,
            ..StragglerPolicy::default()
        },
        ..retry()
    };
    let setting = start_with(client.into(), source, policy);
    let all = samples(2 * BATCH);
    let (first, second) = all.split_at(BATCH);
    let fetch = |batch: &[ObjectInfo]| {
        let source = Arc::clone(&setting.source);
        setting.fetcher.fetch(&setting.hosts, source, batch.into())
    };
    let release = async {
        // There are two batches of five requests. Wait for all rows except the first request's rows.
        let all_others = (2 * BATCH - 3) * ROW;
        while setting.hosts.bytes_received() < all_others as u64 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        released.add_permits(1);
    };
    let (one, other, ()) = futures::join!(fetch(first), fetch(second), release);
    for (batch, from) in [(one, 0), (other, BATCH)] {
        let rows = batch.unwrap().rows;
        let numbers = rows.as_f32().unwrap().chunks(WIDE).map(|row| {
            assert!(row.iter().all(|value| *value == row[0]));
            row[0] as usize
        });
        assert_eq!(
            numbers.collect::<Vec<_>>(),
            (from..from + BATCH).collect::<Vec<_>>()
        );
    }
    assert_eq!(host.calls(), 10);
}

/// A relay with a rate limit, either for each connection (like traffic shapers, or small windows on long
/// links) or for all connections together.
struct Throttle {
    url: String,
    /// Bytes sent to the client per connection.
    carried: Arc<Mutex<Vec<Arc<AtomicUsize>>>>,
    _accept: AbortOnDropHandle<()>,
}

impl Throttle {
    async fn start(target: &str, bytes_per_second: f64, together: bool) -> Self {
        let target = target.strip_prefix("http://").unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let carried: Arc<Mutex<Vec<Arc<AtomicUsize>>>> = Arc::default();
        let counters = Arc::clone(&carried);
        let accept = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            let pace = Pace::of(bytes_per_second);
            loop {
                let pace = if together {
                    pace.clone()
                } else {
                    Pace::of(bytes_per_second)
                };
                let (client, _) = listener.accept().await.unwrap();
                let counter = Arc::<AtomicUsize>::default();
                counters.lock().unwrap().push(Arc::clone(&counter));
                let host = TcpStream::connect(&target).await.unwrap();
                connections.spawn(relay(client, host, pace, counter));
            }
        });
        Self {
            url,
            carried,
            _accept: AbortOnDropHandle::new(accept),
        }
    }

    fn carried(&self) -> Vec<usize> {
        let carried = self.carried.lock().unwrap();
        carried
            .iter()
            .map(|counter| counter.load(Ordering::SeqCst))
            .collect()
    }
}

/// Schedule of a link with limited bandwidth.
#[derive(Clone)]
struct Pace {
    bytes_per_second: f64,
    free_at: Arc<Mutex<Instant>>,
}

impl Pace {
    fn of(bytes_per_second: f64) -> Self {
        Self {
            bytes_per_second,
            free_at: Arc::new(Mutex::new(Instant::now())),
        }
    }

    /// Returns the time when the link has sent this many bytes.
    fn sent(&self, bytes: usize) -> Instant {
        let mut free_at = self.free_at.lock().unwrap();
        *free_at =
            (*free_at).max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        *free_at
    }
}

async fn relay(client: TcpStream, host: TcpStream, pace: Pace, carried: Arc<AtomicUsize>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_host, mut to_host) = host.into_split();
    let down = async {
        let mut buffer = vec![0; 4096];
        while let Ok(count @ 1..) = from_host.read(&mut buffer).await {
            sleep_until(pace.sent(count)).await;
            carried.fetch_add(count, Ordering::SeqCst);
            if to_client.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = down => {}
        _ = tokio::io::copy(&mut from_client, &mut to_host) => {}
    }
}

/// Probes the link until it needs `connections`. Other load on the machine may disturb a single probe.
async fn probe(client: &HostClient, connections: usize) -> Link {
    let mut link = client.probe().await.unwrap();
    for _ in 0..10 {
        if link.connections == connections {
            break;
        }
        link = client.probe().await.unwrap();
    }
    link
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_holds_back_each_connection_is_used_over_four() {
    let host = FakeHost::start(|_, parts, body| match parts.uri.path() {
        "/v1/probe" => {
            let bytes = parts.uri.query().unwrap().strip_prefix("bytes=").unwrap();
            Reply::Whole(vec![Bytes::from(vec![7; bytes.parse().unwrap()])])
        }
        _ => answer_all(&extraction(body)),
    })
    .await;
    let throttle = Throttle::start(&host.url, 1e6, false).await;
    let client = HostClient::new(&throttle.url, None).unwrap();
    let link = probe(&client, 4).await;
    assert_eq!(link.connections, 4, "{link:?}");
    assert!(
        link.bytes_per_second > 2.0 * link.connection_bytes_per_second,
        "{link:?}"
    );
    let before = throttle.carried();
    let source = source(RowKind::Values);
    let setting = start_with(client.into(), source, retry());
    assert_complete(&take(&setting, 80).await.unwrap(), 80);
    let after = throttle.carried();
    assert_eq!(after.len(), 4, "four connections are open");
    // There are 30 requests in turn, and each answer has at least 500 bytes.
    assert!(
        after
            .iter()
            .zip(&before)
            .all(|(after, before)| after - before > 7 * 500),
        "{before:?} {after:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_one_connection_fills_is_used_over_one() {
    let host = FakeHost::start(|_, parts, _| {
        let bytes = parts.uri.query().unwrap().strip_prefix("bytes=").unwrap();
        Reply::Whole(vec![Bytes::from(vec![7; bytes.parse().unwrap()])])
    })
    .await;
    let shared = Throttle::start(&host.url, 0.5e6, true).await;
    let link = probe(&HostClient::new(&shared.url, None).unwrap(), 1).await;
    assert_eq!(link.connections, 1, "{link:?}");
    assert_eq!(link.bytes_per_second, link.connection_bytes_per_second);
}
