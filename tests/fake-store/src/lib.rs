//! Small S3 server inside the test process, which can inject faults into requests.
#![allow(
    clippy::unwrap_used,
    reason = "only tests use it, and a failed step must fail the test"
)]

use bytes::Bytes;
use frostline_objects::Store;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// Fault injected into a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Process the request.
    None,
    /// Process the request, but close the connection before the response.
    LoseAnswer,
    /// Process the request, but respond with 503, so that the client retries.
    DoneAnd503,
    /// Close the connection without processing the request.
    Break,
    /// Ignore the condition of the request.
    IgnoreCondition,
    /// Respond to conditional requests with 501.
    RefuseCondition,
    /// Store only empty objects.
    Full,
}

/// A received request, with the method and either the key or the query.
pub type Asked = (Method, String);

type Script = dyn Fn(&Asked) -> BoxFuture<'static, Fault> + Send + Sync;

#[derive(Default)]
struct Shared {
    objects: Mutex<BTreeMap<String, Bytes>>,
    asked: Mutex<Vec<Asked>>,
    script: Mutex<Option<Arc<Script>>>,
}

/// A server with the bucket `b`. It runs until dropped.
pub struct S3 {
    shared: Arc<Shared>,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl S3 {
    /// Starts a server on a free port.
    pub async fn start() -> Self {
        let shared: Arc<Shared> = Arc::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let shared = Arc::clone(&served);
                let answer = service_fn(move |request| answer(Arc::clone(&shared), request));
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        Self {
            shared,
            address,
            task,
        }
    }

    /// Returns the URL of the server.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Opens a store with the prefix `state` of the bucket.
    pub fn store(&self) -> Arc<Store> {
        let endpoint = self.endpoint();
        let settings = [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_REGION", "us-east-1"),
            ("AWS_SKIP_SIGNATURE", "true"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Arc::new(Store::open_with("s3://b/state", settings).unwrap())
    }

    /// Sets the function that selects faults.
    pub fn script(&self, script: impl Fn(&Asked) -> Fault + Send + Sync + 'static) {
        self.script_waiting(move |asked| {
            let fault = script(asked);
            Box::pin(async move { fault })
        });
    }

    /// Like [`script`](Self::script), but the function can delay the request.
    pub fn script_waiting(
        &self,
        script: impl Fn(&Asked) -> BoxFuture<'static, Fault> + Send + Sync + 'static,
    ) {
        *self.shared.script.lock().unwrap() = Some(Arc::new(script));
    }

    /// Injects `fault` into the first request that matches `is`.
    pub fn once(&self, fault: Fault, is: impl Fn(&Asked) -> bool + Send + Sync + 'static) {
        let left = Mutex::new(Some(fault));
        self.script(move |asked| match is(asked) {
            true => left.lock().unwrap().take().unwrap_or(Fault::None),
            false => Fault::None,
        });
    }

    /// Stops injecting faults.
    pub fn heal(&self) {
        *self.shared.script.lock().unwrap() = None;
    }

    /// Returns the requests received since the last call.
    pub fn take_requests(&self) -> Vec<Asked> {
        std::mem::take(&mut self.shared.asked.lock().unwrap())
    }

    /// Returns the keys that start with `prefix`.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let objects = self.shared.objects.lock().unwrap();
        let keys = objects.keys().filter(|key| key.starts_with(prefix));
        keys.cloned().collect()
    }

    /// Sets the content of an object.
    pub fn put(&self, key: &str, bytes: impl Into<Bytes>) {
        self.shared
            .objects
            .lock()
            .unwrap()
            .insert(key.to_owned(), bytes.into());
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// True if the request creates a change in the log.
pub fn creates_change((method, key): &Asked) -> bool {
    method == Method::PUT && key.starts_with("log/")
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let path = percent_decode_str(parts.uri.path())
        .decode_utf8_lossy()
        .into_owned();
    let key = path.strip_prefix("/b/state/").unwrap_or_default().to_owned();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let asked = (
        parts.method.clone(),
        if key.is_empty() {
            query.clone()
        } else {
            key.clone()
        },
    );
    shared.asked.lock().unwrap().push(asked.clone());
    let script = shared.script.lock().unwrap().clone();
    let fault = match script {
        Some(script) => script(&asked).await,
        None => Fault::None,
    };
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let mut objects = shared.objects.lock().unwrap();
    let condition = parts.headers.contains_key("if-none-match") && fault != Fault::IgnoreCondition;
    let there = objects.get(&key).cloned();
    let (status, body) = match (&parts.method, there) {
        _ if fault == Fault::Break => return Err(io::ErrorKind::ConnectionReset.into()),
        (&Method::PUT, _) if condition && fault == Fault::RefuseCondition => {
            (StatusCode::NOT_IMPLEMENTED, error("NotImplemented"))
        }
        (&Method::PUT, _) if fault == Fault::Full && !body.is_empty() => {
            (StatusCode::BAD_REQUEST, error("QuotaExceeded"))
        }
        (&Method::PUT, Some(_)) if condition => {
            (StatusCode::PRECONDITION_FAILED, error("PreconditionFailed"))
        }
        (&Method::PUT, _) => {
            objects.insert(key, body);
            (StatusCode::OK, Bytes::new())
        }
        (&Method::POST, _) => {
            let body = String::from_utf8_lossy(&body);
            let mut text = String::new();
            for part in body.split("<Key>").skip(1) {
                let key = part.split("</Key>").next().unwrap();
                objects.remove(key.strip_prefix("state/").unwrap());
                text += &format!("<Deleted><Key>{key}</Key></Deleted>");
            }
            (
                StatusCode::OK,
                format!("<DeleteResult>{text}</DeleteResult>").into(),
            )
        }
        (_, Some(bytes)) => (StatusCode::OK, bytes),
        (_, None) if path.trim_end_matches('/') == "/b" => (StatusCode::OK, listing(&objects, &query)),
        (_, None) => (StatusCode::NOT_FOUND, error("NoSuchKey")),
    };
    match fault {
        Fault::LoseAnswer => Err(io::ErrorKind::ConnectionReset.into()),
        Fault::DoneAnd503 => Ok(respond(StatusCode::SERVICE_UNAVAILABLE, error("SlowDown"))),
        _ => Ok(respond(status, body)),
    }
}

fn respond(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert("etag", "\"one\"".parse().unwrap());
    headers.insert("last-modified", "Sat, 21 Nov 2026 10:00:00 GMT".parse().unwrap());
    response
}

fn error(code: &str) -> Bytes {
    format!("<Error><Code>{code}</Code></Error>").into()
}

fn listing(objects: &BTreeMap<String, Bytes>, query: &str) -> Bytes {
    let query: BTreeMap<_, _> = url::form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    let after = query
        .get("start-after")
        .map_or("", |after| after.strip_prefix("state/").unwrap());
    let most: usize = query.get("max-keys").map_or(1000, |most| most.parse().unwrap());
    let mut found = objects.iter().filter(|(key, _)| key.as_str() > after);
    let mut text = String::from("<ListBucketResult>");
    for (key, bytes) in found.by_ref().take(most) {
        text += &format!(
            "<Contents><Key>state/{key}</Key><Size>{}</Size><ETag>\"one\"</ETag>\
             <LastModified>2026-11-21T10:00:00Z</LastModified></Contents>",
            bytes.len()
        );
    }
    if found.next().is_some() {
        text += "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>";
    }
    (text + "</ListBucketResult>").into()
}
