use crate::support::{End, TestHost, body, rows, sample};
use frostline_server::HostSettings;
use frostline_wire::{ErrorClass, ExtractionRequest, RowFormat};
use http::{Method, StatusCode};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Objects that no socket buffer holds, so that an answer nobody reads stays open.
const OBJECTS: u32 = 64;

async fn host(change: impl FnOnce(&mut HostSettings)) -> (TestHost, ExtractionRequest) {
    let test = TestHost::with(|settings| {
        settings.extractions.running = 1;
        settings.extractions.queued = 0;
        change(settings);
    })
    .await;
    test.write("large", &vec![7; 1 << 20]);
    let mut request = test.request("none", 0);
    request.samples = (0..OBJECTS).map(|position| sample(position, "large")).collect();
    (test, request)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_sends_away_and_a_client_that_leaves_makes_room() {
    for http2 in [false, true] {
        let (test, request) = host(|_| ()).await;
        let client = if http2 { test.http2() } else { test.client.clone() };
        let unread = client.extract(&request).await;
        assert_eq!(test.load().await.running, 1);
        let answer = test.client.extract(&request).await;
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        let wait: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=30).contains(&wait));
        drop(unread);
        test.idle().await;
        let answer = test.client.extract(&request).await;
        let (rows, end) = rows(RowFormat::Object, &request, answer).await;
        assert_eq!(end, End::Clean);
        assert_eq!(rows.len(), OBJECTS as usize);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_in_the_queue_is_served_when_a_place_is_free() {
    let (test, request) = host(|settings| settings.extractions.queued = 1).await;
    let unread = test.client.extract(&request).await;
    let second = tokio::spawn({
        let (client, request) = (test.client.clone(), request.clone());
        async move { rows(RowFormat::Object, &request, client.extract(&request).await).await }
    });
    while test.load().await.queued == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(unread);
    assert_eq!(second.await.unwrap().1, End::Clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extraction_past_its_deadline_is_aborted_and_never_ends_cleanly() {
    for http2 in [false, true] {
        let (test, request) = host(|settings| settings.extractions.seconds = 1).await;
        let client = if http2 { test.http2() } else { test.client.clone() };
        let unread = client.extract(&request).await;
        test.idle().await;
        let (rows, end) = rows(RowFormat::Object, &request, unread).await;
        assert_eq!(end, End::Aborted);
        assert!(rows.len() < OBJECTS as usize);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_does_not_take_all_connections() {
    let test = TestHost::with(|settings| settings.limits.connections = 8).await;
    // Its connection stays open and is one of the four.
    body(test.client.send(Method::GET, "/healthz", "").await).await;
    let address = test.host.as_ref().unwrap().address();
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(TcpStream::connect(address).await.unwrap());
    }
    let mut closed = 0;
    for stream in &mut held {
        let read = tokio::time::timeout(Duration::from_millis(500), stream.read_u8()).await;
        closed += usize::from(read.is_ok());
    }
    assert_eq!(
        closed, 5,
        "three more wait for a request, the others were turned away"
    );
    let metrics = body(test.client.send(Method::GET, "/metrics", "").await).await;
    let metrics = String::from_utf8(metrics.to_vec()).unwrap();
    assert!(
        metrics.contains("frostline_connections_refused_total 5"),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn shutting_down_finishes_what_runs_and_refuses_what_is_new() {
    let (mut test, request) = host(|_| ()).await;
    let unread = test.client.extract(&request).await;
    let stopping = tokio::spawn(test.host.take().unwrap().shutdown(Duration::from_secs(60)));
    while test.client.send(Method::GET, "/readyz", "").await.status() == StatusCode::OK {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let answer = test.client.extract(&request).await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.headers().contains_key("retry-after"));
    let (_, error) = test.client.extract_refused(&request).await;
    assert_eq!(error.class, ErrorClass::Stopping);
    let (rows, end) = rows(RowFormat::Object, &request, unread).await;
    assert_eq!(end, End::Clean);
    assert_eq!(rows.len(), OBJECTS as usize);
    stopping.await.unwrap();
    assert!(
        tokio::net::TcpStream::connect(test.client.base.trim_start_matches("http://"))
            .await
            .is_err()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_deadline_of_a_shutdown_answers_are_aborted() {
    let (mut test, request) = host(|_| ()).await;
    let unread = test.client.extract(&request).await;
    test.host
        .take()
        .unwrap()
        .shutdown(Duration::from_millis(50))
        .await;
    let (_, end) = rows(RowFormat::Object, &request, unread).await;
    assert_eq!(end, End::Aborted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_cannot_work_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "x").unwrap();
    let settings = HostSettings {
        listen: "127.0.0.1:0".to_owned(),
        state: folder.path().join("file/state").to_str().unwrap().to_owned(),
        ..HostSettings::default()
    };
    let error = frostline_server::Host::start(settings.check().unwrap())
        .await
        .map(|_| ())
        .unwrap_err();
    assert!(error.to_string().contains("file/state"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_what_happened() {
    let test = TestHost::start().await;
    test.photos(5);
    let request = test.request("none", 5);
    rows(RowFormat::Object, &request, test.client.extract(&request).await).await;
    test.idle().await;
    let answer = test.client.send(Method::GET, "/metrics", "").await;
    let text = String::from_utf8(body(answer).await.to_vec()).unwrap();
    assert!(
        text.contains("frostline_samples_total{split=\"None\",failed=\"False\"} 5"),
        "{text}"
    );
    assert!(
        text.contains("frostline_extractions_total{split=\"None\",outcome=\"Done\"} 1"),
        "{text}"
    );
}
