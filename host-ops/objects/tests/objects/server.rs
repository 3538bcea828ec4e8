//! S3 server in this process, with faults on demand.

use crate::contents::Contents;
use bytes::Bytes;
use frostline_objects::Store;
use futures::{StreamExt, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// Fault of a request for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The request succeeds.
    None,
    /// 503 SlowDown.
    SlowDown,
    /// 403 AccessDenied.
    Denied,
    /// The connection is reset before the answer.
    Reset,
    /// No answer is ever sent.
    Stall,
    /// The body stalls halfway.
    StallHalfway,
    /// The first half of the body is sent, then the connection is reset.
    Truncate,
}

/// HTTP server on a separate port, which stops on drop.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// Answers every request with `answer`. An error resets the connection.
    pub(crate) async fn start<F>(answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static) -> Self
    where
        F: Future<Output = io::Result<Answer>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                // Without this, small answers wait for the client's acknowledgement.
                stream.set_nodelay(true).unwrap();
                // Closing a connection resets it, like a server that crashes.
                stream.set_zero_linger().unwrap();
                let answer = answer.clone();
                connections
                    .spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)));
            }
        });
        Self { address, task }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Requests received and faults to produce.
#[derive(Debug, Default)]
struct Script {
    faults: VecDeque<Fault>,
    /// Faults of the first requests for objects, by the end of their addresses.
    first: HashMap<String, Fault>,
    gets: usize,
    /// Fault for every request.
    all: Option<Fault>,
}

/// S3 server that accepts the keys `id` and `key`.
pub(crate) struct S3Server {
    pub(crate) contents: Contents,
    script: Arc<Mutex<Script>>,
    server: Server,
}

impl S3Server {
    pub(crate) async fn start() -> Self {
        let contents = Contents::default();
        let mut service = S3ServiceBuilder::new(contents.clone());
        service.set_auth(SimpleAuth::from_single("id", "key"));
        let service = service.build();
        let script: Arc<Mutex<Script>> = Arc::default();
        let shared = Arc::clone(&script);
        let server =
            Server::start(move |request| answer(service.clone(), Arc::clone(&shared), request)).await;
        Self {
            contents,
            script,
            server,
        }
    }

    /// Sets the faults of the next requests for objects (GET, not lists), in order. Later requests succeed.
    pub(crate) fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        let mut script = self.script.lock().unwrap();
        script.faults = faults.into_iter().collect();
        script.gets = 0;
    }

    /// Sets the fault of the first request for each of these keys. Later requests for them succeed.
    pub(crate) fn fail_first(&self, faults: impl IntoIterator<Item = (String, Fault)>) {
        let by_path = faults.into_iter().map(|(key, fault)| (format!("/{key}"), fault));
        self.script.lock().unwrap().first = by_path.collect();
    }

    /// Sets the fault for all further requests.
    pub(crate) fn fail_all(&self, fault: Fault) {
        self.script.lock().unwrap().all = Some(fault);
    }

    /// Returns the number of requests for objects since the last [`S3Server::fail`].
    pub(crate) fn gets(&self) -> usize {
        self.script.lock().unwrap().gets
    }

    pub(crate) fn open(&self, root: &str) -> Store {
        self.open_as(root, "id", "key")
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.server.address)
    }

    pub(crate) fn open_as(&self, root: &str, id: &str, key: &str) -> Store {
        let endpoint = self.endpoint();
        let settings = [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", id),
            ("AWS_SECRET_ACCESS_KEY", key),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Store::open_with(root, settings).unwrap()
    }
}

async fn answer(
    service: S3Service,
    script: Arc<Mutex<Script>>,
    request: Request<Incoming>,
) -> io::Result<Answer> {
    let fault = fault(&script, &request);
    match fault {
        Fault::SlowDown => return Ok(refusal(StatusCode::SERVICE_UNAVAILABLE, "SlowDown")),
        Fault::Denied => return Ok(refusal(StatusCode::FORBIDDEN, "AccessDenied")),
        Fault::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
        Fault::Stall => std::future::pending().await,
        Fault::None | Fault::StallHalfway | Fault::Truncate => {}
    }
    let answer = service
        .call(request.map(s3s::Body::from))
        .await
        .map_err(io::Error::other)?;
    let (parts, body) = answer.into_parts();
    let body = BodyExt::collect(body).await.map_err(io::Error::other)?.to_bytes();
    let half = stream::iter([Ok(Frame::data(body.slice(..body.len() / 2)))]);
    let body = match fault {
        Fault::StallHalfway => StreamBody::new(half.chain(stream::pending())).boxed_unsync(),
        Fault::Truncate => {
            let reset = stream::iter([Err(io::ErrorKind::ConnectionReset.into())]);
            StreamBody::new(half.chain(reset)).boxed_unsync()
        }
        _ => whole(body),
    };
    Ok(Response::from_parts(parts, body))
}

fn refusal(status: StatusCode, code: &str) -> Answer {
    let mut answer = Response::new(whole(format!("<Error><Code>{code}</Code></Error>")));
    *answer.status_mut() = status;
    answer
}

fn fault(script: &Mutex<Script>, request: &Request<Incoming>) -> Fault {
    let is_list = request
        .uri()
        .query()
        .is_some_and(|query| query.contains("list-type"));
    let mut script = script.lock().unwrap();
    if let Some(fault) = script.all {
        return fault;
    }
    if request.method() != Method::GET || is_list {
        return Fault::None;
    }
    script.gets += 1;
    let path = request.uri().path();
    let first = script
        .first
        .keys()
        .find(|end| path.ends_with(end.as_str()))
        .cloned();
    first
        .and_then(|key| script.first.remove(&key))
        .or_else(|| script.faults.pop_front())
        .unwrap_or(Fault::None)
}

pub(crate) fn whole(body: impl Into<Bytes>) -> UnsyncBoxBody<Bytes, io::Error> {
    Full::new(body.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A body that never ends.
pub(crate) fn endless() -> UnsyncBoxBody<Bytes, io::Error> {
    let piece = || Ok(Frame::data(Bytes::from_static(&[b' '; 16 << 10])));
    StreamBody::new(stream::repeat_with(piece)).boxed_unsync()
}
