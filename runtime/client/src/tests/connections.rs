//! Shared connections: windows, streams larger than a window, and links that limit each connection.

use super::fetching::{answer_all, assert_complete, retry, samples, source, start_with, take};
use crate::fetch::StragglerPolicy;
use crate::retry::RetryPolicy;
use crate::{HostClient, RowKind, Source};
use bytes::Bytes;
use frostline_fake_host::{Answer, FakeHost, Reply, extraction};
use frostline_wire::{ObjectInfo, RowFormat, Values};
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
        let format = RowFormat::Tensor(Values::F32, vec![WIDE]);
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

/// A relay with a rate limit for each connection, like traffic shapers, or small windows on long links.
struct Throttle {
    url: String,
    /// Bytes sent to the client per connection.
    carried: Arc<Mutex<Vec<Arc<AtomicUsize>>>>,
    _accept: AbortOnDropHandle<()>,
}

impl Throttle {
    async fn start(target: &str, bytes_per_second: f64) -> Self {
        let target = target.strip_prefix("http://").unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let carried: Arc<Mutex<Vec<Arc<AtomicUsize>>>> = Arc::default();
        let counters = Arc::clone(&carried);
        let accept = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let counter = Arc::<AtomicUsize>::default();
                counters.lock().unwrap().push(Arc::clone(&counter));
                let host = TcpStream::connect(&target).await.unwrap();
                connections.spawn(relay(client, host, Pace::of(bytes_per_second), counter));
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
struct Pace {
    bytes_per_second: f64,
    free_at: Instant,
}

impl Pace {
    fn of(bytes_per_second: f64) -> Self {
        Self {
            bytes_per_second,
            free_at: Instant::now(),
        }
    }

    /// Returns the time when the link has sent this many bytes.
    fn sent(&mut self, bytes: usize) -> Instant {
        let seconds = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        self.free_at = self.free_at.max(Instant::now()) + seconds;
        self.free_at
    }
}

async fn relay(client: TcpStream, host: TcpStream, mut pace: Pace, carried: Arc<AtomicUsize>) {
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

#[tokio::test(flavor = "multi_thread")]
async fn requests_use_the_connections_that_a_probe_found_useful() {
    let host = FakeHost::start(|_, parts, body| match parts.uri.path() {
        "/v1/probe" => {
            let bytes = parts.uri.query().unwrap().strip_prefix("bytes=").unwrap();
            Reply::Whole(vec![Bytes::from(vec![7; bytes.parse().unwrap()])])
        }
        _ => answer_all(&extraction(body)),
    })
    .await;
    let throttle = Throttle::start(&host.url, 1e6).await;
    let client = HostClient::new(&throttle.url, None).unwrap();
    // On a busy machine, fewer than four may turn out to be useful.
    let link = client.probe().await.unwrap();
    let before = throttle.carried();
    let source = source(RowKind::Values);
    let setting = start_with(client.into(), source, retry());
    assert_complete(&take(&setting, 80).await.unwrap(), 80);
    let after = throttle.carried();
    // There are 30 requests in turn, and each answer has at least 500 bytes.
    let used = after
        .iter()
        .zip(&before)
        .filter(|(after, before)| *after - *before > 7 * 500);
    assert_eq!(used.count(), link.connections, "{link:?} {before:?} {after:?}");
}
