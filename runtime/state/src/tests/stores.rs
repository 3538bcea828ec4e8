//! Checks which stores are suitable for a state.

use super::{LIMITS, files, host, local, uncharged};
use crate::probe::probe;
use crate::{SharedState, StateError};
use frostline_fake_store::{Fault, S3};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

#[tokio::test]
async fn a_store_that_creates_only_where_nothing_is_passes() {
    let server = S3::start().await;
    server.once(Fault::DoneAnd503, |(_, key)| key.starts_with("probes/"));
    probe(&server.store()).await.unwrap();
    assert_eq!(server.keys("probes/").len(), 0);
    let folder = tempfile::tempdir().unwrap();
    host(local(folder.path())).await;
    assert_eq!(files(&folder.path().join("probes")), 0);
}

#[tokio::test]
async fn a_host_starts_although_its_store_is_busy_for_longer_than_a_request_is_repeated() {
    let server = S3::start().await;
    let failures = AtomicUsize::new(0);
    // A request is repeated three times.
    server.script(move |_| match failures.fetch_add(1, Relaxed) < 10 {
        true => Fault::Break,
        false => Fault::None,
    });
    host(server.store()).await;
}

#[tokio::test]
async fn a_store_that_passes_over_the_condition_is_refused() {
    let server = S3::start().await;
    server.script(|_| Fault::IgnoreCondition);
    let opened = SharedState::<()>::open(server.store(), LIMITS, uncharged).await;
    let error = opened.map(drop).unwrap_err();
    assert!(matches!(error, StateError::Replaces { .. }), "{error}");
    assert!(error.to_string().contains("s3://b/state"), "{error}");
    assert_eq!(server.keys(""), [""; 0], "should remove the probe object");
}

#[tokio::test]
async fn a_store_without_the_condition_is_refused() {
    let server = S3::start().await;
    server.script(|_| Fault::RefuseCondition);
    let opened = SharedState::<()>::open(server.store(), LIMITS, uncharged).await;
    let error = opened.map(drop).unwrap_err();
    assert!(matches!(error, StateError::CreatesNothing { .. }), "{error}");
    assert!(error.to_string().contains("NotImplemented"), "{error}");
    assert_eq!(server.keys(""), [""; 0], "should remove the probe object");
}

#[tokio::test]
async fn a_full_store_is_reported_as_such() {
    let server = S3::start().await;
    server.script(|_| Fault::Full);
    let opened = SharedState::<()>::open(server.store(), LIMITS, uncharged).await;
    let error = opened.map(drop).unwrap_err();
    assert!(matches!(error, StateError::Store(_)), "{error}");
    assert!(error.to_string().contains("QuotaExceeded"), "{error}");
}
