//! The events that are shown, as `frostline train --json` prints them. Others, and fields that are not named here, say nothing.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Figures on the validation samples by their names, such as `accuracy`.
pub(crate) type Figures = Vec<(String, f64)>;

#[derive(Debug)]
pub(crate) enum Event {
    Dataset(Dataset),
    Split(Chosen),
    Baseline(Baseline),
    Step(StepEvent),
    Epoch(Epoch),
    Replan(Replan),
    Unfreeze(Unfreeze),
    Host(Host),
    Retry(Retry),
    BadSample(BadSample),
    Store(Said),
    Warning(Said),
    Done(Done),
    Other,
}

/// An event and the seconds from the job's beginning to it, where it says them.
pub(crate) fn parse(line: &[u8]) -> Result<(Option<f64>, Event), serde_json::Error> {
    let tag: Tag = serde_json::from_slice(line)?;
    let event = match tag.event.as_str() {
        "dataset" => Event::Dataset(serde_json::from_slice(line)?),
        "split" => Event::Split(serde_json::from_slice(line)?),
        "baseline" => Event::Baseline(serde_json::from_slice(line)?),
        "step" => Event::Step(serde_json::from_slice(line)?),
        "epoch" => Event::Epoch(serde_json::from_slice(line)?),
        "replan" => Event::Replan(serde_json::from_slice(line)?),
        "unfreeze" => Event::Unfreeze(serde_json::from_slice(line)?),
        "host" => Event::Host(serde_json::from_slice(line)?),
        "retry" => Event::Retry(serde_json::from_slice(line)?),
        "bad_sample" => Event::BadSample(serde_json::from_slice(line)?),
        "store" => Event::Store(serde_json::from_slice(line)?),
        "warning" => Event::Warning(serde_json::from_slice(line)?),
        "done" => Event::Done(serde_json::from_slice(line)?),
        _ => Event::Other,
    };
    let at = tag.at.filter(|at| at.is_finite() && *at >= 0.0);
    Ok((at, event))
}

#[derive(Deserialize)]
struct Tag {
    event: String,
    #[serde(default)]
    at: Option<f64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Dataset {
    /// `classes`, `labels` or `numbers`.
    #[serde(default)]
    pub(crate) task: String,
    pub(crate) classes: Vec<String>,
    pub(crate) train: u64,
    pub(crate) validation: u64,
    #[serde(default)]
    pub(crate) steps_per_epoch: u64,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Chosen {
    pub(crate) split: String,
    #[serde(default)]
    pub(crate) encoding: String,
    #[serde(default)]
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(from = "RawBaseline")]
pub(crate) struct Baseline {
    pub(crate) figures: Figures,
}

#[derive(Deserialize)]
struct RawBaseline {
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl From<RawBaseline> for Baseline {
    fn from(raw: RawBaseline) -> Self {
        Self {
            figures: figures(&raw.rest),
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct StepEvent {
    pub(crate) epoch: u32,
    pub(crate) step: u64,
    #[serde(deserialize_with = "number")]
    pub(crate) loss: f64,
    pub(crate) split: String,
    #[serde(deserialize_with = "number")]
    pub(crate) waited_seconds: f64,
    #[serde(deserialize_with = "number")]
    pub(crate) computed_seconds: f64,
    #[serde(default)]
    pub(crate) bytes_received: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(from = "RawEpoch")]
pub(crate) struct Epoch {
    /// Seconds from the job's beginning to its end; the journal says it.
    pub(crate) at: f64,
    pub(crate) epoch: u32,
    pub(crate) loss: f64,
    pub(crate) figures: Figures,
    pub(crate) bytes_received: u64,
    pub(crate) seconds: f64,
    pub(crate) waited_seconds: f64,
    pub(crate) split: String,
    pub(crate) skipped: u64,
    pub(crate) kept_rows: Option<u64>,
    pub(crate) fetched_rows: Option<u64>,
}

#[derive(Deserialize)]
struct RawEpoch {
    epoch: u32,
    #[serde(deserialize_with = "number")]
    loss: f64,
    #[serde(default)]
    bytes_received: u64,
    #[serde(deserialize_with = "number")]
    seconds: f64,
    #[serde(default, deserialize_with = "number")]
    waited_seconds: f64,
    #[serde(default)]
    split: String,
    #[serde(default)]
    skipped: u64,
    #[serde(default)]
    kept_rows: Option<u64>,
    #[serde(default)]
    fetched_rows: Option<u64>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl From<RawEpoch> for Epoch {
    fn from(raw: RawEpoch) -> Self {
        Self {
            at: 0.0,
            epoch: raw.epoch,
            loss: raw.loss,
            figures: figures(&raw.rest),
            bytes_received: raw.bytes_received,
            seconds: raw.seconds,
            waited_seconds: raw.waited_seconds,
            split: raw.split,
            skipped: raw.skipped,
            kept_rows: raw.kept_rows,
            fetched_rows: raw.fetched_rows,
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Replan {
    pub(crate) from: String,
    pub(crate) to: String,
    #[serde(default)]
    pub(crate) encoding: String,
    #[serde(default)]
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Unfreeze {
    pub(crate) epoch: u32,
    pub(crate) freeze: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Host {
    pub(crate) host: String,
    /// `up` or `down`.
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Retry {
    pub(crate) host: String,
    #[serde(default)]
    pub(crate) lost: u64,
    #[serde(default)]
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct BadSample {
    pub(crate) key: String,
    #[serde(default)]
    pub(crate) message: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Said {
    #[serde(default)]
    pub(crate) message: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Done {
    #[serde(default)]
    pub(crate) split: String,
    #[serde(default)]
    pub(crate) bytes_received: u64,
    #[serde(default)]
    pub(crate) received: Received,
    #[serde(default, deserialize_with = "number")]
    pub(crate) seconds: f64,
}

/// Body bytes by what they were for.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Received {
    pub(crate) listing: u64,
    pub(crate) measuring: u64,
    pub(crate) baseline: u64,
    pub(crate) training: u64,
    pub(crate) validation: u64,
    pub(crate) other: u64,
    /// Of all these, what was lost in answers that broke off.
    pub(crate) interrupted: u64,
}

/// JSON has no word for what is no number: it is written as `null`.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

/// More figures than any task has, so that a strange file cannot draw a chart for each of a million.
const FIGURES: usize = 12;

fn figures(fields: &Map<String, Value>) -> Figures {
    let named = fields.iter().filter_map(|(name, value)| {
        let name = name.strip_prefix("validation_")?;
        let value = match value {
            Value::Null => f64::NAN,
            value => value.as_f64()?,
        };
        (!name.ends_with("bytes_received")).then(|| (name.to_owned(), value))
    });
    named.take(FIGURES).collect()
}
