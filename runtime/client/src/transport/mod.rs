//! HTTP/2 connection to one host. All waits have deadlines and all body bytes are counted.

mod answer;
mod call;
mod connections;
mod peer;
mod refusal;

pub(crate) use answer::Answer;
pub(crate) use call::{Body, Call, CallBody};
pub(crate) use connections::CONNECTIONS;
pub use connections::Connector;

use crate::address::any_of;
use crate::meter::ByteMeter;
use crate::retry::HostActivity;
use crate::trace::Trace;
use crate::{ClientError, Deadlines, Token, Trust};
use bytes::Bytes;
use connections::Connections;
use frostline_primitives::Backoff;
use frostline_wire::{ErrorClass, TRACEPARENT};
use http::{HeaderValue, Method, Request};
use peer::Peer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tracing::{Span, field};
use url::{Host, Url};

/// Maximum refusal size in bytes. A refusal contains a class and a message.
const MAX_REFUSAL: u64 = 64 << 10;
/// Number of attempts at a busy host for calls other than extractions, the wait if the host does not provide
/// one, and the maximum wait.
const BUSY_ATTEMPTS: u32 = 5;
const BUSY_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Client of one host. Clones share connections and the byte count.
#[derive(Clone)]
pub(crate) struct Transport {
    host: Arc<Endpoint>,
    meter: ByteMeter,
    /// Trace of the calls.
    trace: Option<Trace>,
}

struct Endpoint {
    base: Url,
    token: Option<Token>,
    connections: Connections,
    peer: Arc<Peer>,
    /// Total number of answers, including refusals.
    answers: AtomicU64,
}

/// Location of a host.
#[derive(Clone, Copy)]
pub(crate) struct Address<'a> {
    pub(crate) url: &'a str,
    /// Name in messages, if not the URL.
    pub(crate) name: Option<&'a str>,
    /// Name in the certificate, if not the URL's host.
    pub(crate) verified_as: Option<&'a str>,
}

impl<'a> Address<'a> {
    pub(crate) fn from_url(url: &'a str) -> Self {
        Self {
            url,
            name: None,
            verified_as: None,
        }
    }
}

impl Transport {
    pub(crate) fn new(
        address: Address<'_>,
        token: Option<Token>,
        trust: &Trust,
        deadlines: Deadlines,
    ) -> Result<Self, ClientError> {
        let Address {
            url,
            name,
            verified_as,
        } = address;
        let base = parsed(url).map_err(|reason| ClientError::address(url, reason))?;
        let connector = trust.connector(base.scheme() == "https", verified_as, deadlines.connect)?;
        let connections = Connections::new(&connector, deadlines);
        let name = name.unwrap_or(base.as_str().trim_end_matches('/')).to_owned();
        Ok(Self::over(connections, base, name, token, deadlines))
    }

    /// Creates a transport to the host with this Unix socket.
    pub(crate) fn local(socket: &Path, deadlines: Deadlines) -> Result<Self, ClientError> {
        let name = socket.display().to_string();
        let base = Url::parse("http://localhost").map_err(|error| ClientError::Address {
            url: name.clone(),
            reason: error.into(),
        })?;
        let connections = Connections::Socket(socket.to_owned());
        Ok(Self::over(connections, base, name, None, deadlines))
    }

    fn over(
        connections: Connections,
        base: Url,
        name: String,
        token: Option<Token>,
        deadlines: Deadlines,
    ) -> Self {
        let endpoint = Endpoint {
            base,
            token,
            connections,
            peer: Arc::new(Peer { name, deadlines }),
            answers: AtomicU64::new(0),
        };
        Self {
            host: Arc::new(endpoint),
            meter: ByteMeter::default(),
            trace: Trace::of_process(),
        }
    }

    /// Returns this transport with calls that belong to `trace`, if set.
    pub(crate) fn traced(self, trace: Option<&Trace>) -> Self {
        Self {
            trace: trace.copied().or(self.trace),
            ..self
        }
    }

    /// Returns this transport with another byte count.
    pub(crate) fn counting_into(&self, meter: &ByteMeter) -> Self {
        Self {
            host: Arc::clone(&self.host),
            meter: meter.clone(),
            trace: self.trace,
        }
    }

    pub(crate) fn meter(&self) -> &ByteMeter {
        &self.meter
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.host.peer
    }

    /// Returns the current host activity.
    pub(crate) fn seen(&self) -> HostActivity {
        HostActivity {
            answers: self.host.answers.load(Ordering::SeqCst),
            observed: Instant::now(),
        }
    }

    pub(crate) fn is_loopback(&self) -> bool {
        match self.host.base.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        }
    }

    /// Sets the number of connections for extractions.
    pub(crate) fn use_connections(&self, count: usize) {
        self.host.connections.use_first(count);
    }

    /// Returns the next connection, in turn.
    pub(crate) fn next_connection(&self) -> usize {
        self.host.connections.next()
    }

    /// Sends a call and waits for the head of the answer. Refusals become errors.
    pub(crate) async fn send(&self, call: Call<'_>) -> Result<Answer, ClientError> {
        self.send_over(0, call).await
    }

    /// Like [`Transport::send`], over a specific connection.
    pub(crate) async fn send_over(&self, connection: usize, call: Call<'_>) -> Result<Answer, ClientError> {
        let Peer { deadlines, .. } = self.peer();
        tokio::time::timeout(deadlines.answer, self.exchange(connection, call))
            .await
            .map_err(|_| self.peer().silent("answering a request", deadlines.answer))?
    }

    /// Like [`Transport::send`] but without deadline. The caller monitors the progress of large bodies.
    pub(crate) async fn upload(&self, call: Call<'_>) -> Result<Answer, ClientError> {
        self.exchange(0, call).await
    }

    /// Returns the current `Authorization` header.
    pub(crate) fn token(&self) -> Option<HeaderValue> {
        self.host.token.as_ref().map(Token::header)
    }

    /// Sends a call. If the host refuses the token and a new token is available, the call is repeated once.
    async fn exchange(&self, connection: usize, call: Call<'_>) -> Result<Answer, ClientError> {
        let token = self.token();
        let again = call.again();
        let refused = match self.exchange_once(connection, call, token.as_ref()).await {
            Err(error) if error.is_unauthorized() => error,
            answered => return answered,
        };
        let renewed = match (&self.host.token, &token) {
            (Some(held), Some(token)) => held.is_renewed(token).await,
            _ => false,
        };
        match again {
            Some(call) if renewed => {
                let token = self.token();
                self.exchange_once(connection, call, token.as_ref()).await
            }
            _ => Err(refused),
        }
    }

    async fn exchange_once(
        &self,
        connection: usize,
        call: Call<'_>,
        token: Option<&HeaderValue>,
    ) -> Result<Answer, ClientError> {
        let Endpoint {
            base,
            connections,
            peer,
            answers,
            ..
        } = &*self.host;
        let limit = call.answer_limit;
        let mut request = call.request(base, token)?;
        let span = self.tell_trace(&mut request);
        let sent = connections.send(connection, request, peer).await;
        let (head, body) = sent
            .inspect_err(|error| {
                span.record("error", field::display(error));
            })?
            .into_parts();
        span.record("status", head.status.as_u16());
        answers.fetch_add(1, Ordering::SeqCst);
        let status = head.status;
        let headers = head.headers.clone();
        let limit = if status.is_success() { limit } else { MAX_REFUSAL };
        let answer = Answer {
            head,
            body,
            peer: Arc::clone(peer),
            meter: self.meter.clone(),
            limit,
            read: 0,
            span,
        };
        if status.is_success() {
            return Ok(answer);
        }
        let body = answer.whole().await.unwrap_or_default();
        Err(refusal::refusal(&peer.name, status, &headers, &body))
    }

    /// Adds the trace context to a request and returns the span of the request.
    fn tell_trace(&self, request: &mut Request<Body>) -> Span {
        let told = self.trace.and_then(|trace| {
            let own = trace.request()?;
            let header = HeaderValue::from_str(&own.to_string()).ok()?;
            let span = trace.call(own, request);
            request.headers_mut().insert(TRACEPARENT, header);
            Some(span)
        });
        told.unwrap_or_else(Span::none)
    }

    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, ClientError> {
        self.ask_again_while_busy(path, || Call {
            query,
            ..Call::new(Method::GET, path)
        })
        .await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = encode(request)?;
        self.ask_again_while_busy(path, || Call::new(Method::POST, path).json(body.clone()))
            .await
    }

    /// Repeats a call while the host is busy, up to [`BUSY_ATTEMPTS`] times. Draining hosts are not retried,
    /// because another host may be available.
    async fn ask_again_while_busy<'a, T: DeserializeOwned>(
        &self,
        path: &str,
        call: impl Fn() -> Call<'a>,
    ) -> Result<T, ClientError> {
        let mut backoff = Backoff::new(BUSY_WAIT, LONGEST_WAIT);
        for _ in 1..BUSY_ATTEMPTS {
            match self.send(call()).await {
                Err(ClientError::Refused {
                    class: ErrorClass::Busy,
                    retry_after,
                    ..
                }) => {
                    let wait = match retry_after {
                        Some(wait) => backoff.asked(wait.min(LONGEST_WAIT)),
                        None => backoff.wait(),
                    };
                    tokio::time::sleep(wait).await;
                }
                answered => return answered?.json(path).await,
            }
        }
        self.send(call()).await?.json(path).await
    }
}

/// Encodes a request as JSON.
pub(crate) fn encode(request: &impl Serialize) -> Result<Bytes, ClientError> {
    let part = "writing of a request";
    let bytes = serde_json::to_vec(request).map_err(|_| ClientError::Ended { part })?;
    Ok(bytes.into())
}

/// Parses a host's address. A DNS name for multiple hosts is converted into the URL of any one of them. The
/// error describes the problem.
fn parsed(url: &str) -> Result<Url, String> {
    let any = any_of(url);
    let base = Url::parse(any.as_deref().unwrap_or(url))
        .map_err(|error| format!("{error}; use the form http://host:8080"))?;
    if !matches!(base.scheme(), "http" | "https") {
        return Err(format!(
            "unsupported scheme '{}'; use http or https",
            base.scheme()
        ));
    }
    if base.host_str().is_none() || !matches!(base.path(), "" | "/") || base.query().is_some() {
        return Err("it must be a host and a port only, like http://host:8080".to_owned());
    }
    if !base.username().is_empty() || base.password().is_some() {
        return Err("credentials are not allowed in addresses; use a token instead".to_owned());
    }
    Ok(base)
}
