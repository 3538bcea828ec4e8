use crate::bounded;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Split of the network between host and trainer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(into = "String")]
#[schemars(from = "String")]
pub enum Split {
    /// The host sends raw objects. The trainer does all processing.
    None,
    /// The host decodes and preprocesses.
    Input,
    /// The host also computes the layers up to this cut.
    Cut(String),
}

impl<'de> Deserialize<'de> for Split {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        bounded::split::<String, D>(from).map(Self::from)
    }
}

impl From<String> for Split {
    fn from(name: String) -> Self {
        match name.as_str() {
            "none" => Self::None,
            "input" => Self::Input,
            _ => Self::Cut(name),
        }
    }
}

impl From<&str> for Split {
    fn from(name: &str) -> Self {
        Self::from(name.to_owned())
    }
}

impl From<Split> for String {
    fn from(split: Split) -> Self {
        split.to_string()
    }
}

impl std::fmt::Display for Split {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Input => f.write_str("input"),
            Self::Cut(name) => f.write_str(name),
        }
    }
}
