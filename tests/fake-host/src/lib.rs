//! Scripted host inside the test process, for tests of clients.
#![allow(
    clippy::unwrap_used,
    reason = "only tests use it, and a failed step must fail the test"
)]

pub mod numbered;

use bytes::Bytes;
use frostline_tensor::{OpError, Tensor};
use frostline_wire::{
    ActivationWriter, Compression, ErrorBody, ErrorClass, ExtractionRequest, RowFailure, RowFormat,
};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// Answer of the scripted host to a request.
pub enum Reply {
    /// Sends these chunks and ends the body.
    Whole(Vec<Bytes>),
    /// Sends these chunks and resets the stream.
    Cut(Vec<Bytes>),
    /// Sends the chunks of a stream.
    Stream(BoxStream<'static, Bytes>),
    /// Sends these chunks and then stalls.
    Stuck(Vec<Bytes>),
    /// Sends these headers but no body.
    Head(Vec<(&'static str, String)>),
    /// Sends this status and body.
    Answered(u16, Bytes),
    /// Refuses with a status, a class and an optional `Retry-After` in seconds.
    Refused(u16, ErrorClass, Option<u64>),
}

impl Reply {
    /// Serializes a value as JSON.
    pub fn json(value: &impl serde::Serialize) -> Self {
        Self::Whole(vec![serde_json::to_vec(value).unwrap().into()])
    }
}

/// Scripted host, stopped on drop.
pub struct FakeHost {
    /// URL of the host.
    pub url: String,
    calls: Arc<AtomicUsize>,
    sent: Arc<AtomicU64>,
    _accept: AbortOnDropHandle<()>,
}

impl FakeHost {
    /// Starts a host on a free port. `script` is called with the number of the request, from 0, and the
    /// request.
    pub async fn start(script: impl Fn(usize, &Parts, &[u8]) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0", script).await
    }

    /// Returns an address without a listener.
    pub fn free_address() -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    }

    /// Like [`FakeHost::start`], at a specific address. Connections end when the host is dropped.
    pub async fn start_at(
        address: &str,
        script: impl Fn(usize, &Parts, &[u8]) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let calls = Arc::new(AtomicUsize::new(0));
        let sent = Arc::new(AtomicU64::new(0));
        let bodies = Arc::clone(&sent);
        let (script, counter) = (Arc::new(script), Arc::clone(&calls));
        let accept = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (script, counter) = (Arc::clone(&script), Arc::clone(&counter));
                let bodies = Arc::clone(&bodies);
                let service = service_fn(move |request: Request<Incoming>| {
                    let (script, number) = (Arc::clone(&script), counter.fetch_add(1, Ordering::SeqCst));
                    let bodies = Arc::clone(&bodies);
                    async move {
                        let (parts, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        Ok::<_, Infallible>(match parts.method {
                            Method::HEAD => respond(script(number, &parts, &body)),
                            _ => count(respond(script(number, &parts, &body)), bodies),
                        })
                    }
                });
                connections.spawn(async move {
                    let _ = Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self {
            url,
            calls,
            sent,
            _accept: AbortOnDropHandle::new(accept),
        }
    }

    /// Returns the number of body bytes sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    /// Returns the number of received requests.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

/// Counts the bytes of sent bodies.
fn count(response: Response<Body>, sent: Arc<AtomicU64>) -> Response<Body> {
    response.map(|body| {
        let counted = body.map_frame(move |frame| {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            sent.fetch_add(bytes as u64, Ordering::SeqCst);
            frame
        });
        BodyExt::boxed_unsync(counted)
    })
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

fn respond(reply: Reply) -> Response<Body> {
    let response = Response::builder().header("content-type", frostline_wire::ARROW_STREAM);
    let pieces = |pieces: Vec<Bytes>| stream::iter(pieces.into_iter().map(|piece| Ok(Frame::data(piece))));
    match reply {
        Reply::Whole(all) => response
            .body(BodyExt::boxed_unsync(StreamBody::new(pieces(all))))
            .unwrap(),
        Reply::Cut(some) => {
            let reset = stream::once(async {
                // Let the chunks arrive before the reset.
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                Err(std::io::Error::other("reset"))
            });
            response
                .body(BodyExt::boxed_unsync(StreamBody::new(pieces(some).chain(reset))))
                .unwrap()
        }
        Reply::Stream(pieces) => {
            let pieces = pieces.map(|piece| Ok(Frame::data(piece)));
            response
                .body(BodyExt::boxed_unsync(StreamBody::new(pieces)))
                .unwrap()
        }
        Reply::Stuck(some) => {
            let body = StreamBody::new(pieces(some).chain(stream::pending()));
            response.body(BodyExt::boxed_unsync(body)).unwrap()
        }
        Reply::Head(headers) => {
            let mut response = Response::builder().status(204);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response
                .body(BodyExt::boxed_unsync(StreamBody::new(pieces(vec![]))))
                .unwrap()
        }
        Reply::Answered(status, body) => {
            let body = StreamBody::new(pieces(vec![body]));
            response.status(status).body(BodyExt::boxed_unsync(body)).unwrap()
        }
        Reply::Refused(status, class, retry_after) => {
            let body = ErrorBody {
                class,
                message: "as scripted".to_owned(),
            };
            let mut response = Response::builder().status(status);
            if let Some(seconds) = retry_after {
                response = response.header("retry-after", seconds.to_string());
            }
            let body = Bytes::from(serde_json::to_vec(&body).unwrap());
            response
                .body(BodyExt::boxed_unsync(StreamBody::new(pieces(vec![body]))))
                .unwrap()
        }
    }
}

/// Answer to an extraction, with a message per sample in the order of calls.
pub struct Answer {
    writer: ActivationWriter,
    pieces: Vec<Bytes>,
}

impl Answer {
    /// Creates an empty answer.
    pub fn new(format: RowFormat) -> Self {
        Self::compressed(format, Compression::None)
    }

    /// Creates an empty compressed answer.
    pub fn compressed(format: RowFormat, compression: Compression) -> Self {
        Self {
            writer: ActivationWriter::new(format, compression).unwrap(),
            pieces: Vec::new(),
        }
    }

    /// Adds a row with these values.
    pub fn row(self, position: u32, values: Vec<f32>) -> Self {
        self.tensor(position, Tensor::f32([1, values.len()], values).unwrap())
    }

    /// Adds a tensor with one row.
    pub fn tensor(mut self, position: u32, tensor: Tensor) -> Self {
        self.pieces
            .extend(self.writer.tensor(&[position], tensor).unwrap());
        self
    }

    /// Adds a row with the bytes of an object.
    pub fn object(mut self, position: u32, bytes: Bytes) -> Self {
        self.pieces
            .extend(self.writer.objects(&[(position, bytes)]).unwrap());
        self
    }

    /// Adds a row with an error.
    pub fn failure(mut self, position: u32, error: OpError) -> Self {
        self.pieces
            .extend(self.writer.failures(&[RowFailure { position, error }]).unwrap());
        self
    }

    /// Returns all chunks without the end marker.
    pub fn unfinished(self) -> Vec<Bytes> {
        self.pieces
    }

    /// Appends the end marker and returns the reply.
    pub fn finished(mut self) -> Reply {
        self.pieces.extend(self.writer.finish().unwrap());
        Reply::Whole(self.pieces)
    }
}

/// Parses the body of an extraction request.
pub fn extraction(body: &[u8]) -> ExtractionRequest {
    serde_json::from_slice(body).unwrap()
}
