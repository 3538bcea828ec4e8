//! Running requests end soon after the token, the tenant or the guest becomes invalid.

use crate::client::{Client, End, STUCK, body, rows};
use crate::fixtures::{network, sample, stock_guest, upload_ref};
use crate::support::TestHost;
use bytes::Bytes;
use frostline_graph::onnx::GraphProto;
use frostline_graph::{Model, build};
use frostline_server::HostConfig;
use frostline_wire::{ErrorClass, ExtractionRequest, RowFormat};
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Disables the timeouts that would also end the requests in these tests.
fn disable_timeouts(config: &mut HostConfig) {
    config.limits.stall = Duration::from_secs(24 * 3600);
    config.extraction_timeout = config.limits.stall;
}

/// Starts an extraction of the tenant without reading the answer.
async fn start_unread(test: &TestHost, token: &str, request: &ExtractionRequest) -> Response<Incoming> {
    let unread = test.client_of(token).extract(request).await;
    assert_eq!(unread.status(), StatusCode::OK);
    assert_eq!(test.running().await, 1);
    unread
}

async fn refused(client: &Client, request: &ExtractionRequest, class: ErrorClass) {
    let (_, error) = client.extract_refused(request).await;
    assert_eq!(error.class, class, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn extractions_end_with_their_token_or_tenant() {
    let test = TestHost::limited(|_| (), disable_timeouts).await;
    let request = test.large_request();
    let others = json!({"others_seconds": 0});
    let disable = json!({"disabled": true});
    let cases: [(&str, Method, &str, &Value); 4] = [
        ("revoked", Method::DELETE, "/tokens/ID", &Value::Null),
        ("expired", Method::POST, "/tokens", &others),
        ("disabled", Method::PATCH, "", &disable),
        ("removed", Method::DELETE, "", &Value::Null),
    ];
    for (name, method, path, change) in cases {
        let (token, id) = test.add_tenant(name).await;
        let unread = start_unread(&test, &token, &request).await;
        let path = format!("/v1/tenants/{name}{}", path.replace("ID", &id));
        test.admin(method, &path, change).await;
        test.wait_until_ended().await;
        let (_, end) = rows(RowFormat::Object, &request, unread).await;
        assert_eq!(end, End::Aborted, "{name}");
        refused(&test.client_of(&token), &request, ErrorClass::Unauthorized).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn extractions_end_when_another_host_revokes_the_token() {
    let told = TestHost::limited(|_| (), disable_timeouts).await;
    let local = tempfile::tempdir().unwrap();
    let test = TestHost::limited(
        |settings| {
            settings.state = told.folder.path().join("state").to_str().unwrap().to_owned();
            settings.local = Some(local.path().to_owned());
        },
        disable_timeouts,
    )
    .await;
    let (token, id) = told.add_tenant("acme").await;
    let data = json!({"data": [test.root()]});
    told.admin(Method::PATCH, "/v1/tenants/acme", &data).await;
    let request = test.large_request();
    let knows = async {
        while test.client_of(&token).extract(&request).await.status() != StatusCode::OK {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        test.wait_until_ended().await;
    };
    tokio::time::timeout(STUCK, knows)
        .await
        .expect("the tenant is unknown on the second host");
    let unread = start_unread(&test, &token, &request).await;
    told.admin(
        Method::DELETE,
        &format!("/v1/tenants/acme/tokens/{id}"),
        &Value::Null,
    )
    .await;
    test.wait_until_ended().await;
    drop(unread);
}

/// A network with activations that exceed all socket buffers.
fn wide() -> Model {
    let graph = GraphProto {
        name: "wide".to_owned(),
        node: vec![build::node("Relu", &["pixels"], &["active"])],
        input: vec![build::batched("pixels", &[3, 224, 224])],
        output: vec![build::batched("active", &[3, 224, 224])],
        ..GraphProto::default()
    };
    Model::from_proto(build::model(17, graph)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn extractions_end_when_their_guest_is_disabled() {
    let test = TestHost::limited(|_| (), disable_timeouts).await;
    test.photos(1);
    let (token, _) = test.add_tenant("acme").await;
    let guest = stock_guest();
    let model = wide().to_bytes().unwrap();
    let client = test.client_of(&token);
    for (path, bytes) in [("/v1/guests/prefix", &guest), ("/v1/models/wide", &model)] {
        let answer = client.send(Method::PUT, path, bytes.clone()).await;
        assert_eq!(answer.status(), StatusCode::CREATED);
    }
    let mut request = test.request("active", 0);
    request.samples = (0..100).map(|position| sample(position, "0.png")).collect();
    (request.guest, request.model) = (
        Some(upload_ref("prefix", &guest)),
        Some(upload_ref("wide", &model)),
    );
    let unread = start_unread(&test, &token, &request).await;
    let disable = json!({"disabled": true});
    test.admin(Method::PATCH, "/v1/tenants/acme/guests/prefix", &disable)
        .await;
    test.wait_until_ended().await;
    drop(unread);
    refused(&client, &request, ErrorClass::Unauthorized).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_ends_with_its_token() {
    let test = TestHost::limited(|_| (), disable_timeouts).await;
    let (token, id) = test.add_tenant("acme").await;
    let mut upload = TcpStream::connect(test.host.as_ref().unwrap().address())
        .await
        .unwrap();
    let bytes = Bytes::from(network().to_bytes().unwrap());
    let head = format!(
        "PUT /v1/models/tiny HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {token}\r\ncontent-length: {}\r\n\r\n",
        bytes.len()
    );
    upload.write_all(head.as_bytes()).await.unwrap();
    upload.write_all(&bytes[..10]).await.unwrap();
    let received = async {
        loop {
            let metrics = body(test.client.send(Method::GET, "/metrics", "").await).await;
            if String::from_utf8_lossy(&metrics).contains("upload_bytes_total 10") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(STUCK, received)
        .await
        .expect("the host received no bytes");
    test.admin(
        Method::DELETE,
        &format!("/v1/tenants/acme/tokens/{id}"),
        &Value::Null,
    )
    .await;
    let mut status = [0; 12];
    let read = tokio::time::timeout(STUCK, upload.read_exact(&mut status)).await;
    read.expect("the upload was not refused").unwrap();
    assert_eq!(&status, b"HTTP/1.1 401");
}

#[tokio::test(flavor = "multi_thread")]
async fn extractions_end_when_the_token_file_changes() {
    let test = TestHost::limited(|_| (), disable_timeouts).await;
    let request = test.large_request();
    let old = test.client.token.clone();
    let unread = start_unread(&test, &old, &request).await;
    let new = "a".repeat(64);
    let file = test.host.as_ref().unwrap().token_file();
    std::fs::write(file, &new).unwrap();
    test.wait_until_ended().await;
    let (_, end) = rows(RowFormat::Object, &request, unread).await;
    assert_eq!(end, End::Aborted);
    refused(&test.client_of(&old), &request, ErrorClass::Unauthorized).await;
    drop(start_unread(&test, &new, &request).await);
}
