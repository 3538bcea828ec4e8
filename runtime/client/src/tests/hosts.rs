//! Failover between hosts, and stragglers.

use super::fetching::{answer_all, assert_complete, format, retry, source, start_with, take, values};
use crate::fetch::StragglerPolicy;
use crate::retry::RetryPolicy;
use crate::{ClientError, HostClient, HostState, Hosts, Notice, RowKind, UploadKind};
use frostline_fake_host::{Answer, FakeHost, Reply, extraction};
use frostline_wire::ErrorClass;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Deadline for states that are reached without delay.
const STUCK: Duration = Duration::from_secs(60);

fn client(url: &str) -> HostClient {
    HostClient::new(url, None).unwrap()
}

fn hosts(of: &[&FakeHost]) -> Hosts {
    Hosts::new(of.iter().map(|host| client(&host.url)).collect()).unwrap()
}

/// Returns the reported state changes of the host at `url`.
fn states(events: &[Notice], url: &str) -> Vec<HostState> {
    let state = |event: &Notice| match event {
        Notice::Host { host, state, .. } if host == url => Some(*state),
        _ => None,
    };
    events.iter().filter_map(state).collect()
}

#[test]
fn no_host_and_the_same_host_twice_are_refused() {
    let refused = |urls: &[&str]| match Hosts::new(urls.iter().map(|url| client(url)).collect()) {
        Err(error @ ClientError::Address { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(refused(&[]).contains("at least one host"));
    assert!(
        refused(&["http://a:1", "http://b:1", "http://a:1/"])
            .contains("http://a:1' cannot be used: duplicate host")
    );
}

#[tokio::test]
async fn every_object_is_asked_of_one_host_and_always_the_same() {
    let asked: Arc<Mutex<HashMap<String, Vec<usize>>>> = Arc::default();
    let start = |host: usize| {
        let asked = Arc::clone(&asked);
        FakeHost::start(move |_, _, body| {
            let request = extraction(body);
            assert!(request.samples.len() <= 3);
            for sample in &request.samples {
                asked
                    .lock()
                    .unwrap()
                    .entry(sample.sample.key.clone())
                    .or_default()
                    .push(host);
            }
            answer_all(&request)
        })
    };
    let a = start(0).await;
    let b = start(1).await;
    let hosts = hosts(&[&a, &b]);
    let source = source(RowKind::Values);
    let setting = start_with(hosts, source, retry());
    for _ in 0..3 {
        assert_complete(&take(&setting, 40).await.unwrap(), 40);
    }
    let asked = asked.lock().unwrap();
    assert!(
        asked
            .values()
            .all(|hosts| hosts.len() == 3 && hosts.iter().all(|host| *host == hosts[0])),
        "{asked:?}"
    );
    assert!(a.calls() > 0 && b.calls() > 0);
    assert!(setting.notices.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_a_failing_host_does_not_bring_is_asked_of_the_next_one_at_once() {
    for failure in [
        (|| Reply::Cut(Vec::new())) as fn() -> Reply,
        || Reply::Refused(500, ErrorClass::Host, None),
        || Reply::Whole(vec![bytes::Bytes::from_static(b"no Arrow bytes")]),
    ] {
        let failing = FakeHost::start(move |_, _, _| failure()).await;
        let well = FakeHost::start(|_, _, body| answer_all(&extraction(body))).await;
        let hosts = hosts(&[&failing, &well]);
        let source = source(RowKind::Values);
        let setting = start_with(hosts, source, retry());
        assert_complete(&take(&setting, 40).await.unwrap(), 40);
        let events = setting.notices.lock().unwrap();
        assert_eq!(states(&events, &failing.url).first(), Some(&HostState::Down));
        assert!(states(&events, &well.url).is_empty());
        let waited =
            |event: &Notice| matches!(event, Notice::Retry { wait_seconds, .. } if *wait_seconds > 0.0);
        assert!(!events.iter().any(waited), "{events:?}");
    }
}

#[tokio::test]
async fn a_host_that_only_fails_for_some_samples_is_used_for_the_others() {
    let failing = |_: usize, _: &http::request::Parts, body: &[u8]| {
        let request = extraction(body);
        let timeout = || frostline_tensor::OpError::new(frostline_tensor::OpErrorCode::Timeout, "slow store");
        let answer = request
            .samples
            .iter()
            .fold(Answer::new(format()), |answer, sample| {
                match sample.sample.key.ends_with('3') {
                    true => answer.failure(sample.position, timeout()),
                    false => answer.row(sample.position, values(&sample.sample.key)),
                }
            });
        answer.finished()
    };
    let (failing, well) = (
        FakeHost::start(failing).await,
        FakeHost::start(|_, _, body| answer_all(&extraction(body))).await,
    );
    let hosts = hosts(&[&failing, &well]);
    let source = source(RowKind::Values);
    let setting = start_with(hosts, source, retry());
    assert_complete(&take(&setting, 40).await.unwrap(), 40);
    let events = setting.notices.lock().unwrap();
    assert!(states(&events, &failing.url).is_empty(), "{events:?}");
}

#[tokio::test]
async fn hosts_that_all_fail_end_the_fetch_by_name_after_as_many_rounds_as_one_would() {
    let start = || FakeHost::start(|_, _, _| Reply::Cut(Vec::new()));
    let a = start().await;
    let b = start().await;
    let source = source(RowKind::Values);
    let policy = RetryPolicy {
        first_wait: Duration::from_millis(1),
        ..retry()
    };
    let setting = start_with(hosts(&[&a, &b]), source, policy);
    let error = take(&setting, 2).await.unwrap_err();
    assert!(matches!(error, ClientError::Lost { attempts: 3, .. }), "{error}");
    assert!(
        error.to_string().contains(&a.url) && error.to_string().contains(&b.url),
        "{error}"
    );
}

#[tokio::test]
async fn a_busy_host_is_waited_for_although_others_are_idle() {
    let busy = FakeHost::start(|number, _, body| match number {
        0..3 => Reply::Refused(429, ErrorClass::Busy, Some(0)),
        _ => answer_all(&extraction(body)),
    })
    .await;
    let idle = FakeHost::start(|_, _, body| answer_all(&extraction(body))).await;
    let source = source(RowKind::Values);
    let setting = start_with(hosts(&[&busy, &idle]), source, retry());
    assert_complete(&take(&setting, 40).await.unwrap(), 40);
    let events = setting.notices.lock().unwrap();
    let from_busy = |event: &&Notice| matches!(event, Notice::Retry { host, .. } if *host == busy.url);
    assert_eq!(events.iter().filter(from_busy).count(), 3);
    assert!(states(&events, &busy.url).is_empty(), "{events:?}");
}

#[tokio::test]
async fn what_hosts_refuse_is_not_sent_again_with_the_samples() {
    let start = || {
        FakeHost::start(|_, parts, body| match parts.method.as_str() {
            "POST" => answer_all(&extraction(body)),
            "PUT" => Reply::Refused(413, ErrorClass::TooLarge, None),
            _ => Reply::Refused(404, ErrorClass::NotFound, None),
        })
    };
    let a = start().await;
    let b = start().await;
    let setting = start_with(hosts(&[&a, &b]), source(RowKind::Values), retry());
    let layers = bytes::Bytes::from_static(b"layers");
    let refused = setting.hosts.push(UploadKind::Model, "model", layers).await;
    assert!(matches!(refused, Err(ClientError::Refused { .. })), "{refused:?}");
    assert_complete(&take(&setting, 40).await.unwrap(), 40);
}

/// Content of an upload that shows whether it is still in memory.
struct Layers {
    _held: Arc<()>,
}

impl AsRef<[u8]> for Layers {
    fn as_ref(&self) -> &[u8] {
        b"layers"
    }
}

#[tokio::test]
async fn the_bytes_of_an_upload_are_kept_until_it_is_removed_or_every_host_has_them() {
    let start = || {
        FakeHost::start(|_, parts, _| match parts.method.as_str() {
            "PUT" | "DELETE" => Reply::Whole(Vec::new()),
            _ => Reply::Refused(404, ErrorClass::NotFound, None),
        })
    };
    let a = start().await;
    let b = start().await;
    let hosts = hosts(&[&a, &b]);
    let held = Arc::new(());
    let layers = || {
        bytes::Bytes::from_owner(Layers {
            _held: Arc::clone(&held),
        })
    };
    // Connections may hold the last piece for a moment.
    let released = async || {
        while Arc::strong_count(&held) > 1 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let once = hosts.push_once(UploadKind::Model, "model", layers()).await;
    assert!(!once.unwrap().skipped);
    tokio::time::timeout(STUCK, released()).await.unwrap();
    hosts.push(UploadKind::Model, "model", layers()).await.unwrap();
    assert_eq!(Arc::strong_count(&held), 2);
    assert!(hosts.remove(UploadKind::Model, "model").await.unwrap());
    tokio::time::timeout(STUCK, released()).await.unwrap();
}

/// A policy that gives up a request after 50 ms of silence, or four times the median.
fn impatient() -> RetryPolicy {
    RetryPolicy {
        stragglers: StragglerPolicy {
            min_limit: Duration::from_millis(50),
            ..StragglerPolicy::default()
        },
        ..retry()
    }
}

#[tokio::test]
async fn a_request_that_is_never_answered_is_asked_elsewhere() {
    let stuck = FakeHost::start(|number, _, body| match number {
        0 => Reply::Stuck(Vec::new()),
        _ => answer_all(&extraction(body)),
    })
    .await;
    let well = FakeHost::start(|_, _, body| answer_all(&extraction(body))).await;
    let source = source(RowKind::Values);
    let setting = start_with(hosts(&[&stuck, &well]), source, impatient());
    assert_complete(&take(&setting, 80).await.unwrap(), 80);
    let events = setting.notices.lock().unwrap();
    let given_up = |event: &Notice| matches!(event, Notice::Retry { host, attempt: 0, reason, .. } if *host == stuck.url && reason.contains("no data for"));
    assert!(events.iter().any(given_up), "{events:?}");
    assert!(
        states(&events, &stuck.url).is_empty(),
        "stragglers must not mark hosts as down"
    );
}

#[tokio::test]
async fn all_that_a_job_asks_belongs_to_one_trace() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let saw = Arc::clone(&seen);
    let host = FakeHost::start(move |_, parts, body| {
        let header = parts.headers.get("traceparent");
        saw.lock()
            .unwrap()
            .extend(header.map(|header| header.to_str().unwrap().to_owned()));
        answer_all(&extraction(body))
    })
    .await;
    let jobs = [(); 2].map(|()| start_with(client(&host.url).into(), source(RowKind::Values), retry()));
    let mut traces = Vec::new();
    for job in jobs {
        assert_complete(&take(&job, 40).await.unwrap(), 40);
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        let mut ids: Vec<&str> = seen
            .iter()
            .map(|header| header.split('-').nth(1).unwrap())
            .collect();
        ids.dedup();
        assert!(seen.len() > 3 && ids.len() == 1, "{seen:?}");
        traces.push(ids[0].to_owned());
    }
    // The environment may define a trace, which both jobs join.
    assert_eq!(traces[0] == traces[1], std::env::var_os("TRACEPARENT").is_some());
}
