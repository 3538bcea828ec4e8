//! Requests that reach the work behind a route.

use super::routes::Route;
use crate::exchange::head_of;
use crate::neighbor::{distinct, photos, upload_ref};
use crate::scene::{Scene, backbone};
use anyhow::Result;
use bytes::Bytes;
use frostline_trainer::Guest;
use frostline_wire::{
    DescriptionRequest, Encoding, ExtractionRequest, Precision, ProfileRequest, Split, Terms, UploadRef,
};
use serde_json::Value;
use std::net::SocketAddr;

/// Name of the uploads that requests refer to.
const NAME: &str = "behavior";

/// Length of long names and query parameters. A request head of this size is within the limit of hosts.
const LONG_WORD: usize = 15_000;

/// Length of long texts in JSON, slightly less than the limit of a request body.
const LONG_TEXT: usize = 15 << 20;

/// Length of uploads that are neither a guest nor a model.
const LONG_UPLOAD: usize = 16 << 20;

/// Size of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Small,
    Usual,
    Largest,
}

/// A complete request to a route.
#[derive(Clone)]
pub(super) struct RouteRequest {
    method: &'static str,
    target: String,
    token: Option<String>,
    pub(super) body: Bytes,
}

impl RouteRequest {
    /// Builds a request of the acting tenant. The `seed` distinguishes uploads and selects long fields.
    pub(super) async fn new(scene: &Scene, route: Route, size: Size, seed: u64) -> Result<Self> {
        let uploads = Uploads::push(scene).await?;
        Ok(Self {
            method: route.method,
            target: target(scene, route, size)?,
            token: Some(scene.token().to_owned()),
            body: body(scene, route, size, seed, uploads)?,
        })
    }

    /// Returns the request without a token.
    pub(super) fn of_stranger(self) -> Self {
        Self { token: None, ..self }
    }

    /// Formats the request for HTTP/1.1.
    pub(super) fn http1(&self) -> Vec<u8> {
        let length = match self.body.len() {
            0 => String::new(),
            length => format!("Content-Length: {length}\r\n"),
        };
        let head = head_of(self.method, &self.target, self.token.as_deref(), &length);
        [head.as_bytes(), &self.body].concat()
    }

    /// Formats the head of the request for HTTP/2.
    pub(super) fn http2(&self, address: SocketAddr) -> Result<http::Request<()>> {
        let request = http::Request::builder()
            .method(self.method)
            .uri(format!("http://{address}{}", self.target));
        let request = match &self.token {
            Some(token) => request.header(http::header::AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        };
        Ok(request.body(())?)
    }
}

/// Fills in the parameters of a path, and adds the query that makes the route answer as much as possible.
fn target(scene: &Scene, route: Route, size: Size) -> Result<String> {
    let long = "n".repeat(LONG_WORD);
    let word = if size == Size::Largest { &long } else { NAME };
    let (path, is_named) = match (route.path.find('{'), route.path.find('}')) {
        (Some(start), Some(end)) => {
            let (before, after) = (route.path.get(..start), route.path.get(end + 1..));
            let path = [before.unwrap_or_default(), word, after.unwrap_or_default()].concat();
            (path, true)
        }
        _ => (route.path.to_owned(), false),
    };
    let mut query = match (route.path, size) {
        ("/v1/objects", _) => vec![format!("root={}", scene.root()?.replace('/', "%2F"))],
        ("/v1/probe", Size::Small) => vec!["bytes=1".to_owned()],
        ("/v1/probe", _) => vec![format!("bytes={}", 8 << 20)],
        _ => Vec::new(),
    };
    if size == Size::Largest && !is_named {
        query.push(format!("after={long}"));
    }
    Ok(match query.is_empty() {
        true => path,
        false => format!("{path}?{}", query.join("&")),
    })
}

fn body(scene: &Scene, route: Route, size: Size, seed: u64, uploads: Uploads) -> Result<Bytes> {
    let Uploads { guest, model } = uploads;
    let samples = if size == Size::Small { 1 } else { u32::MAX };
    let json = match (route.method, route.path) {
        ("PUT", _) if size == Size::Largest => return Ok(vec![0; LONG_UPLOAD].into()),
        ("PUT", "/v1/guests/{name}") => {
            return Ok(distinct(&Guest::stock().bytes, usize::try_from(seed)?).into());
        }
        ("PUT", _) => return backbone(),
        ("POST", "/v1/extractions") => serde_json::to_value(ExtractionRequest {
            root: scene.root()?,
            split: Split::Cut("features".to_owned()),
            guest: Some(guest),
            model: Some(model),
            parameters: String::new(),
            encoding: Encoding::F32,
            terms: Terms::default(),
            view: None,
            samples: photos(scene, samples),
            digests: false,
        })?,
        ("POST", "/v1/profiles") => serde_json::to_value(ProfileRequest {
            root: scene.root()?,
            guest,
            model,
            parameters: String::new(),
            cuts: vec!["features".to_owned()],
            samples: photos(scene, samples.min(4)),
            view: None,
            precision: Precision::Full,
            wait_seconds: Some(1),
        })?,
        ("POST", _) => serde_json::to_value(DescriptionRequest {
            guest,
            model,
            parameters: String::new(),
        })?,
        _ => return Ok(Bytes::new()),
    };
    let json = if size == Size::Largest {
        long(json, seed)
    } else {
        json
    };
    Ok(serde_json::to_vec(&json)?.into())
}

/// Replaces one of the text fields by a long one.
fn long(mut json: Value, seed: u64) -> Value {
    let texts = json.as_object_mut().into_iter().flatten();
    let mut texts: Vec<&mut Value> = texts
        .map(|(_, value)| value)
        .filter(|value| value.is_string())
        .collect();
    let place = usize::try_from(seed).unwrap_or(0).checked_rem(texts.len());
    if let Some(text) = place.and_then(|place| texts.get_mut(place)) {
        **text = Value::String("t".repeat(LONG_TEXT));
    }
    json
}

/// Uploads that requests refer to.
struct Uploads {
    guest: UploadRef,
    model: UploadRef,
}

impl Uploads {
    /// Uploads the stock guest and the bundled backbone. If the host refuses them, requests refer to unknown
    /// uploads.
    async fn push(scene: &Scene) -> Result<Self> {
        let client = scene.client()?;
        let guest = client.push_guest(NAME, Guest::stock().bytes).await;
        let model = client.push_model(NAME, backbone()?).await;
        let of = |sha256: Option<String>| upload_ref(NAME, &sha256.unwrap_or_default());
        Ok(Self {
            guest: of(guest.ok().map(|guest| guest.sha256)),
            model: of(model.ok().map(|model| model.sha256)),
        })
    }
}
