//! A fake bucket `photos` with configurable failures. As with S3, error responses repeat the request.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// Behavior of the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behavior {
    Fine,
    /// 503 SlowDown for all requests.
    Busy,
    /// 403 AccessDenied for all requests.
    Denied,
    /// 403 AccessDenied when reading objects; listing succeeds.
    Private,
    /// 404 NoSuchBucket for all requests.
    Gone,
}

/// HTTP server that stops on drop.
pub(crate) struct Bucket {
    pub(crate) address: SocketAddr,
    mood: Arc<Mutex<Behavior>>,
    task: JoinHandle<()>,
}

impl Bucket {
    /// Starts a bucket with a single object, `set/0.png`.
    pub(crate) async fn start(photo: Bytes) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mood = Arc::new(Mutex::new(Behavior::Fine));
        let felt = Arc::clone(&mood);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let felt = Arc::clone(&felt);
                let photo = photo.clone();
                let answer = service_fn(move |request| {
                    let answer = answer(*felt.lock().unwrap(), &request, &photo);
                    async move { Ok::<_, io::Error>(answer) }
                });
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        Self { address, mood, task }
    }

    pub(crate) fn set_behavior(&self, mood: Behavior) {
        *self.mood.lock().unwrap() = mood;
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn answer(mood: Behavior, request: &Request<Incoming>, photo: &Bytes) -> Response<Full<Bytes>> {
    let query = request.uri().query().unwrap_or_default();
    let lists = query.contains("list-type");
    let refused = match mood {
        Behavior::Fine => None,
        Behavior::Busy => Some((StatusCode::SERVICE_UNAVAILABLE, "SlowDown")),
        Behavior::Private if lists => None,
        Behavior::Denied | Behavior::Private => Some((StatusCode::FORBIDDEN, "AccessDenied")),
        Behavior::Gone => Some((StatusCode::NOT_FOUND, "NoSuchBucket")),
    };
    let (status, body) = match refused {
        Some((status, code)) => {
            let asked = format!("{:?} {:?}", request.uri(), request.headers());
            (
                status,
                format!("<Error><Code>{code}</Code><StringToSign>{asked}</StringToSign></Error>").into(),
            )
        }
        None if lists && query.contains("prefix=") && !query.contains("prefix=set") => {
            let list = "<ListBucketResult><Name>photos</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>";
            (StatusCode::OK, list.into())
        }
        None if lists => {
            let size = photo.len();
            let entry = format!(
                "<Contents><Key>set/0.png</Key><LastModified>2026-11-26T00:00:00.000Z</LastModified><ETag>\"1\"</ETag>\
                 <Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            );
            let list =
                "<ListBucketResult><Name>photos</Name><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated>";
            (StatusCode::OK, format!("{list}{entry}</ListBucketResult>").into())
        }
        None => (StatusCode::OK, photo.clone()),
    };
    let length = body.len();
    let body = if *request.method() == Method::HEAD {
        Bytes::new()
    } else {
        body
    };
    let mut answer = Response::builder()
        .status(status)
        .header("etag", "\"1\"")
        .header("last-modified", "Thu, 26 Nov 2026 00:00:00 GMT");
    if *request.method() == Method::HEAD {
        answer = answer.header("content-length", length);
    }
    answer.body(Full::new(body)).unwrap()
}
