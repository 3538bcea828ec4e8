//! Contents of requests and answers in the table of routes.

use frostline_wire::ARROW_STREAM;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;

/// Function that returns the JSON schema of a type.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Body of a request or a successful answer.
#[derive(Debug, Clone, Copy)]
pub enum Content {
    /// No body.
    Empty,
    /// JSON. Requests have up to `request_bytes` bytes.
    Json(JsonType),
    /// Bytes of a guest or model.
    Upload,
    /// Arrow IPC stream.
    Arrow,
    /// Bytes of no format.
    Bytes,
    /// Text for humans, or metrics.
    Text,
}

impl Content {
    /// Returns the media type, or `None` if there is no body.
    pub fn media_type(self) -> Option<&'static str> {
        match self {
            Self::Empty => None,
            Self::Json(_) => Some("application/json"),
            Self::Upload | Self::Bytes => Some("application/octet-stream"),
            Self::Arrow => Some(ARROW_STREAM),
            Self::Text => Some("text/plain"),
        }
    }
}

/// Type of a JSON text.
#[derive(Clone, Copy)]
pub struct JsonType {
    pub(super) schema: SchemaOf,
    rewrite: fn(&[u8]) -> serde_json::Result<Value>,
}

impl JsonType {
    pub(super) const fn new<T: JsonSchema + Serialize + DeserializeOwned>() -> Self {
        Self {
            schema: |generator| generator.subschema_for::<T>(),
            rewrite: |text| {
                let value: T = serde_json::from_slice(text)?;
                serde_json::from_slice(&serde_json::to_vec(&value)?)
            },
        }
    }

    /// Reads a text as this type and writes it again. The result differs from a text of another type.
    ///
    /// # Errors
    /// Returns an error if `text` is not JSON of this type.
    pub fn rewrite(self, text: &[u8]) -> serde_json::Result<Value> {
        (self.rewrite)(text)
    }
}

impl fmt::Debug for JsonType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JsonType")
    }
}
