//! Requests stay within the memory budget, and release all memory at the end.

use crate::client::STUCK;
use crate::fixtures::sample;
use crate::support::TestHost;
use frostline_wire::{Activity, ErrorClass, ExtractionRequest, MemoryActivity};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Memory budget. Smaller than two of the largest requests.
const BUDGET: u64 = 512 << 20;

/// Object size in bytes, and number of samples. The product exceeds the memory for grants.
const OBJECT: usize = 8 << 20;
const TIMES: u32 = 48;

async fn host() -> TestHost {
    TestHost::with(|settings| settings.memory_budget = Some(BUDGET)).await
}

async fn memory(test: &TestHost) -> MemoryActivity {
    let activity = test.admin(Method::GET, "/v1/activity", &Value::Null).await;
    let activity: Activity = serde_json::from_value(activity).unwrap();
    let memory = activity.memory.unwrap();
    assert_eq!(memory.budget, BUDGET);
    assert!(memory.held <= BUDGET, "{memory:?}");
    memory
}

/// Waits until the memory held by requests satisfies `wanted`.
async fn wait_for_memory(test: &TestHost, wanted: impl Fn(u64) -> bool) {
    let looking = async {
        loop {
            let memory = memory(test).await;
            let of = |kind: &str| memory.kinds[kind];
            if wanted(of("request") + of("grant") + of("read") + of("decode") + of("lane")) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(STUCK, looking)
        .await
        .expect("the memory did not reach the expected value");
}

/// Opens a connection, declares a body of 16 MiB and sends only the beginning.
async fn send_partial_body(test: &TestHost) -> TcpStream {
    let address = test.host.as_ref().unwrap().address();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /v1/extractions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n",
        test.client.token,
        16 << 20
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&[b' '; 1024]).await.unwrap();
    stream
}

/// Returns a request that reads the same large object several times.
fn large(test: &TestHost) -> ExtractionRequest {
    test.write("large", &vec![7; OBJECT]);
    let mut request = test.request("none", 0);
    request.samples = (0..TIMES).map(|position| sample(position, "large")).collect();
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_stay_within_the_budget_and_release_memory_on_disconnect() {
    let test = host().await;
    let mut clients = Vec::new();
    for _ in 0..24 {
        clients.push(send_partial_body(&test).await);
    }
    wait_for_memory(&test, |held| held >= 16 << 20).await;
    drop(clients);
    wait_for_memory(&test, |held| held == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_objects_stay_within_the_budget_and_release_memory_on_disconnect() {
    let test = host().await;
    let unread = test.client.extract(&large(&test)).await;
    assert_eq!(unread.status(), StatusCode::OK);
    wait_for_memory(&test, |held| held >= OBJECT as u64).await;
    drop(unread);
    wait_for_memory(&test, |held| held == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_larger_than_all_memory_is_sent_piece_by_piece() {
    let test = host().await;
    let mut body = test.client.extract(&large(&test)).await.into_body();
    let mut bytes = 0;
    while let Some(frame) = tokio::time::timeout(STUCK, body.frame()).await.unwrap() {
        bytes += frame.unwrap().data_ref().map_or(0, |data| data.len());
        if bytes % OBJECT < 1 << 16 {
            memory(&test).await;
        }
    }
    assert!(bytes > TIMES as usize * OBJECT, "{bytes}");
    wait_for_memory(&test, |held| held == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn activations_are_held_until_they_are_sent() {
    let test = host().await;
    let (guest, model) = test.upload().await;
    test.photos(12);
    let mut request = test.request("flat", 12);
    (request.guest, request.model) = (Some(guest), Some(model));
    let answer = test.client.extract(&request).await;
    assert_eq!(answer.status(), StatusCode::OK, "{:?}", answer.headers());
    drop(answer);
    wait_for_memory(&test, |held| held == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compiled_guests_are_reserved() {
    let test = host().await;
    test.upload().await;
    let cached = memory(&test).await.kinds["cache"];
    assert!(cached >= 64 << 10, "{cached}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_can_never_fit_is_refused_with_both_numbers() {
    let test = TestHost::limited(|_| (), |config| config.memory_budget = 16 << 20).await;
    let mut request = test.request("none", 0);
    request.samples = (0..10_000).map(|position| sample(position, "a")).collect();
    let (status, error) = test.client.extract_refused(&request).await;
    assert_eq!(
        (status, error.class),
        (StatusCode::PAYLOAD_TOO_LARGE, ErrorClass::TooLarge)
    );
    assert!(error.message.contains("memory_budget of 16777216"), "{error}");
}
