//! Limits on the log lines that a tenant can cause.

use crate::support::{TestHost, rerun_in_own_process};
use futures::future::join_all;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Maximum rate in bytes per second.
const MOST: u64 = 65_536;

/// Captures the log of this process with the default levels of a host.
fn capture() -> Arc<Mutex<Vec<u8>>> {
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let log = Arc::<Mutex<Vec<u8>>>::default();
    let writer = Arc::clone(&log);
    let levels: Targets = "warn,frostline_server=info".parse().unwrap();
    let layer = tracing_subscriber::fmt::layer()
        .json()
        .with_writer(move || Log(Arc::clone(&writer)));
    tracing_subscriber::registry()
        .with(layer.with_filter(levels))
        .init();
    log
}

/// Asserts that the log grew by no more than [`MOST`] since `started`, and is not empty.
fn assert_bounded(log: &Mutex<Vec<u8>>, started: Instant) {
    let bytes = log.lock().len() as u64;
    let seconds = started.elapsed().as_secs() + 1;
    assert!(bytes <= MOST * seconds, "{bytes} bytes in {seconds} s");
    assert!(bytes > 0, "something is logged");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_are_counted_not_logged() {
    if rerun_in_own_process("host_log::many_requests_are_counted_not_logged") {
        return;
    }
    let log = capture();
    let test = TestHost::start().await;
    log.lock().clear();
    let started = Instant::now();
    let path = format!("/v1/guests/{}", "g".repeat(4000));
    for _ in 0..40 {
        let ask = || test.client.send(Method::GET, &path, "");
        join_all((0..32).map(|_| ask())).await;
    }
    assert_bounded(&log, started);
}

mod needs_guests {
    use super::*;
    use crate::client::body;
    use crate::fixtures::upload_ref;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_guest_that_logs_without_end_is_not_in_the_hosts_log() {
        if rerun_in_own_process(
            "host_log::needs_guests::a_guest_that_logs_without_end_is_not_in_the_hosts_log",
        ) {
            return;
        }
        let log = capture();
        let noisy = std::fs::read(frostline_needs::built_guest("flood-log")).unwrap();
        let test = TestHost::start().await;
        test.photos(2);
        let (_, model) = test.upload().await;
        let answer = test
            .client
            .send(Method::PUT, "/v1/guests/noisy", noisy.clone())
            .await;
        assert_eq!(answer.status(), StatusCode::CREATED);
        let mut request = test.request("classes", 2);
        (request.guest, request.model) = (Some(upload_ref("noisy", &noisy)), Some(model));
        log.lock().clear();
        let started = Instant::now();
        let answer = test.client.extract(&request).await;
        assert_eq!(answer.status(), StatusCode::OK);
        body(answer).await;
        assert_bounded(&log, started);
    }

    /// The host works correctly if a tenant's guest fails, so the operator gets no error.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_guest_that_traps_is_no_error_of_the_host() {
        if rerun_in_own_process("host_log::needs_guests::a_guest_that_traps_is_no_error_of_the_host") {
            return;
        }
        let log = capture();
        let traps = std::fs::read(frostline_needs::built_guest("trap")).unwrap();
        let test = TestHost::start().await;
        test.photos(2);
        let (_, model) = test.upload().await;
        let answer = test
            .client
            .send(Method::PUT, "/v1/guests/traps", traps.clone())
            .await;
        assert_eq!(answer.status(), StatusCode::CREATED);
        let mut request = test.request("classes", 2);
        (request.guest, request.model) = (Some(upload_ref("traps", &traps)), Some(model));
        log.lock().clear();
        body(test.client.extract(&request).await).await;
        test.wait_until_ended().await;
        let text = String::from_utf8(log.lock().clone()).unwrap();
        assert!(text.contains("\"INFO\"") && text.contains("trap"), "{text}");
        assert!(
            !text.contains("\"ERROR\"") && !text.contains("\"WARN\""),
            "{text}"
        );
    }
}
