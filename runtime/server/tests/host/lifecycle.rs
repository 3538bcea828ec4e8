use crate::client::{End, STUCK, body, rows};
use crate::support::TestHost;
use frostline_server::{Host, HostSettings, StartError};
use frostline_wire::{ErrorClass, ExtractionRequest, RowFormat};
use http::{Method, StatusCode};
use std::io::{Read, Write};
use std::time::Duration;
use tokio::net::TcpStream;

const OBJECTS: usize = 64;

async fn host(change: impl FnOnce(&mut HostSettings)) -> (TestHost, ExtractionRequest) {
    let test = TestHost::with(|settings| {
        settings.extractions.running = 1;
        settings.extractions.queued = 0;
        change(settings);
    })
    .await;
    let request = test.large_request();
    (test, request)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_until_a_client_disconnects() {
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
        test.wait_until_idle().await;
        let answer = test.client.extract(&request).await;
        let (rows, end) = rows(RowFormat::Object, &request, answer).await;
        assert_eq!(end, End::Clean);
        assert_eq!(rows.len(), OBJECTS);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_request_starts_when_a_permit_is_free() {
    let (test, request) = host(|settings| settings.extractions.queued = 1).await;
    let unread = test.client.extract(&request).await;
    let second = tokio::spawn({
        let client = test.client.clone();
        let request = request.clone();
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
        test.wait_until_idle().await;
        let (rows, end) = rows(RowFormat::Object, &request, unread).await;
        assert_eq!(end, End::Aborted);
        assert!(rows.len() < OBJECTS);
    }
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
    assert_eq!(rows.len(), OBJECTS);
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
async fn a_host_does_not_start_with_an_unusable_state_folder() {
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
async fn a_host_that_does_not_start_leaves_no_port_open() {
    let folder = tempfile::tempdir().unwrap();
    // No other program uses this loopback address, so the port stays free.
    let free = std::net::TcpListener::bind("127.61.7.43:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let settings = |socket: &str| HostSettings {
        listen: address.to_string(),
        state: folder.path().join("state").to_str().unwrap().to_owned(),
        admin_socket: Some(folder.path().join(socket)),
        ..HostSettings::default()
    };
    let start = |socket: &str| frostline_server::Host::start(settings(socket).check().unwrap());
    let error = start("missing/admin.sock").await.map(drop).unwrap_err();
    assert!(matches!(error, StartError::AdminSocket { .. }), "{error}");
    assert!(
        TcpStream::connect(address).await.is_err(),
        "the port is still open"
    );
    let host = start("admin.sock").await.unwrap();
    assert_eq!(host.address(), address);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_stops_refuses_uploads_too() {
    let mut test = TestHost::start().await;
    let request = test.large_request();
    let unread = test.client.extract(&request).await;
    let stopping = tokio::spawn(test.host.take().unwrap().shutdown(Duration::from_secs(60)));
    while test.client.send(Method::GET, "/readyz", "").await.status() == StatusCode::OK {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (status, error) = test.client.refused(Method::PUT, "/v1/guests/prefix", "").await;
    assert_eq!(
        (status, error.class),
        (StatusCode::SERVICE_UNAVAILABLE, ErrorClass::Stopping)
    );
    drop(unread);
    tokio::time::timeout(STUCK, stopping).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_what_happened() {
    let test = TestHost::start().await;
    test.photos(5);
    let request = test.request("none", 5);
    rows(RowFormat::Object, &request, test.client.extract(&request).await).await;
    test.wait_until_idle().await;
    let answer = test.client.send(Method::GET, "/metrics", "").await;
    let text = String::from_utf8(body(answer).await.to_vec()).unwrap();
    assert!(
        text.contains("frostline_samples_total{split=\"none\",failed=\"false\"} 5"),
        "{text}"
    );
    assert!(
        text.contains("frostline_extractions_total{split=\"none\",outcome=\"done\"} 1"),
        "{text}"
    );
}

#[tokio::test]
async fn a_host_does_not_start_over_a_data_folder_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("photo");
    let settings = HostSettings {
        listen: "127.0.0.1:0".to_owned(),
        state: folder.path().join("state").to_str().unwrap().to_owned(),
        data: vec![missing.to_str().unwrap().to_owned()],
        ..HostSettings::default()
    };
    let refused = Host::start(settings.clone().check().unwrap())
        .await
        .err()
        .unwrap();
    assert!(
        refused.to_string().contains(missing.to_str().unwrap()),
        "{refused}"
    );
    std::fs::write(&missing, "a file").unwrap();
    let refused = Host::start(settings.check().unwrap()).await.err().unwrap();
    assert!(refused.to_string().contains("not a folder"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_folder_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let test = TestHost::start().await;
    let state = std::fs::metadata(test.folder.path().join("state")).unwrap();
    assert_eq!(state.permissions().mode() & 0o777, 0o700);
}

const SOCKET: &str = "FROSTLINE_TEST_SOCKET";

#[test]
#[ignore = "started as a child process by `a_process_that_the_host_started_is_no_admin`"]
fn asks_for_the_admins_socket() {
    let socket = std::env::var_os(SOCKET).unwrap();
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    // The host may have closed the connection already.
    let _ = stream.write_all(b"GET /v1/tenants HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(String::from_utf8_lossy(&answer), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_the_host_started_is_no_admin() {
    let test = TestHost::start().await;
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "lifecycle::asks_for_the_admins_socket", "--ignored"])
        .env(SOCKET, test.folder.path().join("admin.sock"));
    let ended = tokio::task::spawn_blocking(move || child.output());
    let ended = ended.await.unwrap().unwrap();
    let told = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && told.contains("1 passed"), "{told}");
    // Processes that the host did not start have access.
    test.admin(Method::GET, "/v1/tenants", &serde_json::Value::Null)
        .await;
}
