//! Jobs with multiple hosts, including failover and late starts.

use super::computing_host::Storage;
use super::whole_job::{Ran, job, photos, run};
use crate::{Event, Events, TrainedStep, TrainerError, train};
use frostline_client::{ClientError, HostClient, HostState, Hosts, Notice};
use frostline_fake_host::{FakeHost, Reply};
use frostline_wire::Load;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

fn client(url: &str) -> HostClient {
    HostClient::new(url, None).unwrap()
}

fn hosts(of: &[&FakeHost]) -> Hosts {
    Hosts::new(of.iter().map(|host| client(&host.url)).collect()).unwrap()
}

/// Reported state changes of the host at `url`.
fn states(events: &[Event], url: &str) -> Vec<HostState> {
    let state = |event: &Event| match event {
        Event::Notice(Notice::Host { host, state, .. }) if host == url => Some(*state),
        _ => None,
    };
    events.iter().filter_map(state).collect()
}

/// Runs a job with several hosts. `watch` is called for each event.
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
    let (a, first) = photos().start().await;
    let (b, second) = photos().start().await;
    let (c, third) = photos().start().await;
    let hosts = hosts(&[&a, &b, &c]);
    let url = b.url.clone();
    let doomed = Mutex::new(Some(b));
    let ran = run_with(hosts, job("features", out.path()), move |event| {
        if matches!(event, Event::Step(TrainedStep { step: 2, .. })) {
            drop(doomed.lock().unwrap().take());
        }
    })
    .await;
    let outcome = ran.outcome.as_ref().unwrap();
    assert_eq!(ran.losses(), expected.losses());
    assert_eq!(outcome.validation, expected.outcome.unwrap().validation);
    // An answer from just before the failure may be read later, and briefly marks the host as up.
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
    job.spec.recipe.epochs = 1_000_000;
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
        panic!("the job ended too early");
    };
    let is = |wanted: HostState| {
        let late = late.clone();
        move |event: &Event| matches!(event, Event::Notice(Notice::Host { host, state, .. }) if *host == late && *state == wanted)
    };
    wait_for(&is(HostState::Down)).await;
    wait_for(&|event| matches!(event, Event::Step { .. })).await;
    let storage = Arc::new(photos());
    let extractions = Arc::new(AtomicUsize::new(0));
    let script = Arc::clone(&storage);
    let counter = Arc::clone(&extractions);
    let _late = FakeHost::start_at(&address, move |_, parts, body| {
        if parts.uri.path() == "/v1/extractions" {
            // Uploads must be complete before the first extraction.
            assert_eq!(script.uploaded().len(), 2);
            counter.fetch_add(1, Ordering::SeqCst);
        }
        if parts.uri.path() == "/v1/load" {
            return Reply::json(&Load {
                queued: 0,
                running: 0,
                lanes: 1,
                samples_per_second: 0.0,
                ..Load::default()
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
    assert!(matches!(
        training.await.unwrap(),
        Err(TrainerError::Stopped { .. })
    ));
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
