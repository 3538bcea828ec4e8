use crate::ClientError;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use std::convert::Infallible;
use url::Url;

/// Maximum size of a JSON answer in bytes. Listing pages contain a thousand keys of up to 1 KiB.
const MAX_JSON: u64 = 16 << 20;

pub(crate) type Body = BoxBody<Bytes, Infallible>;

/// A request to a host.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) query: &'a [(&'a str, &'a str)],
    pub(crate) headers: &'a [(&'static str, String)],
    /// Media type and content.
    pub(crate) body: Option<(&'static str, CallBody)>,
    /// Maximum size of the answer in bytes.
    pub(crate) answer_limit: u64,
}

/// Body of a call.
pub(crate) enum CallBody {
    /// Bytes in memory, which can be sent again.
    Whole(Bytes),
    /// Stream for a single transmission.
    Pieces(Body),
}

impl<'a> Call<'a> {
    pub(crate) fn new(method: Method, path: &'a str) -> Self {
        Self {
            method,
            path,
            query: &[],
            headers: &[],
            body: None,
            answer_limit: MAX_JSON,
        }
    }

    /// Adds a JSON body.
    pub(crate) fn json(self, body: Bytes) -> Self {
        Self {
            body: Some(("application/json", CallBody::Whole(body))),
            ..self
        }
    }

    /// Returns a copy of the call, or `None` if the body can be sent only once.
    pub(super) fn again(&self) -> Option<Self> {
        let body = match &self.body {
            None => None,
            Some((media_type, CallBody::Whole(bytes))) => Some((*media_type, CallBody::Whole(bytes.clone()))),
            Some((_, CallBody::Pieces(_))) => return None,
        };
        Some(Self {
            method: self.method.clone(),
            body,
            ..*self
        })
    }

    /// Builds the HTTP request to the host at `base`, with the token if there is one.
    pub(super) fn request(
        self,
        base: &Url,
        token: Option<&HeaderValue>,
    ) -> Result<Request<Body>, ClientError> {
        let mut url = base.clone();
        url.set_path(self.path);
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(self.query);
        }
        let mut request = Request::builder().method(self.method).uri(url.as_str());
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        for (name, value) in self.headers {
            request = request.header(*name, value);
        }
        let body = match self.body {
            Some((media_type, body)) => {
                request = request.header(CONTENT_TYPE, media_type);
                match body {
                    CallBody::Whole(bytes) => Full::new(bytes).boxed(),
                    CallBody::Pieces(body) => body,
                }
            }
            None => Full::default().boxed(),
        };
        request.body(body).map_err(|error| ClientError::Address {
            url: url.to_string(),
            reason: error.into(),
        })
    }
}
