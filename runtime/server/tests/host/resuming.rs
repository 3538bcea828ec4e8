//! Interrupted and resumed uploads.

use crate::client::{Client, STUCK, body};
use crate::fixtures::{network, stock_guest, upload_ref};
use crate::support::TestHost;
use bytes::Bytes;
use frostline_wire::{ErrorBody, ModelInfo, digest_of, repr_digest};
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MODEL: &str = "/v1/models/tiny";

/// Offset at which uploads are interrupted, in bytes.
const BROKEN_AT: usize = 300_000;

/// An upload with the URL path, the bytes and the `repr-digest` header.
struct Upload {
    path: &'static str,
    bytes: Bytes,
    digest: String,
}

impl Upload {
    fn new(path: &'static str, bytes: Vec<u8>) -> Self {
        let digest = repr_digest(&upload_ref("any", &bytes).sha256).unwrap();
        Self {
            path,
            bytes: bytes.into(),
            digest,
        }
    }

    /// Creates a model of half a megabyte. The bytes depend on `note`.
    fn model(note: u8) -> Self {
        let mut model = network();
        model.set_metadata("note", &char::from(b'a' + note).to_string().repeat(500_000));
        Self::new(MODEL, model.to_bytes().unwrap())
    }

    /// Sends the bytes from `from` to `to`, and leaves the connection open.
    async fn begin(&self, test: &TestHost, from: usize, to: usize) -> TcpStream {
        let address = test.client.base.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "PUT {} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\nrepr-digest: {}\r\nupload-offset: {from}\r\n\
             content-length: {}\r\n\r\n",
            self.path,
            test.client.token,
            self.digest,
            self.bytes.len() - from
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&self.bytes[from..to]).await.unwrap();
        stream
    }

    /// Sends the bytes from `from` to `to` and disconnects. Returns after the host has stored them.
    async fn broken(&self, test: &TestHost, from: usize, to: usize) {
        drop(self.begin(test, from, to).await);
        self.wait_for(test, to).await;
    }

    async fn wait_for(&self, test: &TestHost, offset: usize) {
        let reached = async {
            while self.offset(&test.client).await != (offset as u64, false) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(STUCK, reached)
            .await
            .expect("the received bytes were not stored");
    }

    /// Returns the number of bytes on the host, and true if the upload is complete.
    async fn offset(&self, client: &Client) -> (u64, bool) {
        let headers = [("repr-digest", self.digest.as_str())];
        let answer = client.send_with(Method::HEAD, self.path, &headers, "").await;
        assert_eq!(answer.status(), StatusCode::NO_CONTENT);
        let text = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        (
            text("upload-offset").parse().unwrap(),
            text("upload-complete") == "?1",
        )
    }

    /// Sends the remaining bytes from `from`.
    async fn finish(&self, client: &Client, from: usize) -> Response<Incoming> {
        let offset = from.to_string();
        let headers = [
            ("repr-digest", self.digest.as_str()),
            ("upload-offset", offset.as_str()),
        ];
        client
            .send_with(Method::PUT, self.path, &headers, self.bytes.slice(from..))
            .await
    }
}

fn partials(test: &TestHost) -> PathBuf {
    test.folder.path().join("state/partials")
}

fn partial_count(test: &TestHost) -> usize {
    std::fs::read_dir(partials(test)).unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_upload_is_resumed() {
    let test = TestHost::start().await;
    for upload in [Upload::model(0), Upload::new("/v1/guests/prefix", stock_guest())] {
        let first = upload.bytes.len() / 3;
        let second = upload.bytes.len() / 2;
        assert_eq!(upload.offset(&test.client).await, (0, false));
        upload.broken(&test, 0, first).await;
        upload.broken(&test, first, second).await;
        let answer = upload.finish(&test.client, second).await;
        assert_eq!(answer.status(), StatusCode::CREATED, "{:?}", body(answer).await);
        let size = upload.bytes.len() as u64;
        assert_eq!(upload.offset(&test.client).await, (size, true));
        assert_eq!(partial_count(&test), 0, "the partial upload is removed");
    }
    let (_, info) = test.client.get::<ModelInfo>(MODEL).await;
    assert_eq!(info.sha256, digest_of(&Upload::model(0).digest).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn partial_uploads_survive_a_restart() {
    let mut test = TestHost::start().await;
    let upload = Upload::model(0);
    upload.broken(&test, 0, BROKEN_AT).await;
    // Another upload is in flight when the host shuts down.
    let open = Upload::model(1);
    let stream = open.begin(&test, 0, BROKEN_AT).await;
    let stopped = test.host.take().unwrap();
    stopped.shutdown(Duration::from_millis(200)).await;
    drop(stream);
    let test = TestHost::start_in(test.folder, |_| ()).await;
    assert_eq!(upload.offset(&test.client).await.0, BROKEN_AT as u64);
    let answer = upload.finish(&test.client, BROKEN_AT).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    let (came, _) = open.offset(&test.client).await;
    let answer = open.finish(&test.client, came as usize).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_resumes_only_at_the_hosts_offset() {
    let test = TestHost::start().await;
    let upload = Upload::model(0);
    upload.broken(&test, 0, BROKEN_AT).await;
    for wrong in [BROKEN_AT - 1, BROKEN_AT + 1] {
        let answer = upload.finish(&test.http2(), wrong).await;
        assert_eq!(answer.status(), StatusCode::CONFLICT);
        assert_eq!(answer.headers()["upload-offset"], BROKEN_AT.to_string());
        let error: ErrorBody = serde_json::from_slice(&body(answer).await).unwrap();
        assert!(error.message.contains(&BROKEN_AT.to_string()), "{error}");
    }
    let answer = upload.finish(&test.client, 0).await;
    assert_eq!(
        answer.status(),
        StatusCode::CREATED,
        "an upload can always restart"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_another_digest_are_refused_and_not_kept() {
    let test = TestHost::start().await;
    let upload = Upload::model(0);
    let other = Upload::model(1);
    let mixed = Upload {
        digest: other.digest.clone(),
        ..Upload::model(0)
    };
    mixed.broken(&test, 0, BROKEN_AT).await;
    let answer = other.finish(&test.client, BROKEN_AT).await;
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    let error: ErrorBody = serde_json::from_slice(&body(answer).await).unwrap();
    assert!(
        error.message.contains("SHA-256") && error.message.contains("start the upload again"),
        "{error}"
    );
    assert_eq!(other.offset(&test.client).await, (0, false));
    assert_eq!(partial_count(&test), 0);
    assert_eq!(
        test.client.send(Method::GET, MODEL, "").await.status(),
        StatusCode::NOT_FOUND
    );
    for upload in [other, upload] {
        let answer = upload.finish(&test.client, 0).await;
        assert_eq!(answer.status(), StatusCode::CREATED);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_headers_are_refused_by_name() {
    let test = TestHost::start().await;
    let upload = Upload::model(0);
    let digest = upload.digest.as_str();
    for (headers, word) in [
        (vec![("repr-digest", "md5=:AAAA:")], "repr-digest"),
        (vec![("upload-offset", "1")], "repr-digest"),
        (
            vec![("repr-digest", digest), ("upload-offset", "-1")],
            "upload-offset",
        ),
        (
            vec![("repr-digest", digest), ("upload-offset", "18446744073709551615")],
            "the limit",
        ),
    ] {
        let answer = test.client.send_with(Method::PUT, MODEL, &headers, "abc").await;
        assert!(answer.status().is_client_error());
        let error: ErrorBody = serde_json::from_slice(&body(answer).await).unwrap();
        assert!(error.message.contains(word), "{error}");
    }
    assert_eq!(
        test.client.send(Method::HEAD, MODEL, "").await.status(),
        StatusCode::NOT_FOUND,
        "without a digest, HEAD behaves as GET"
    );
    assert_eq!(partial_count(&test), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_upload_counts_as_a_whole_against_the_limit() {
    let test = TestHost::with(|settings| {
        settings.limits.model_bytes = 400_000;
        settings.limits.guest_bytes = 400_000;
    })
    .await;
    let upload = Upload::model(0);
    let stream = Upload {
        bytes: upload.bytes.slice(..400_000),
        ..Upload::model(0)
    };
    stream.broken(&test, 0, BROKEN_AT).await;
    let answer = upload.finish(&test.http2(), BROKEN_AT).await;
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_are_bounded_by_number_bytes_and_age() {
    let uploads: Vec<Upload> = (0..3).map(Upload::model).collect();
    let offsets = async |test: &TestHost| {
        let mut offsets = Vec::new();
        for upload in &uploads {
            offsets.push(upload.offset(&test.client).await.0 as usize);
        }
        offsets
    };
    let few = TestHost::with(|settings| settings.limits.partials = 2).await;
    let small = TestHost::with(|settings| settings.limits.partial_bytes = 2 * BROKEN_AT as u64).await;
    for test in [&few, &small] {
        for upload in &uploads {
            upload.broken(test, 0, BROKEN_AT).await;
        }
        let left = async {
            while partial_count(test) > 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(STUCK, left)
            .await
            .expect("too many partial uploads are stored");
        assert_eq!(
            offsets(test).await,
            [0, BROKEN_AT, BROKEN_AT],
            "the oldest is removed"
        );
    }

    let mut old = few;
    old.host.take().unwrap().shutdown(Duration::from_secs(10)).await;
    let name = format!("{}.default", digest_of(&uploads[1].digest).unwrap());
    let file = partials(&old).join(name);
    let yesterday = SystemTime::now() - Duration::from_secs(25 * 3600);
    let file = std::fs::File::options().write(true).open(file).unwrap();
    file.set_modified(yesterday).unwrap();
    let test = TestHost::start_in(old.folder, |_| ()).await;
    assert_eq!(offsets(&test).await, [0, 0, BROKEN_AT]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clients_with_the_same_bytes_do_not_disturb_each_other() {
    let test = TestHost::start().await;
    let upload = Upload::model(0);
    let mut first = upload.begin(&test, 0, BROKEN_AT).await;
    let begun = async {
        while partial_count(&test) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(STUCK, begun)
        .await
        .expect("the upload did not start");
    // While an upload progresses, other clients cannot take it over.
    let sent = BROKEN_AT + 1000;
    first.write_all(&upload.bytes[BROKEN_AT..sent]).await.unwrap();
    let answer = upload.finish(&test.http2(), 0).await;
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(answer.headers().contains_key("retry-after"));
    first.write_all(&upload.bytes[sent..]).await.unwrap();
    let mut head = [0; 12];
    first.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 201");
    let size = upload.bytes.len() as u64;
    assert_eq!(upload.offset(&test.client).await, (size, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_upload_is_replaced() {
    let test = TestHost::start().await;
    let upload = Upload::model(0);
    let silent = upload.begin(&test, 0, BROKEN_AT).await;
    let taken_over = async {
        loop {
            let (from, _) = upload.offset(&test.client).await;
            let answer = upload.finish(&test.http2(), from as usize).await;
            match answer.status() {
                StatusCode::CREATED => return,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::CONFLICT => {}
                other => panic!("{other}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(STUCK, taken_over)
        .await
        .expect("the silent upload was not replaced");
    drop(silent);
    assert_eq!(partial_count(&test), 0);
}
