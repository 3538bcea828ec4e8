//! Hosts that restart during a job.

use super::fetching::{answer_all, assert_complete, log, retry, source, start_with, take};
use crate::retry::RetryPolicy;
use crate::{ClientError, HostClient, HostState, Hosts, Notice, RowKind};
use frostline_fake_host::{FakeHost, Reply, extraction};
use frostline_wire::{ErrorClass, Layout, ObjectPage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

fn client(url: &str) -> HostClient {
    HostClient::new(url, None).unwrap()
}

fn states(events: &[Notice]) -> Vec<HostState> {
    let state = |event: &Notice| match event {
        Notice::Host { state, .. } => Some(*state),
        _ => None,
    };
    events.iter().filter_map(state).collect()
}

/// A policy that fails the job on a single failure.
fn strict() -> RetryPolicy {
    RetryPolicy {
        attempts: 1,
        ..retry()
    }
}

#[tokio::test]
async fn a_host_that_stops_is_left_at_once_and_used_again_once_it_is_back() {
    let stopping = Arc::new(AtomicBool::new(true));
    let looks = Arc::new(AtomicUsize::new(0));
    let served = Arc::new(AtomicUsize::new(0));
    let stops = Arc::clone(&stopping);
    let looked = Arc::clone(&looks);
    let serves = Arc::clone(&served);
    let restarted = FakeHost::start(move |_, parts, body| {
        let ready = parts.uri.path() == "/readyz";
        looked.fetch_add(usize::from(ready), Ordering::SeqCst);
        if stops.load(Ordering::SeqCst) {
            // A client that respects this value would wait for ten minutes.
            return Reply::Refused(503, ErrorClass::Stopping, Some(600));
        }
        if ready {
            return Reply::Whole(Vec::new());
        }
        serves.fetch_add(1, Ordering::SeqCst);
        answer_all(&extraction(body))
    })
    .await;
    let well = FakeHost::start(|_, _, body| answer_all(&extraction(body))).await;
    let hosts = Hosts::new(vec![client(&restarted.url), client(&well.url)]).unwrap();
    let source = source(RowKind::Values);
    let setting = start_with(hosts, source, strict());
    while looks.load(Ordering::SeqCst) < 3 {
        assert_complete(&take(&setting, 40).await.unwrap(), 40);
    }
    {
        let events = setting.notices.lock().unwrap();
        assert_eq!(states(&events), [HostState::Down], "{events:?}");
        let waited =
            |event: &Notice| matches!(event, Notice::Retry { wait_seconds, .. } if *wait_seconds > 0.0);
        assert!(!events.iter().any(waited), "{events:?}");
    }
    stopping.store(false, Ordering::SeqCst);
    while served.load(Ordering::SeqCst) == 0 {
        assert_complete(&take(&setting, 40).await.unwrap(), 40);
    }
    let events = setting.notices.lock().unwrap();
    assert_eq!(states(&events), [HostState::Down, HostState::Up]);
}

#[tokio::test]
async fn a_lone_host_that_stops_is_waited_for_and_has_not_failed() {
    let host = FakeHost::start(|number, _, body| match number {
        0..3 => Reply::Refused(503, ErrorClass::Stopping, Some(0)),
        _ => answer_all(&extraction(body)),
    })
    .await;
    let source = source(RowKind::Values);
    let hosts = client(&host.url).into();
    let setting = start_with(hosts, source, strict());
    assert_complete(&take(&setting, 40).await.unwrap(), 40);
}

#[tokio::test]
async fn a_job_that_begins_while_its_host_is_restarted_waits_and_says_so() {
    let host = FakeHost::start(|number, _, _| match number {
        0 => Reply::Refused(503, ErrorClass::Stopping, Some(0)),
        // The host has stopped, so the connection breaks.
        1 => Reply::Cut(Vec::new()),
        _ => Reply::json(&ObjectPage::default()),
    })
    .await;
    let (events, told) = log();
    let hosts = Hosts::from(client(&host.url)).for_job(told);
    let listing = hosts.listing("data", Layout::Auto).await;
    assert!(listing.unwrap().is_empty());
    let events = events.lock().unwrap();
    assert_eq!(
        states(&events),
        [HostState::Down, HostState::Down, HostState::Up],
        "{events:?}"
    );
}

/// Starts a host that answers the first request of a connection with GOAWAY, like a host that closes
/// connections before it processes a request in flight.
async fn says_goodbye() -> (String, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let preface = &mut [0; 24];
            stream.read_exact(preface).await.unwrap();
            // An empty SETTINGS frame.
            stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
            loop {
                let head = &mut [0; 9];
                stream.read_exact(head).await.unwrap();
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
                let payload = &mut vec![0; length as usize];
                stream.read_exact(payload).await.unwrap();
                const HEADERS: u8 = 1;
                if head[3] == HEADERS {
                    break;
                }
            }
            // GOAWAY with last stream 0 and without an error.
            let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            stream.write_all(&goaway).await.unwrap();
        }
    });
    (url, AbortOnDropHandle::new(serving))
}

#[tokio::test]
async fn a_connection_that_is_closed_with_a_goodbye_is_no_failure() {
    let (url, _serving) = says_goodbye().await;
    let error = client(&url).load().await.unwrap_err();
    assert!(matches!(error, ClientError::Leaving { .. }), "{error}");
    let well = FakeHost::start(|_, _, body| answer_all(&extraction(body))).await;
    let hosts = Hosts::new(vec![client(&url), client(&well.url)]).unwrap();
    let source = source(RowKind::Values);
    let setting = start_with(hosts, source, strict());
    assert_complete(&take(&setting, 40).await.unwrap(), 40);
}
