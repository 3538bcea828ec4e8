use crate::{Event, Events, Int8Note, Quality, Tables};
use frostline_client::Notices;
use serde::Serialize;
use std::sync::Arc;

/// Emits a warning.
pub(crate) fn warn(events: &Events, message: impl Into<String>) {
    let message = message.into();
    events(Event::Warning { message });
}

/// Joins the first `shown` of `parts` for a message.
pub(crate) fn first_few(parts: impl Iterator<Item = impl Into<String>>, shown: usize) -> String {
    let mut parts = parts.map(Into::into);
    let mut first: Vec<String> = parts.by_ref().take(shown).collect();
    first.extend(parts.next().map(|_| "..".to_owned()));
    first.join(", ")
}

/// Forwards the client's notices to `events`.
pub(crate) fn notices(events: &Events) -> Notices {
    let events = Arc::clone(events);
    Arc::new(move |notice| events(Event::Notice(notice)))
}

/// Result of an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// Prediction quality.
    #[serde(flatten)]
    pub quality: Quality,
    /// Number of samples used.
    pub samples: usize,
    /// True if the samples are exactly those that the model's own training held out of this data. Otherwise
    /// they are the requested part, the `validation/` part, or all samples.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub held_out: bool,
    /// Validation quality in training, if its frozen layers were in int8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub int8: Option<Int8Note>,
    /// Quality by class, label or number.
    #[serde(flatten)]
    pub tables: Tables,
}
