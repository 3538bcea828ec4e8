//! Jobs with several hosts: failover, hosts that come late, stragglers.

use super::computing_host::Storage;
use super::pipeline::{answer_all, assert_complete, format, plan, retry, source, start_with, take, values};
use super::whole_job::{Ran, job, photos, run};
use crate::{Event, Events, OnBadSample, TrainerError, train};
use frostline_client::{
    ClientError, HostClient, HostState, Hosts, Notice, PatiencePolicy, RetryPolicy, RowKind,
};
use frostline_fake_host::{Answer, FakeHost, Reply, extraction};
use frostline_wire::{ErrorClass, Load};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

fn client(url: &str) -> HostClient {
    HostClient::new(url, None).unwrap()
}

fn hosts(of: &[&FakeHost]) -> Hosts {
    Hosts::new(of.iter().map(|host| client(&host.url)).collect()).unwrap()
}

/// The changes that were told of the host at `url`.
fn states(events: &[Event], url: &str) -> Vec<HostState> {
    let state = |event: &Event| match event {
        Event::Notice(Notice::Host { host, state, .. }) if host == url => Some(*state),
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
            .contains("http://a:1' cannot be used: it is given twice")
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
    let (a, b) = (start(0).await, start(1).await);
    let hosts = hosts(&[&a, &b]);
    let source = source(RowKind::Values);
    let mut setting = start_with(hosts, plan(40, 3), source, OnBadSample::Fail, retry()).unwrap();
    for _ in 0..3 {
        assert_complete(&take(&mut setting, 5).await.unwrap(), 40);
    }
    let asked = asked.lock().unwrap();
    assert!(
        asked
            .values()
            .all(|hosts| hosts.len() == 3 && hosts.iter().all(|host| *host == hosts[0])),
        "{asked:?}"
    );
    assert!(a.calls() > 0 && b.calls() > 0);
    assert!(setting.events.lock().unwrap().is_empty());
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
        let (plan, source) = (plan(40, 1), source(RowKind::Values));
        let mut setting = start_with(hosts, plan, source, OnBadSample::Fail, retry()).unwrap();
        assert_complete(&take(&mut setting, 5).await.unwrap(), 40);
        let events = setting.events.lock().unwrap();
        assert_eq!(states(&events, &failing.url).first(), Some(&HostState::Down));
        assert!(states(&events, &well.url).is_empty());
        let waited = |event: &Event| matches!(event, Event::Notice(Notice::Retry { wait_seconds, .. }) if *wait_seconds > 0.0);
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
    let (plan, source) = (plan(40, 1), source(RowKind::Values));
    let mut setting = start_with(hosts, plan, source, OnBadSample::Fail, retry()).unwrap();
    assert_complete(&take(&mut setting, 5).await.unwrap(), 40);
    let events = setting.events.lock().unwrap();
    assert!(states(&events, &failing.url).is_empty(), "{events:?}");
}

#[tokio::test]
async fn hosts_that_all_fail_end_the_job_by_name_after_as_many_rounds_as_one_would() {
    let start = || FakeHost::start(|_, _, _| Reply::Cut(Vec::new()));
    let (a, b) = (start().await, start().await);
    let (plan, source) = (plan(2, 1), source(RowKind::Values));
    let policy = RetryPolicy {
        first_wait: Duration::from_millis(1),
        ..retry()
    };
    let mut setting = start_with(hosts(&[&a, &b]), plan, source, OnBadSample::Fail, policy).unwrap();
    let error = take(&mut setting, 1).await.unwrap_err();
    assert!(
        matches!(error, TrainerError::Client(ClientError::Lost { attempts: 3, .. })),
        "{error}"
    );
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
    let (plan, source) = (plan(40, 1), source(RowKind::Values));
    let mut setting = start_with(hosts(&[&busy, &idle]), plan, source, OnBadSample::Fail, retry()).unwrap();
    assert_complete(&take(&mut setting, 5).await.unwrap(), 40);
    let events = setting.events.lock().unwrap();
    let from_busy =
        |event: &&Event| matches!(event, Event::Notice(Notice::Retry { host, .. }) if *host == busy.url);
    assert_eq!(events.iter().filter(from_busy).count(), 3);
    assert!(states(&events, &busy.url).is_empty(), "{events:?}");
}

/// Gives up what is silent for 50 ms, and four times as long as usual.
fn impatient() -> RetryPolicy {
    RetryPolicy {
        patience: PatiencePolicy {
            least: Duration::from_millis(50),
            least_alone: Duration::from_millis(100),
            ..PatiencePolicy::default()
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
    let (plan, source) = (plan(80, 1), source(RowKind::Values));
    let mut setting = start_with(
        hosts(&[&stuck, &well]),
        plan,
        source,
        OnBadSample::Fail,
        impatient(),
    )
    .unwrap();
    assert_complete(&take(&mut setting, 10).await.unwrap(), 80);
    let events = setting.events.lock().unwrap();
    let given_up = |event: &Event| matches!(event, Event::Notice(Notice::Retry { host, attempt: 0, reason, .. }) if *host == stuck.url && reason.contains("nothing came"));
    assert!(events.iter().any(given_up), "{events:?}");
    assert!(
        states(&events, &stuck.url).is_empty(),
        "a straggler does not take its host down"
    );
}

#[tokio::test]
async fn a_lone_host_is_asked_again_and_rows_that_came_count() {
    let again = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&again);
    let host = FakeHost::start(move |number, _, body| {
        let request = extraction(body);
        if request.samples.len() == 1 {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        let brought = request.samples.iter().take(2);
        let brought = brought.fold(Answer::new(format()), |answer, sample| {
            answer.row(sample.position, values(&sample.sample.key))
        });
        match number {
            0 => Reply::Stuck(brought.unfinished()),
            _ => answer_all(&request),
        }
    })
    .await;
    let hosts: Hosts = client(&host.url).into();
    let policy = RetryPolicy {
        attempts: 1,
        ..impatient()
    };
    let source = source(RowKind::Values);
    let mut setting = start_with(hosts, plan(80, 1), source, OnBadSample::Fail, policy).unwrap();
    // A single fruitless attempt would end the job, so giving up counts as none.
    assert_complete(&take(&mut setting, 10).await.unwrap(), 80);
    assert_eq!(
        again.load(Ordering::SeqCst),
        1,
        "only the third sample is asked again"
    );
}

/// Runs a job with several hosts; `watch` sees every event.
pub(super) async fn run_with(
    hosts: Hosts,
    job: crate::Job,
    watch: impl Fn(&Event) + Send + Sync + 'static,
) -> Ran {
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let log = Arc::clone(&events);
    let told: Events = Arc::new(move |event| {
        watch(&event);
        log.lock().unwrap().push(event);
    });
    let outcome = train(job, hosts, told, CancellationToken::new()).await;
    let events = events.lock().unwrap().clone();
    Ran { outcome, events }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_loses_nothing_when_one_of_its_three_hosts_dies() {
    let out = TempDir::new().unwrap();
    let (alone, _) = photos().start().await;
    let expected = run(&alone, job("features", out.path())).await;
    let ((a, first), (b, second), (c, third)) = (
        photos().start().await,
        photos().start().await,
        photos().start().await,
    );
    let hosts = hosts(&[&a, &b, &c]);
    let (url, doomed) = (b.url.clone(), Mutex::new(Some(b)));
    let ran = run_with(hosts, job("features", out.path()), move |event| {
        if matches!(event, Event::Step { step: 2, .. }) {
            drop(doomed.lock().unwrap().take());
        }
    })
    .await;
    let outcome = ran.outcome.as_ref().unwrap();
    assert_eq!(ran.losses(), expected.losses());
    assert_eq!(
        outcome.validation_accuracy,
        expected.outcome.unwrap().validation_accuracy
    );
    // What it answered just before it died may be read after it was found dead, and is a sign of life.
    let told = states(&ran.events, &url);
    assert!(
        told.starts_with(&[HostState::Down]) && told.ends_with(&[HostState::Down]),
        "{told:?}"
    );
    for storage in [first, second, third] {
        assert_eq!(storage.uploaded().len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_down_at_first_gets_what_it_needs_and_joins() {
    let out = TempDir::new().unwrap();
    let (a, _) = photos().start().await;
    let address = FakeHost::free_address();
    let late = format!("http://{address}");
    let hosts = Hosts::new(vec![client(&late), client(&a.url)]).unwrap();
    let mut job = job("features", out.path());
    job.epochs = 1_000_000;
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
    let cancel = CancellationToken::new();
    let told: Events = Arc::new(move |event| drop(sender.send(event)));
    let training = tokio::spawn(train(job, hosts, told, cancel.clone()));
    let mut wait_for = async |wanted: &dyn Fn(&Event) -> bool| {
        while let Some(event) = events.recv().await {
            if wanted(&event) {
                return;
            }
        }
        panic!("the job ended before");
    };
    let is = |wanted: HostState| {
        let late = late.clone();
        move |event: &Event| matches!(event, Event::Notice(Notice::Host { host, state, .. }) if *host == late && *state == wanted)
    };
    wait_for(&is(HostState::Down)).await;
    wait_for(&|event| matches!(event, Event::Step { .. })).await;
    let (storage, extractions) = (Arc::new(photos()), Arc::new(AtomicUsize::new(0)));
    let (script, counter) = (Arc::clone(&storage), Arc::clone(&extractions));
    let _late = FakeHost::start_at(&address, move |_, parts, body| {
        if parts.uri.path() == "/v1/extractions" {
            // Everything is there before the first sample is asked for.
            assert_eq!(script.uploaded().len(), 2);
            counter.fetch_add(1, Ordering::SeqCst);
        }
        if parts.uri.path() == "/v1/load" {
            return Reply::json(&Load {
                queued: 0,
                running: 0,
                lanes: 1,
                samples_per_second: 0.0,
            });
        }
        Storage::answer(&script, parts, body)
    })
    .await;
    wait_for(&is(HostState::Up)).await;
    while extractions.load(Ordering::SeqCst) == 0 {
        wait_for(&|event| matches!(event, Event::Step { .. })).await;
    }
    cancel.cancel();
    assert!(matches!(training.await.unwrap(), Err(TrainerError::Cancelled)));
    assert_eq!(storage.uploaded().len(), 2);
}

#[tokio::test]
async fn a_job_without_any_host_names_them_all() {
    let out = TempDir::new().unwrap();
    let urls =
        [FakeHost::free_address(), FakeHost::free_address()].map(|address| format!("http://{address}"));
    let hosts = Hosts::new(urls.iter().map(|url| client(url)).collect()).unwrap();
    let ran = run_with(hosts, job("features", out.path()), |_| {}).await;
    let error = ran.outcome.unwrap_err();
    assert!(
        matches!(error, TrainerError::Client(ClientError::NoHost { .. })),
        "{error}"
    );
    assert!(urls.iter().all(|url| error.to_string().contains(url)), "{error}");
}
