//! Outages of two minutes. The clock is paused and advances to the next timer.

use super::fetching::{answer_all, assert_complete, log, source, start_with, take};
use crate::retry::RetryPolicy;
use crate::{ClientError, HostClient, HostState, Hosts, Notice, RowKind, UploadKind};
use bytes::Bytes;
use frostline_fake_host::{FakeHost, Reply, extraction};
use frostline_wire::{ErrorClass, Layout, ObjectPage, UPLOAD_OFFSET};
use http::Method;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Outage duration, more than two minutes.
const ABSENCE: Duration = Duration::from_secs(125);

fn hosts(addresses: &[&String]) -> Hosts {
    let client = |address: &&String| HostClient::new(&format!("http://{address}"), None).unwrap();
    Hosts::new(addresses.iter().map(client).collect()).unwrap()
}

/// Starts another host at `address` after the outage.
fn returning(
    address: &str,
    script: impl Fn(usize, &http::request::Parts, &[u8]) -> Reply + Send + Sync + 'static,
) -> JoinHandle<FakeHost> {
    let address = address.to_owned();
    tokio::spawn(async move {
        sleep(ABSENCE).await;
        FakeHost::start_at(&address, script).await
    })
}

/// Returns the remaining times in the notices that have one.
fn left(notices: &[Notice]) -> Vec<f64> {
    let left = |notice: &Notice| match notice {
        Notice::Retry { left_seconds, .. }
        | Notice::UploadRetry { left_seconds, .. }
        | Notice::Host { left_seconds, .. } => *left_seconds,
        _ => None,
    };
    notices.iter().filter_map(left).collect()
}

/// Checks that the remaining time is reported from the first notice on, until two minutes have passed.
fn assert_told(left: &[f64]) {
    let most = RetryPolicy::default().max_outage.as_secs_f64();
    assert_eq!(left.first(), Some(&most));
    let less = most - ABSENCE.as_secs_f64() + 20.0;
    assert!(left.last().is_some_and(|left| *left <= less), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_fetch_outlives_two_minutes_without_any_host() {
    for count in [1, 2] {
        let addresses: Vec<String> = (0..count).map(|_| FakeHost::free_address()).collect();
        let hosts = hosts(&addresses.iter().collect::<Vec<_>>());
        let started = Instant::now();
        let setting = start_with(hosts, source(RowKind::Values), RetryPolicy::default());
        let back = returning(&addresses[0], |_, _, body| answer_all(&extraction(body)));
        assert_complete(&take(&setting, 2).await.unwrap(), 2);
        assert!(started.elapsed() >= ABSENCE);
        assert_told(&left(&setting.notices.lock().unwrap()));
        back.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_fetch_ends_when_no_host_is_back_in_time() {
    let address = FakeHost::free_address();
    let started = Instant::now();
    let policy = RetryPolicy::default();
    let setting = start_with(hosts(&[&address]), source(RowKind::Values), policy);
    let error = take(&setting, 2).await.unwrap_err();
    assert!(matches!(error, ClientError::Lost { lost: 2, .. }), "{error}");
    assert!(error.to_string().contains("cannot reach"), "{error}");
    assert!(started.elapsed() >= policy.max_outage);
}

fn objects(_: usize, _: &http::request::Parts, _: &[u8]) -> Reply {
    Reply::json(&ObjectPage::default())
}

#[tokio::test(start_paused = true)]
async fn what_a_job_asks_for_waits_for_hosts_that_were_there_and_for_no_others() {
    for count in [1, 2] {
        let addresses: Vec<String> = (0..count).map(|_| FakeHost::free_address()).collect();
        let all = hosts(&addresses.iter().collect::<Vec<_>>());
        let first = FakeHost::start_at(&addresses[0], objects).await;
        let (notices, told) = log();
        let job = all.for_job(told);
        job.listing("data", Layout::Auto).await.unwrap();
        drop(first);
        // Wait for the connections to close.
        sleep(Duration::from_secs(1)).await;
        let (later, untold) = log();
        let next = all.for_job(untold);
        let error = next.listing("data", Layout::Auto).await.unwrap_err();
        assert!(error.to_string().contains("cannot reach"), "{error}");
        assert!(left(&later.lock().unwrap()).is_empty());
        let started = Instant::now();
        let back = returning(&addresses[0], objects);
        job.listing("data", Layout::Auto).await.unwrap();
        assert!(started.elapsed() >= ABSENCE);
        let notices = notices.lock().unwrap();
        assert_told(&left(&notices));
        let is_up = |notice: &Notice| {
            let up = HostState::Up;
            matches!(notice, Notice::Host { host, state, .. } if *state == up && host.ends_with(&addresses[0]))
        };
        assert!(notices.iter().any(is_up), "{notices:?}");
        back.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_outlives_two_minutes_without_its_host() {
    let address = FakeHost::free_address();
    let script = |_: usize, parts: &http::request::Parts, body: &[u8]| match parts.method {
        Method::HEAD => Reply::Head(vec![(UPLOAD_OFFSET, "0".to_owned())]),
        Method::PUT => {
            assert_eq!(body, b"layers");
            Reply::json(&())
        }
        _ => Reply::Refused(404, ErrorClass::NotFound, None),
    };
    let first = Mutex::new(Some(FakeHost::start_at(&address, script).await));
    let (notices, told) = log();
    let back = Arc::new(Mutex::new(None));
    let again = Arc::clone(&back);
    let at = address.clone();
    let dies = Arc::new(move |notice: Notice| {
        // The host stops when the first bytes are in flight.
        let first = match notice {
            Notice::Uploading { .. } => first.lock().unwrap().take(),
            _ => None,
        };
        if first.is_some() {
            *again.lock().unwrap() = Some(returning(&at, script));
        }
        told(notice);
    });
    let started = Instant::now();
    let client = HostClient::new(&format!("http://{address}"), None).unwrap();
    let layers = Bytes::from_static(b"layers");
    client
        .push(UploadKind::Model, "model", layers, &(dies as _))
        .await
        .unwrap();
    assert!(started.elapsed() >= ABSENCE);
    assert_told(&left(&notices.lock().unwrap()));
    assert!(back.lock().unwrap().is_some());
}
