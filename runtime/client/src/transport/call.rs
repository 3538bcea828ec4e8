use crate::ClientError;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use std::convert::Infallible;
use url::Url;

/// The largest JSON answer that is read: a page of a listing has a thousand keys of at most 1 KiB.
const MAX_JSON: u64 = 16 << 20;

pub(crate) type Body = BoxBody<Bytes, Infallible>;

/// What is asked of a host.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) query: &'a [(&'a str, &'a str)],
    pub(crate) headers: &'a [(&'static str, String)],
    /// Its media type, and what it holds.
    pub(crate) body: Option<(&'static str, Content)>,
    /// The most bytes that are read of its answer.
    pub(crate) answer_limit: u64,
}

/// What the body of a call holds.
pub(crate) enum Content {
    /// It is there, and may be sent again.
    Whole(Bytes),
    /// It comes in pieces, once.
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

    /// With JSON that is there as a whole.
    pub(crate) fn json(self, body: Bytes) -> Self {
        Self {
            body: Some(("application/json", Content::Whole(body))),
            ..self
        }
    }

    /// The same once more; `None` for what can be sent but once.
    pub(super) fn again(&self) -> Option<Self> {
        let body = match &self.body {
            None => None,
            Some((media_type, Content::Whole(bytes))) => Some((*media_type, Content::Whole(bytes.clone()))),
            Some((_, Content::Pieces(_))) => return None,
        };
        Some(Self {
            method: self.method.clone(),
            body,
            ..*self
        })
    }

    /// As it is sent to the host at `base` by who has this token.
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
                    Content::Whole(bytes) => Full::new(bytes).boxed(),
                    Content::Pieces(body) => body,
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
