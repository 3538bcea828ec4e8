use crate::PixelSource;
use crate::notice::{Notice, UploadKind};
use crate::quality::{Quality, test, validation};
use frostline_tensor::PixelSpec;
use frostline_wire::{Encoding, Split, StageSeconds};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use strum::VariantNames;

/// Receives what happens during a job, from any thread, in order; it must not block for long.
pub type Events = Arc<dyn Fn(Event) + Send + Sync>;

/// What happens during a job. Serializes to the objects that `train --json` prints, one a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, strum::VariantNames)]
#[serde(remote = "Self", tag = "event", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Event {
    /// The data were listed and divided.
    Dataset {
        /// What is said of each sample.
        task: Task,
        /// Class names, sorted; else the names of labels or numbers, in the order of the model's outputs.
        classes: Vec<String>,
        /// Training samples.
        train: usize,
        /// Validation samples.
        validation: usize,
        /// Training batches an epoch has while no sample is skipped.
        steps_per_epoch: usize,
        /// Epochs the job is to have.
        epochs: u32,
    },
    /// Objects that are no samples are left out: no images by their names, or in no class folder.
    LeftOut(LeftOut),
    /// A guest or a model is on the host now.
    Upload {
        /// Which of the two.
        what: UploadKind,
        /// Its name on the host.
        name: String,
        /// Its size.
        bytes: u64,
        /// Whether the host had it already, so that nothing was sent.
        skipped: bool,
        /// What sending it took, waits between attempts included; 0 when nothing was sent.
        seconds: f64,
        /// Where it went on last after an attempt broke off, in bytes; `None` when it was sent in one go.
        resumed_at: Option<u64>,
    },
    /// Something is being measured, for a split that is left open. Takes from a second to minutes.
    Measuring {
        /// What.
        what: Measuring,
    },
    /// Images that are behind a validation, an evaluation or an extraction, for progress bars: neither recorded nor printed.
    Progress {
        /// So many,
        images: u64,
        /// of these.
        total: u64,
    },
    /// Something may not be as it was meant.
    Warning {
        /// For people.
        message: String,
    },
    /// Where the network is divided, and why there.
    Split {
        /// The split.
        split: Split,
        /// The module of the network's source whose output that is, where the file carries it and it has another name.
        #[serde(skip_serializing_if = "Option::is_none")]
        module: Option<String>,
        /// How its activations travel.
        encoding: Encoding,
        /// Expected payload of one sample; for `none` the mean size of the objects.
        bytes_per_sample: u64,
        /// For people: why this one.
        reason: String,
    },
    /// The frozen layers were quantized to int8 and compared with f32.
    Int8 {
        /// Whether the job uses int8.
        used: bool,
        /// Layers in int8.
        quantized_layers: usize,
        /// Layers that could be.
        layers: usize,
        /// Mean cosine similarity of activations at the freeze cut to those in f32, on held-out images.
        cosine: f64,
        /// Images a second over those of f32, on this machine.
        speedup: f64,
        /// For people: why int8 is used or not.
        reason: String,
    },
    /// Rows at the freeze cut are kept, so that the layers before it run once for each sample.
    Features {
        /// Rows the job needs that are there.
        kept: u64,
        /// Rows it needs that can be kept.
        rows: u64,
        /// Bytes these take on disk.
        bytes: u64,
        /// Bytes that all jobs' rows may take there.
        limit: u64,
        /// The folder of all jobs' rows.
        folder: PathBuf,
    },
    /// Rows at the freeze cut came from the team's store, or went there.
    Shared {
        /// Which of the two.
        what: Shared,
        /// How many.
        rows: u64,
        /// Bytes of the objects they came or went in.
        bytes: u64,
        /// The store, without credentials.
        store: String,
    },
    /// The model is written, and rows are still on their way to the team's store.
    Sharing {
        /// The store, without credentials.
        store: String,
        /// The longest that the job waits for them.
        seconds: f64,
    },
    /// What the network takes on the hosts is not known as the job starts, or has become known at last.
    Profile {
        /// Which of the two.
        state: ProfileState,
        /// For people: why, and what follows.
        reason: String,
    },
    /// The frozen network under the fresh head, before the first step.
    Baseline {
        /// On the validation samples, `validation_accuracy` for classes.
        #[serde(flatten, with = "validation")]
        validation: Quality,
        /// Body bytes received for it, and for a look at the training samples where features are standardized.
        bytes_received: u64,
        /// Wall time it took.
        seconds: f64,
    },
    /// A batch was trained.
    Step {
        /// From 1.
        epoch: u32,
        /// From 1, over the whole job.
        step: u64,
        /// Mean loss of the batch, before its update.
        #[serde(deserialize_with = "number")]
        loss: f32,
        /// Where this batch was divided.
        split: Split,
        /// Seconds the trainer waited for the batch.
        waited_seconds: f64,
        /// Seconds of the middle and the training step.
        computed_seconds: f64,
        /// Body bytes of the batch.
        bytes_received: u64,
        /// Its samples.
        rows: u64,
        /// Of these, rows that were kept before.
        kept_rows: u64,
    },
    /// More of the network is trained from now on; the split follows as an event of its own.
    Unfreeze {
        /// The first epoch of which this holds.
        epoch: u32,
        /// The network is frozen up to this cut, or its input.
        freeze: String,
    },
    /// The split changes, because the present one takes longer than another would.
    Replan {
        /// The step after which it was decided; batches on their way still come from the old split.
        step: u64,
        /// The split until now.
        from: Split,
        /// The split from now on.
        to: Split,
        /// How its activations travel.
        encoding: Encoding,
        /// For people: what was seen and what it saves.
        reason: String,
    },
    /// An epoch ended and was validated.
    Epoch {
        /// From 1.
        epoch: u32,
        /// Mean loss over the epoch's samples.
        #[serde(deserialize_with = "number")]
        loss: f64,
        /// On the validation samples.
        #[serde(flatten, with = "validation")]
        validation: Quality,
        /// Body bytes received for this epoch's batches and its validation, retries included.
        bytes_received: u64,
        /// Of these, those for its validation.
        validation_bytes_received: u64,
        /// Wall time since the previous epoch's end.
        seconds: f64,
        /// Of these, seconds its training steps waited for their batches.
        waited_seconds: f64,
        /// The split in use.
        split: Split,
        /// Samples skipped so far because they are bad.
        skipped: u64,
        /// Rows of this epoch and its validation that were kept before.
        kept_rows: u64,
        /// Those that were fetched.
        fetched_rows: u64,
    },
    /// The job keeps what it needs to go on in a folder, and goes on from there where it was interrupted.
    Run {
        /// The folder.
        folder: PathBuf,
        /// What it goes on from.
        #[serde(skip_serializing_if = "Option::is_none")]
        checkpoint: Option<PathBuf>,
        /// The epoch it goes on in, from 1.
        epoch: u32,
        /// Steps that are behind it.
        steps: u64,
    },
    /// A checkpoint was written, or could not be: then the one before stays, and the job goes on.
    Checkpoint {
        /// The epoch under way, from 1; past the last one when all have ended.
        epoch: u32,
        /// Steps that are behind it.
        steps: u64,
        /// Where it lies.
        file: PathBuf,
        /// What was written.
        bytes: u64,
        /// What that took, beside the job.
        seconds: f64,
        /// Why it could not be written.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// No epoch was better for as many as the job has patience for: it ends before its last.
    EarlyStop {
        /// The last epoch.
        epoch: u32,
        /// The first that was as good as the best.
        best: u32,
    },
    /// A sample cannot be used and is skipped from now on.
    BadSample {
        /// The object's key.
        key: String,
        /// What is wrong with it.
        message: String,
    },
    /// How images become the network's input.
    Pixels {
        /// The recipe.
        recipe: PixelSpec,
        /// What says it.
        source: PixelSource,
    },
    /// The model that is written was measured with the test part of the data.
    Test {
        /// On its samples, `test_accuracy` for classes.
        #[serde(flatten, with = "test")]
        quality: Quality,
        /// How many they are.
        samples: usize,
        /// Wall time it took.
        seconds: f64,
    },
    /// Where the time of the job's images went at one host, in the end.
    HostTime {
        /// Its address.
        host: String,
        /// Seconds of all images by stage.
        seconds: StageSeconds,
    },
    /// The model was written.
    Done {
        /// Where.
        model: PathBuf,
        /// The split that was used.
        split: Split,
        /// The epoch after which its weights are.
        epoch: u32,
        /// On the validation samples, after that epoch.
        #[serde(flatten, with = "validation")]
        validation: Quality,
        /// Body bytes received from the first listing on, in all.
        bytes_received: u64,
        /// The same by what they were for.
        received: Received,
        /// Wall time of the job.
        seconds: f64,
    },
    /// Something happened between the job and its hosts.
    #[serde(skip)]
    Notice(Notice),
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            // It says itself which event it is.
            Self::Notice(notice) => notice.serialize(to),
            event => Self::serialize(event, to),
        }
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::deserialize(from)
    }
}

/// Which way rows took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shared {
    /// To this machine, before the job began.
    Taken,
    /// To the team's store.
    Sent,
}

/// What is measured for a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
pub enum Measuring {
    /// What the link moves.
    #[strum(serialize = "the link to the host")]
    Link,
    /// What the layers take on the host.
    #[strum(serialize = "the network on the host")]
    Host,
    /// What they take on this machine.
    #[strum(serialize = "the network on this machine")]
    Trainer,
    /// Speed and error of the layers in int8.
    #[strum(serialize = "int8 on this machine")]
    Int8,
}

/// Body bytes a job received, by what they were for. All but the last add up to what it received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// The names of the objects.
    pub listing: u64,
    /// Measurements: of the link, of the host, and objects to measure this machine with.
    pub measuring: u64,
    /// Validation before the first step, and what features are standardized by.
    pub baseline: u64,
    /// Training batches of all epochs.
    pub training: u64,
    /// Validation after each epoch.
    pub validation: u64,
    /// Answers to uploads, descriptions, and looks at hosts that were down.
    pub other: u64,
    /// Of all these, what came in answers that broke off, were refused or given up, so that samples were asked for again.
    pub interrupted: u64,
}

impl Received {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.listing + self.measuring + self.baseline + self.training + self.validation + self.other
    }
}

/// Whether the hosts' profile is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProfileState {
    /// A host gave none in time.
    Missing,
    /// It came while the job ran.
    Measured,
}

/// What is said of each sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// One class.
    #[default]
    Classes,
    /// Yes or no to each of several labels.
    Labels,
    /// One number or several.
    Numbers,
}

impl Event {
    /// Whether it only moves progress bars.
    pub fn is_progress(&self) -> bool {
        matches!(
            self,
            Self::Progress { .. } | Self::Notice(Notice::Uploading { .. })
        )
    }
}

impl fmt::Display for Task {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Classes => "classes",
            Self::Labels => "labels",
            Self::Numbers => "numbers",
        })
    }
}

/// Objects that are no samples: no images, or in no class folder. Hidden files and marks of folders do not count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// How many.
    pub objects: usize,
    /// The keys of the first of them.
    pub first: Vec<String>,
}

/// Reads a number. JSON has no word for NaN: it is written as null.
fn number<'de, D: Deserializer<'de>, T: Deserialize<'de> + From<f32>>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_else(|| f32::NAN.into()))
}

/// A line of a run's `events.jsonl`.
#[derive(Debug, Clone, PartialEq)]
pub struct Logged {
    /// Seconds from the job's beginning, where the line says them.
    pub at: Option<f64>,
    /// What happened; `None` for an event that this version does not know.
    pub event: Option<Event>,
}

impl Logged {
    /// Reads a line.
    ///
    /// # Errors
    /// JSON's, for what is no event, and for a known one that lacks something.
    pub fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Tag {
            event: String,
            at: Option<f64>,
        }
        let Tag { event, at } = serde_json::from_slice(line)?;
        let event = if Notice::VARIANTS.contains(&event.as_str()) {
            Some(Event::Notice(serde_json::from_slice(line)?))
        } else if Event::VARIANTS.contains(&event.as_str()) {
            Some(serde_json::from_slice(line)?)
        } else {
            None
        };
        Ok(Self { at, event })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_serialize_as_scripts_expect() {
        let step = Event::Step {
            epoch: 1,
            step: 3,
            loss: 0.5,
            split: Split::None,
            waited_seconds: 0.25,
            computed_seconds: 1.0,
            bytes_received: 7,
            rows: 8,
            kept_rows: 2,
        };
        assert_eq!(
            serde_json::to_value(step).unwrap(),
            serde_json::json!({"event": "step", "epoch": 1, "step": 3, "loss": 0.5, "split": "none",
                "waited_seconds": 0.25, "computed_seconds": 1.0, "bytes_received": 7, "rows": 8, "kept_rows": 2})
        );
        let done = Event::Done {
            model: PathBuf::from("tuned.onnx"),
            split: Split::Cut("features".to_owned()),
            epoch: 4,
            validation: Quality::Classes { accuracy: 0.75 },
            bytes_received: 10,
            received: Received {
                listing: 4,
                training: 6,
                ..Received::default()
            },
            seconds: 1.5,
        };
        assert_eq!(
            serde_json::to_value(done).unwrap(),
            serde_json::json!({"event": "done", "model": "tuned.onnx", "split": "features", "epoch": 4,
                "validation_accuracy": 0.75, "bytes_received": 10, "seconds": 1.5,
                "received": {"listing": 4, "measuring": 0, "baseline": 0, "training": 6, "validation": 0, "other": 0,
                    "interrupted": 0}})
        );
    }

    /// As `events.jsonl` has it.
    fn logged(event: &Event) -> Vec<u8> {
        let mut line = serde_json::to_value(event).unwrap();
        line["at"] = serde_json::json!(2.5);
        line.to_string().into_bytes()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let figures = [
            Quality::Classes { accuracy: 0.5 },
            Quality::Labels {
                f1_micro: 0.1,
                f1_macro: 0.2,
                mean_average_precision: 0.3,
            },
            Quality::Numbers {
                mae: 1.0,
                rmse: 2.0,
                r2: -1.0,
            },
        ];
        let baseline = |validation| Event::Baseline {
            validation,
            bytes_received: 1,
            seconds: 2.0,
        };
        let host = Event::Notice(Notice::Host {
            host: "http://a".to_owned(),
            state: crate::HostState::Down,
            reason: "gone".to_owned(),
            left_seconds: None,
        });
        let left_out = Event::LeftOut(LeftOut {
            objects: 1,
            first: vec!["a".to_owned()],
        });
        for event in figures.map(baseline).into_iter().chain([host, left_out]) {
            let read = Logged::parse(&logged(&event)).unwrap();
            assert_eq!((read.at, read.event), (Some(2.5), Some(event)));
        }
    }

    #[test]
    fn what_is_no_number_is_null_and_read_as_none() {
        let line = br#"{"event":"epoch","epoch":1,"loss":null,"validation_accuracy":null,"validation_bytes_received":3,"bytes_received":9,
            "seconds":1.0,"waited_seconds":0.5,"split":"none","skipped":0,"kept_rows":4,"fetched_rows":0}"#;
        let Some(Event::Epoch {
            loss,
            validation: Quality::Classes { accuracy },
            ..
        }) = Logged::parse(line).unwrap().event
        else {
            panic!("another event")
        };
        assert!(loss.is_nan() && accuracy.is_nan());
    }

    #[test]
    fn an_event_that_lacks_a_field_is_refused_and_an_unknown_one_is_not() {
        let unknown = Logged::parse(br#"{"event":"tomorrow","of":[1]}"#).unwrap();
        assert_eq!((unknown.at, unknown.event), (None, None));
        let said = |line: &[u8]| Logged::parse(line).unwrap_err().to_string();
        let warning = said(br#"{"event":"warning"}"#);
        assert!(warning.contains("missing field `message`"), "{warning}");
        assert!(said(br#"{"event":"retry","host":"a"}"#).contains("missing field `lost`"));
        assert!(
            said(br#"{"event":"baseline","bytes_received":1,"seconds":1}"#).contains("validation_accuracy")
        );
    }
}
