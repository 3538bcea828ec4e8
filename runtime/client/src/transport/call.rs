use crate::{ClientError, Token};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use std::convert::Infallible;
use url::Url;

pub(crate) type Body = BoxBody<Bytes, Infallible>;

/// What is asked of a host.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) query: &'a [(&'a str, &'a str)],
    pub(crate) headers: &'a [(&'static str, String)],
    /// Its media type, and what it holds.
    pub(crate) body: Option<(&'static str, Body)>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(method: Method, path: &'a str) -> Self {
        Self {
            method,
            path,
            query: &[],
            headers: &[],
            body: None,
        }
    }

    /// With JSON that is there as a whole.
    pub(crate) fn json(self, body: Bytes) -> Self {
        Self {
            body: Some(("application/json", Full::new(body).boxed())),
            ..self
        }
    }

    /// As it is sent to the host at `base`.
    pub(super) fn request(self, base: &Url, token: Option<&Token>) -> Result<Request<Body>, ClientError> {
        let mut url = base.clone();
        url.set_path(self.path);
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(self.query);
        }
        let mut request = Request::builder().method(self.method).uri(url.as_str());
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token.header());
        }
        for (name, value) in self.headers {
            request = request.header(*name, value);
        }
        let body = match self.body {
            Some((media_type, body)) => {
                request = request.header(CONTENT_TYPE, media_type);
                body
            }
            None => Full::default().boxed(),
        };
        request.body(body).map_err(|error| ClientError::Address {
            url: url.to_string(),
            reason: error.into(),
        })
    }
}
