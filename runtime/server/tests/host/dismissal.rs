//! What runs ends soon after its token, tenant or guest is not good any more.

use crate::client::{Client, End, STUCK, body, rows};
use crate::fixtures::{network, pin, sample, stock_guest};
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

/// So that nothing but the dismissal ends what these tests begin.
fn patient(config: &mut HostConfig) {
    config.limits.stall = Duration::from_secs(24 * 3600);
    config.wall = config.limits.stall;
}

/// An extraction of the tenant that nobody reads.
async fn begun(test: &TestHost, token: &str, request: &ExtractionRequest) -> Response<Incoming> {
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
    let test = TestHost::limited(|_| (), patient).await;
    let request = test.large();
    let others = json!({"others_seconds": 0});
    let disable = json!({"disabled": true});
    let cases: [(&str, Method, &str, &Value); 4] = [
        ("revoked", Method::DELETE, "/tokens/ID", &Value::Null),
        ("expired", Method::POST, "/tokens", &others),
        ("disabled", Method::PATCH, "", &disable),
        ("removed", Method::DELETE, "", &Value::Null),
    ];
    for (name, method, path, change) in cases {
        let (token, id) = test.add(name).await;
        let unread = begun(&test, &token, &request).await;
        let path = format!("/v1/tenants/{name}{}", path.replace("ID", &id));
        test.admin(method, &path, change).await;
        test.ended().await;
        let (_, end) = rows(RowFormat::Object, &request, unread).await;
        assert_eq!(end, End::Aborted, "{name}");
        refused(&test.client_of(&token), &request, ErrorClass::Unauthorized).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn extractions_end_when_another_host_is_told_so() {
    let told = TestHost::limited(|_| (), patient).await;
    let local = tempfile::tempdir().unwrap();
    let test = TestHost::limited(
        |settings| {
            settings.state = told.folder.path().join("state").to_str().unwrap().to_owned();
            settings.local = Some(local.path().to_owned());
        },
        patient,
    )
    .await;
    let (token, id) = told.add("acme").await;
    let data = json!({"data": [test.root()]});
    told.admin(Method::PATCH, "/v1/tenants/acme", &data).await;
    let request = test.large();
    let knows = async {
        while test.client_of(&token).extract(&request).await.status() != StatusCode::OK {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        test.ended().await;
    };
    tokio::time::timeout(STUCK, knows)
        .await
        .expect("the tenant is not known");
    let unread = begun(&test, &token, &request).await;
    told.admin(
        Method::DELETE,
        &format!("/v1/tenants/acme/tokens/{id}"),
        &Value::Null,
    )
    .await;
    test.ended().await;
    drop(unread);
}

/// A network whose activations no socket buffer holds.
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
    let test = TestHost::limited(|_| (), patient).await;
    test.photos(1);
    let (token, _) = test.add("acme").await;
    let (guest, model) = (stock_guest(), wide().to_bytes().unwrap());
    let client = test.client_of(&token);
    for (path, bytes) in [("/v1/guests/prefix", &guest), ("/v1/models/wide", &model)] {
        let answer = client.send(Method::PUT, path, bytes.clone()).await;
        assert_eq!(answer.status(), StatusCode::CREATED);
    }
    let mut request = test.request("active", 0);
    request.samples = (0..100).map(|position| sample(position, "0.png")).collect();
    (request.guest, request.model) = (Some(pin("prefix", &guest)), Some(pin("wide", &model)));
    let unread = begun(&test, &token, &request).await;
    let disable = json!({"disabled": true});
    test.admin(Method::PATCH, "/v1/tenants/acme/guests/prefix", &disable)
        .await;
    test.ended().await;
    drop(unread);
    refused(&client, &request, ErrorClass::Unauthorized).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_ends_with_its_token() {
    let test = TestHost::limited(|_| (), patient).await;
    let (token, id) = test.add("acme").await;
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
    tokio::time::timeout(STUCK, received).await.expect("nothing came");
    test.admin(
        Method::DELETE,
        &format!("/v1/tenants/acme/tokens/{id}"),
        &Value::Null,
    )
    .await;
    let mut status = [0; 12];
    let read = tokio::time::timeout(STUCK, upload.read_exact(&mut status)).await;
    read.expect("the upload goes on").unwrap();
    assert_eq!(&status, b"HTTP/1.1 401");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_configured_tenant_runs_ends_when_the_token_in_its_file_is_replaced() {
    let test = TestHost::limited(|_| (), patient).await;
    let request = test.large();
    let old = test.client.token.clone();
    let unread = begun(&test, &old, &request).await;
    let new = "a".repeat(64);
    let file = test.host.as_ref().unwrap().token_file();
    std::fs::write(file, &new).unwrap();
    test.ended().await;
    let (_, end) = rows(RowFormat::Object, &request, unread).await;
    assert_eq!(end, End::Aborted);
    refused(&test.client_of(&old), &request, ErrorClass::Unauthorized).await;
    drop(begun(&test, &new, &request).await);
}
