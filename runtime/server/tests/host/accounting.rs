//! Usage of tenants across hosts and restarts, and enforcement of daily budgets.

use crate::client::{Client, End, body, rows};
use crate::fixtures::{network, stock_guest};
use crate::support::TestHost;
use frostline_wire::{DayUsage, ErrorClass, QuotaKey, RowFormat, Usage};
use http::{Method, StatusCode};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Returns the usage of `tenant` according to the admin API of this host.
async fn usage(test: &TestHost, tenant: &str) -> Usage {
    let path = format!("/v1/usage?from=2020-01-01&tenant={tenant}");
    let days: Vec<DayUsage> =
        serde_json::from_value(test.admin(Method::GET, &path, &Value::Null).await).unwrap();
    let mut sum = Usage::default();
    for day in days {
        assert_eq!(day.tenant, tenant);
        sum += day.usage;
    }
    sum
}

/// Extracts `samples` photos up to a cut and returns the size of the answer in bytes.
async fn extract(test: &TestHost, client: &Client, samples: u32) -> u64 {
    let (guest, model) = client.upload().await;
    let mut request = test.request("flat", samples);
    (request.guest, request.model) = (Some(guest), Some(model));
    let answer = client.extract(&request).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let bytes = body(answer).await.len() as u64;
    test.wait_until_ended().await;
    bytes
}

async fn get(client: &Client, path: &str) -> u64 {
    let answer = client.send(Method::GET, path, "").await;
    assert_eq!(answer.status(), StatusCode::OK);
    body(answer).await.len() as u64
}

/// Starts a second host with the state of the first.
async fn second_host(first: &TestHost, local: &Path) -> TestHost {
    TestHost::with(|settings| {
        settings.state = first.folder.path().join("state").to_str().unwrap().to_owned();
        settings.data = vec![first.root()];
        settings.local = Some(local.to_owned());
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_summed_over_hosts_and_restarts() {
    let mut first = TestHost::start().await;
    let photos: usize = first.photos(6).iter().map(|photo| photo.len()).sum();
    let acme = first.tenant("acme", &[]).await;
    let mut sent = extract(&first, &acme, 6).await;
    sent += get(&acme, "/v1/probe?bytes=1000").await;
    sent += get(&acme, &format!("/v1/objects?root={}", first.root())).await;
    let used = usage(&first, "acme").await;
    assert_eq!(
        (used.images, used.extractions, used.failed_extractions),
        (6, 1, 0)
    );
    assert_eq!((used.probes, used.listings), (1, 1));
    // Answers to uploads count as well.
    let answers = used.sent_bytes - sent;
    assert!(answers < 64 << 10, "{answers}");
    assert_eq!(used.read_bytes, photos as u64);
    let stored = (stock_guest().len() + network().to_bytes().unwrap().len()) as u64;
    assert_eq!(used.stored_bytes, stored);
    assert!(
        used.device_seconds > 0.0 && used.guest_cpu_seconds > 0.0,
        "{used:?}"
    );
    assert_eq!(usage(&first, "other").await, Usage::default());

    let local = tempfile::tempdir().unwrap();
    let second = second_host(&first, local.path()).await;
    let there = second.client_of(&acme.token);
    sent += get(&there, "/v1/probe?bytes=500").await;
    let host = first.host.take().unwrap();
    host.shutdown(Duration::from_secs(10)).await;
    let first = TestHost::start_in(first.folder, |_| ()).await;
    for test in [&second, &first] {
        let all = usage(test, "acme").await;
        assert_eq!((all.images, all.probes, all.sent_bytes), (6, 2, sent + answers));
        assert_eq!(all.stored_bytes, stored, "uploads are stored once");
        assert!(all.device_seconds >= used.device_seconds, "{all:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_day_is_refused() {
    let test = TestHost::start().await;
    let (status, answer) = test
        .ask_admin(Method::GET, "/v1/usage?from=yesterday", &Value::Null)
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(
        String::from_utf8_lossy(&answer).contains("2026-11-26"),
        "the message shows the expected format"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn work_ends_when_the_budget_of_a_day_is_used_up_on_any_host() {
    let test = TestHost::start().await;
    let acme = test.tenant("acme", &[(QuotaKey::BytesPerDay, 1000)]).await;
    let request = test.large_request();
    let unread = acme.extract(&request).await;
    assert_eq!(unread.status(), StatusCode::OK);
    test.wait_until_ended().await;
    let (_, end) = rows(RowFormat::Object, &request, unread).await;
    assert_eq!(end, End::Aborted);
    let (status, error) = acme.extract_refused(&request).await;
    assert_eq!(
        (status, error.class),
        (StatusCode::FORBIDDEN, ErrorClass::TooLarge)
    );
    for word in [
        "bytes_per_day of 1000",
        "today (UTC)",
        "frostline admin quota set acme",
    ] {
        assert!(error.message.contains(word), "{error}");
    }
    let (status, _) = acme.refused(Method::GET, "/v1/probe?bytes=1", "").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let quota = test
        .admin(Method::GET, "/v1/tenants/acme/quota", &Value::Null)
        .await;
    let of = |key: &str| {
        quota
            .as_array()
            .unwrap()
            .iter()
            .find(|info| info["key"] == key)
            .unwrap()
            .clone()
    };
    assert!(of("bytes_per_day")["used"].as_u64().unwrap() > 1000);
    assert_eq!(of("stored_bytes")["used"], 0);

    // Another host learns about the usage when it reads the state, at the latest for this request.
    usage(&test, "acme").await;
    let local = tempfile::tempdir().unwrap();
    let second = second_host(&test, local.path()).await;
    usage(&second, "acme").await;
    let (status, _) = second
        .client_of(&acme.token)
        .refused(Method::GET, "/v1/probe?bytes=1", "")
        .await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_beyond_the_budget_of_a_day_are_refused() {
    let test = TestHost::start().await;
    let photo = test.photos(1)[0].len() as u64;
    let acme = test.tenant("acme", &[(QuotaKey::ReadBytesPerDay, photo)]).await;
    let request = test.request("none", 1);
    let (_, end) = rows(RowFormat::Object, &request, acme.extract(&request).await).await;
    assert_eq!(end, End::Clean);
    // The counters need not have been added to the day yet.
    let (status, error) = acme.extract_refused(&request).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(error.message.contains("read_bytes_per_day"), "{error}");
    let listing = format!("/v1/objects?root={}", test.root());
    let (status, _) = acme.refused(Method::GET, &listing, "").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let probe = acme.send(Method::GET, "/v1/probe?bytes=1", "").await;
    assert_eq!(
        probe.status(),
        StatusCode::OK,
        "sent bytes have a separate budget"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_end_at_the_budget_of_a_day() {
    const BUDGET: u64 = 1 << 20;
    const PROBES: u64 = 16;
    let test = TestHost::start().await;
    let acme = test.tenant("acme", &[(QuotaKey::BytesPerDay, BUDGET)]).await;
    let address = acme.base.trim_start_matches("http://");
    let token = &acme.token;
    let request = format!(
        "GET /v1/probe?bytes=1000000 HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    let probes = (0..PROBES).map(|_| async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The connection is reset if the answer is ended.
        let _ = stream.read_to_end(&mut answer).await;
        answer.len() as u64
    });
    let received: u64 = futures::future::join_all(probes).await.into_iter().sum();
    // A piece and the head, or a refusal.
    let excess = 32 << 10;
    assert!(received <= BUDGET + PROBES * excess, "{received}");
    // Refusals are still sent, and uploads allowed.
    let (status, _) = acme.refused(Method::GET, "/v1/load", "").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let stored = acme.send(Method::PUT, "/v1/guests/stock", stock_guest()).await;
    assert_eq!(stored.status(), StatusCode::CREATED);
    body(stored).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_uploads_are_limited() {
    let test = TestHost::start().await;
    let acme = test.tenant("acme", &[(QuotaKey::Uploads, 1)]).await;
    let guest = stock_guest();
    let address = acme.base.trim_start_matches("http://");
    let mut first = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "PUT /v1/guests/one HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
         expect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        acme.token,
        guest.len()
    );
    first.write_all(head.as_bytes()).await.unwrap();
    // The host answers this when it has counted the first upload and reads its body.
    let mut proceed = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    first.read_exact(&mut proceed).await.unwrap();
    assert!(
        proceed.starts_with(b"HTTP/1.1 100 "),
        "{}",
        proceed.escape_ascii()
    );
    let second = acme.send(Method::PUT, "/v1/guests/two", guest.clone()).await;
    assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
    first.write_all(&guest).await.unwrap();
    let mut answer = String::new();
    first.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn device_time_and_the_size_of_an_answer_are_limited() {
    let test = TestHost::start().await;
    for (key, status) in [
        (QuotaKey::DeviceSecondsPerDay, StatusCode::FORBIDDEN),
        (QuotaKey::OutputBytes, StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let client = test.tenant(&key.to_string().replace('_', "-"), &[(key, 0)]).await;
        let (guest, model) = client.upload().await;
        let mut request = test.request("flat", 1);
        (request.guest, request.model) = (Some(guest), Some(model));
        let (refused, error) = client.extract_refused(&request).await;
        assert_eq!(refused, status, "{error}");
        assert!(error.message.contains(&key.to_string()), "{error}");
    }
}
