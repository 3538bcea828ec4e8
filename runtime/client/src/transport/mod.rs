mod connections;
mod refusal;

pub(crate) use connections::CONNECTIONS;

use crate::error::{chain, said_goodbye};
use crate::{ByteMeter, ClientError, Deadlines, Token, Trust};
use bytes::{Bytes, BytesMut};
use connections::Connections;
use frostline_batching::Backoff;
use frostline_wire::ErrorClass;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::BoxBody;
use hyper::body::{Frame, Incoming};
use std::convert::Infallible;
use std::time::Duration;
use url::Url;

pub(crate) type RequestBody = BoxBody<Bytes, Infallible>;

/// The largest JSON answer that is read: a page of a listing has some thousand keys of at most 1 KiB.
const MAX_ANSWER: usize = 16 << 20;
/// The largest refusal that is read: a class and a sentence.
const MAX_REFUSAL: usize = 64 << 10;
/// How often a host that says "busy" is asked again by a call that is not an extraction, the wait where it names none, and the longest
/// it may name.
const BUSY_ATTEMPTS: u32 = 5;
const BUSY_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Sends requests to one host over HTTP/2 and reads the answers, each wait under a deadline.
pub(crate) struct Transport {
    base: Url,
    host: String,
    token: Option<Token>,
    connections: Connections,
    pub(crate) deadlines: Deadlines,
}

impl Transport {
    pub(crate) fn new(
        url: &str,
        token: Option<Token>,
        trust: &Trust,
        deadlines: Deadlines,
    ) -> Result<Self, ClientError> {
        let refused = |reason: String| ClientError::Address {
            url: url.to_owned(),
            reason,
        };
        let base =
            Url::parse(url).map_err(|error| refused(format!("{error}; write it like http://host:8080")))?;
        let encrypted = match base.scheme() {
            "http" => false,
            "https" => true,
            other => {
                return Err(refused(format!(
                    "the scheme '{other}' is not supported, only http and https are"
                )));
            }
        };
        if base.host_str().is_none() || !matches!(base.path(), "" | "/") || base.query().is_some() {
            return Err(refused(
                "it must be a host and a port only, like http://host:8080".to_owned(),
            ));
        }
        let host = base.as_str().trim_end_matches('/').to_owned();
        Ok(Self {
            base,
            host,
            token,
            connections: Connections::new(encrypted, trust, deadlines)?,
            deadlines,
        })
    }

    /// The same under another name.
    pub(crate) fn called(self, host: &str) -> Self {
        Self {
            host: host.to_owned(),
            ..self
        }
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn is_loopback(&self) -> bool {
        match self.base.host() {
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            Some(url::Host::Domain(name)) => name == "localhost",
            None => false,
        }
    }

    /// Sends extractions over so many connections from now on.
    pub(crate) fn use_connections(&self, count: usize) {
        self.connections.use_first(count);
    }

    /// The connection whose turn it is.
    pub(crate) fn next_connection(&self) -> usize {
        self.connections.next()
    }

    /// Sends one request and waits for the head of its answer; refusals become errors.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<(&'static str, RequestBody)>,
        meter: &ByteMeter,
    ) -> Result<Response<Incoming>, ClientError> {
        self.send_over(0, method, path, query, body, meter).await
    }

    /// [`Transport::send`] over one of the connections.
    pub(crate) async fn send_over(
        &self,
        connection: usize,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<(&'static str, RequestBody)>,
        meter: &ByteMeter,
    ) -> Result<Response<Incoming>, ClientError> {
        let request = self.request(method, path, query, &[], body)?;
        self.answer(connection, request, meter).await
    }

    /// Asks for the head of an answer alone, busy or not.
    pub(crate) async fn head(
        &self,
        path: &str,
        headers: &[(&'static str, String)],
        meter: &ByteMeter,
    ) -> Result<HeaderMap, ClientError> {
        let request = self.request(Method::HEAD, path, &[], headers, None)?;
        let answer = self.answer(0, request, meter).await?;
        Ok(answer.into_parts().0.headers)
    }

    /// Sends a large body; the caller watches its progress.
    pub(crate) async fn upload(
        &self,
        path: &str,
        headers: &[(&'static str, String)],
        body: (&'static str, RequestBody),
        meter: &ByteMeter,
    ) -> Result<Response<Incoming>, ClientError> {
        let request = self.request(Method::PUT, path, &[], headers, Some(body))?;
        self.exchange(0, request, meter).await
    }

    /// An exchange under the deadline for the head of an answer.
    async fn answer(
        &self,
        connection: usize,
        request: Request<RequestBody>,
        meter: &ByteMeter,
    ) -> Result<Response<Incoming>, ClientError> {
        tokio::time::timeout(self.deadlines.answer, self.exchange(connection, request, meter))
            .await
            .map_err(|_| self.silent("answering a request", self.deadlines.answer))?
    }

    /// Sends a request and waits, with no deadline of its own, for the head of its answer; refusals become errors.
    async fn exchange(
        &self,
        connection: usize,
        request: Request<RequestBody>,
        meter: &ByteMeter,
    ) -> Result<Response<Incoming>, ClientError> {
        let response = self
            .connections
            .get(connection)
            .request(request)
            .await
            .map_err(|error| self.broken(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let body = self.read(body, MAX_REFUSAL, meter).await.unwrap_or_default();
        Err(refusal::refusal(&self.host, head.status, &head.headers, &body))
    }

    /// Sends one request with a JSON body, if any, and reads a JSON answer. A busy host is asked again a few times; one that stops is not:
    /// others may do it now.
    pub(crate) async fn json<T: serde::de::DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Bytes>,
        meter: &ByteMeter,
    ) -> Result<T, ClientError> {
        let (mut attempt, mut backoff) = (1, Backoff::new(BUSY_WAIT, LONGEST_WAIT));
        loop {
            let sent = body.map(|bytes| ("application/json", whole(bytes.clone())));
            match self.send(method.clone(), path, query, sent, meter).await {
                Ok(response) => {
                    let bytes = self.read(response.into_body(), MAX_ANSWER, meter).await?;
                    return serde_json::from_slice(&bytes)
                        .map_err(|error| self.protocol(format!("{path}: {error}")));
                }
                Err(ClientError::Refused {
                    class: ErrorClass::Busy,
                    retry_after,
                    ..
                }) if attempt < BUSY_ATTEMPTS => {
                    attempt += 1;
                    let wait = match retry_after {
                        Some(wait) => backoff.asked(wait.min(LONGEST_WAIT)),
                        None => backoff.wait(),
                    };
                    tokio::time::sleep(wait).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a body to its end, at most `limit` bytes.
    pub(crate) async fn read(
        &self,
        mut body: Incoming,
        limit: usize,
        meter: &ByteMeter,
    ) -> Result<Bytes, ClientError> {
        let mut bytes = BytesMut::new();
        while let Some(chunk) = self.chunk(&mut body, meter).await? {
            if bytes.len() + chunk.len() > limit {
                return Err(self.protocol(format!("an answer of more than {limit} bytes")));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes.freeze())
    }

    /// The next piece of a body, `None` at its clean end.
    pub(crate) async fn chunk(
        &self,
        body: &mut Incoming,
        meter: &ByteMeter,
    ) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = self.frame(body, meter).await? {
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// The next piece of a body or its trailers, `None` at its clean end.
    pub(crate) async fn frame(
        &self,
        body: &mut Incoming,
        meter: &ByteMeter,
    ) -> Result<Option<Frame<Bytes>>, ClientError> {
        let frame = tokio::time::timeout(self.deadlines.idle, body.frame())
            .await
            .map_err(|_| self.silent("sending an answer", self.deadlines.idle))?;
        let frame = frame.transpose().map_err(|error| self.lost(&error))?;
        if let Some(data) = frame.as_ref().and_then(Frame::data_ref) {
            meter.add(data.len());
        }
        Ok(frame)
    }

    pub(crate) fn interrupted(&self, reason: String) -> ClientError {
        ClientError::Interrupted {
            host: self.host.clone(),
            reason,
        }
    }

    pub(crate) fn protocol(&self, reason: String) -> ClientError {
        ClientError::Protocol {
            host: self.host.clone(),
            reason,
        }
    }

    pub(crate) fn silent(&self, doing: &'static str, deadline: Duration) -> ClientError {
        ClientError::Silent {
            host: self.host.clone(),
            doing,
            seconds: deadline.as_secs(),
        }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        headers: &[(&'static str, String)],
        body: Option<(&'static str, RequestBody)>,
    ) -> Result<Request<RequestBody>, ClientError> {
        let mut url = self.base.clone();
        url.set_path(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = Request::builder().method(method).uri(url.as_str());
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.header());
        }
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let body = match body {
            Some((media_type, body)) => {
                request = request.header(CONTENT_TYPE, media_type);
                body
            }
            None => whole(Bytes::new()),
        };
        request.body(body).map_err(|error| ClientError::Address {
            url: url.to_string(),
            reason: error.to_string(),
        })
    }

    fn broken(&self, error: &hyper_util::client::legacy::Error) -> ClientError {
        if error.is_connect() {
            return ClientError::Unreachable {
                host: self.host.clone(),
                reason: chain(error),
            };
        }
        self.lost(error)
    }

    /// A connection that ended before its time.
    fn lost(&self, error: &(dyn std::error::Error + 'static)) -> ClientError {
        if said_goodbye(error) {
            return ClientError::Leaving {
                host: self.host.clone(),
                reason: chain(error),
            };
        }
        self.interrupted(chain(error))
    }
}

/// A body that is there as a whole.
pub(crate) fn whole(bytes: Bytes) -> RequestBody {
    http_body_util::Full::new(bytes).boxed()
}
