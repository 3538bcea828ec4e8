use crate::PixelSource;
use crate::notice::{Notice, UploadKind};
use crate::quality::{Quality, test, validation};
use frostline_tensor::PixelSpec;
use frostline_wire::{Encoding, Split, StageSeconds};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::path::PathBuf;
use std::sync::Arc;
use strum::VariantNames;

/// Callback for events, in order. Called from any thread, and must return quickly.
pub type Events = Arc<dyn Fn(Event) + Send + Sync>;

/// Job events. `train --json` prints each event as an object on a separate line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, strum::VariantNames)]
#[serde(remote = "Self", tag = "event", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Event {
    /// The data was listed and divided into parts.
    Dataset(ListedData),
    /// Some objects were skipped because they have no image extension or class folder.
    LeftOut(SkippedObjects),
    /// A guest or a model is available on the host.
    Upload {
        /// Kind of the upload.
        what: UploadKind,
        /// Name of the upload on the host.
        name: String,
        /// Total size in bytes.
        bytes: u64,
        /// True if the host already had the file, so that nothing was sent.
        skipped: bool,
        /// Duration of the upload including waits between attempts. 0 if the upload was skipped.
        seconds: f64,
        /// Offset of the last resumption in bytes, or `None` if the upload was not interrupted.
        resumed_at: Option<u64>,
    },
    /// A measurement for the plan started. Durations range from a second to minutes.
    Measuring {
        /// Measured component.
        what: Measuring,
    },
    /// Progress of validation, evaluation or extraction. Updates progress bars and is not recorded.
    Progress {
        /// Number of finished images.
        images: u64,
        /// Total number of images.
        total: u64,
    },
    /// A potential problem.
    Warning {
        /// Message text.
        message: String,
    },
    /// The split was chosen.
    Split {
        /// The chosen split.
        split: Split,
        /// Module name of the split. `None` if the file contains no module names, or
        /// the tensor has the same name.
        #[serde(skip_serializing_if = "Option::is_none")]
        module: Option<String>,
        /// Encoding of the activations.
        encoding: Encoding,
        /// Expected payload per sample in bytes. For the split `none`, the mean object size.
        bytes_per_sample: u64,
        /// Explanation of the choice.
        reason: String,
    },
    /// The frozen layers were quantized to int8 and compared with f32.
    Int8 {
        /// True if the job uses int8.
        used: bool,
        /// Number of layers in int8.
        quantized_layers: usize,
        /// Number of layers with int8 support.
        layers: usize,
        /// Mean cosine similarity between int8 and f32 activations at the freeze cut, measured on separate
        /// images.
        cosine: f64,
        /// Images per second in int8, relative to f32, on the trainer.
        speedup: f64,
        /// Explanation of the decision.
        reason: String,
    },
    /// The feature cache is in use, so the frozen layers run once per sample.
    Features {
        /// Number of required features that are already cached.
        kept: u64,
        /// Number of required features that can be cached.
        rows: u64,
        /// Disk space in bytes that all cacheable features require.
        bytes: u64,
        /// Disk limit for the features of all jobs in bytes.
        limit: u64,
        /// Shared cache folder of all jobs.
        folder: PathBuf,
    },
    /// The hosts' profile is missing at the start of the job, or arrived during the job.
    Profile {
        /// Availability of the profile.
        state: ProfileState,
        /// Explanation, including the consequences.
        reason: String,
    },
    /// Validation of the frozen network with a new head, before training begins.
    Baseline {
        /// Validation result. The field for classes is `validation_accuracy`.
        #[serde(flatten, with = "validation")]
        validation: Quality,
        /// Response bytes received for this validation, including the features for standardization.
        bytes_received: u64,
        /// Wall time in seconds.
        seconds: f64,
    },
    /// A training step finished.
    Step(TrainedStep),
    /// The freeze cut moves to an earlier layer. The new split follows as a separate event.
    Unfreeze {
        /// First epoch with this freeze cut.
        epoch: u32,
        /// New freeze cut. If nothing is frozen, this is the model input.
        freeze: String,
    },
    /// The split changes because another split is faster.
    Replan {
        /// Number of the step at which the change was decided. Batches in flight still use the old split.
        step: u64,
        /// Old split.
        from: Split,
        /// New split.
        to: Split,
        /// Encoding of the activations at the new split.
        encoding: Encoding,
        /// Explanation with the observed rates and the expected savings.
        reason: String,
    },
    /// An epoch was trained and validated.
    Epoch(TrainedEpoch),
    /// Start of a new or resumed run.
    Run {
        /// Run folder.
        folder: PathBuf,
        /// Checkpoint from which the run is resumed.
        #[serde(skip_serializing_if = "Option::is_none")]
        checkpoint: Option<PathBuf>,
        /// Current epoch, starting at 1.
        epoch: u32,
        /// Number of finished steps.
        steps: u64,
    },
    /// Result of writing a checkpoint. If writing failed, the job continues with the previous checkpoint.
    Checkpoint {
        /// Current epoch, starting at 1. After the last epoch, this number exceeds the number of epochs.
        epoch: u32,
        /// Number of finished steps.
        steps: u64,
        /// Path of the checkpoint.
        file: PathBuf,
        /// Size in bytes. 0 if writing failed.
        bytes: u64,
        /// Duration of the write, which runs concurrently with the job.
        seconds: f64,
        /// Error if writing failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The job ends early because the last `patience` epochs did not improve the validation result.
    EarlyStop {
        /// Last epoch.
        epoch: u32,
        /// Best epoch. For equal results, the first one.
        best: u32,
    },
    /// A bad sample is now excluded.
    BadSample {
        /// Object key.
        key: String,
        /// Error message.
        message: String,
    },
    /// The preprocessing recipe was chosen.
    Pixels {
        /// Preprocessing recipe.
        recipe: PixelSpec,
        /// Source of the recipe.
        source: PixelSource,
    },
    /// The written model was evaluated on the test part of the data.
    Test {
        /// Test result. The field for classes is `test_accuracy`.
        #[serde(flatten, with = "test")]
        quality: Quality,
        /// Number of evaluated samples.
        samples: usize,
        /// Wall time in seconds.
        seconds: f64,
    },
    /// Time spent by a host on the images of the job. Emitted once per host at the end.
    HostTime {
        /// Address of the host.
        host: String,
        /// Seconds per stage, summed over all images.
        seconds: StageSeconds,
    },
    /// The model was written.
    Done(JobResult),
    /// A communication event between the job and the hosts.
    #[serde(skip)]
    Notice(Notice),
}

/// Training data of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ListedData {
    /// Kind of the training targets.
    pub task: Task,
    /// Sorted class names. For labels and numbers, names in the order of the model outputs.
    pub classes: Vec<String>,
    /// Number of training samples.
    pub train: usize,
    /// Number of validation samples.
    pub validation: usize,
    /// Number of training batches per epoch, unless samples are skipped.
    pub steps_per_epoch: usize,
    /// Configured number of epochs.
    pub epochs: u32,
}

/// Measurements of a training step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainedStep {
    /// Epoch number, starting at 1.
    pub epoch: u32,
    /// Step number in the job, starting at 1.
    pub step: u64,
    /// Mean loss of the batch before the update.
    #[serde(deserialize_with = "number")]
    pub loss: f32,
    /// Split of this batch.
    pub split: Split,
    /// Seconds that the trainer waited for the batch.
    pub waited_seconds: f64,
    /// Seconds for the middle and the training step.
    pub computed_seconds: f64,
    /// Response bytes received for the batch.
    pub bytes_received: u64,
    /// Number of samples in the batch.
    pub rows: u64,
    /// Number of cached features in the batch.
    pub cached_rows: u64,
}

/// Measurements of an epoch, including its validation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainedEpoch {
    /// Epoch number, starting at 1.
    pub epoch: u32,
    /// Mean loss over all samples of the epoch.
    #[serde(deserialize_with = "number")]
    pub loss: f64,
    /// Validation result.
    #[serde(flatten, with = "validation")]
    pub validation: Quality,
    /// Response bytes received for the epoch and the validation, including retries.
    pub bytes_received: u64,
    /// Response bytes received for the validation only.
    pub validation_bytes_received: u64,
    /// Wall time in seconds, including the validation.
    pub seconds: f64,
    /// Seconds that training steps waited for batches.
    pub waited_seconds: f64,
    /// Current split.
    pub split: Split,
    /// Total number of bad samples skipped so far.
    pub skipped: u64,
    /// Number of cached features used by the epoch and the validation.
    pub cached_rows: u64,
    /// Number of features fetched for the epoch and the validation.
    pub fetched_rows: u64,
}

/// Result of a finished job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobResult {
    /// Path of the tuned model.
    pub model: PathBuf,
    /// The split at the end of the job.
    pub split: Split,
    /// Epoch of the written weights, counted from 1.
    pub epoch: u32,
    /// Validation result after this epoch.
    #[serde(flatten, with = "validation")]
    pub validation: Quality,
    /// Response bytes received since the job was started or resumed.
    pub bytes_received: u64,
    /// Response bytes by purpose.
    pub received: Received,
    /// Wall time of the job in seconds.
    pub seconds: f64,
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            // Notices contain the `event` field.
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

/// Measurement for a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
pub enum Measuring {
    /// Throughput of the link.
    #[strum(serialize = "the link to the host")]
    Link,
    /// Cost of the layers on the host.
    #[strum(serialize = "the network on the host")]
    Host,
    /// Cost of the layers on the trainer.
    #[strum(serialize = "the network on this machine")]
    Trainer,
    /// Speed and error of the layers in int8.
    #[strum(serialize = "int8 on this machine")]
    Int8,
}

/// Response bytes of a job by purpose. The total is the sum of all fields except `interrupted`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Object listing.
    pub listing: u64,
    /// Measurements of link, host and trainer.
    pub measuring: u64,
    /// Validation before the first step, including the features for standardization.
    pub baseline: u64,
    /// Training batches of all epochs.
    pub training: u64,
    /// Validation after each epoch.
    pub validation: u64,
    /// Answers to uploads, descriptions and health probes.
    pub other: u64,
    /// Aborted or refused responses with samples that had to be requested again. These bytes are also counted
    /// in other fields.
    pub interrupted: u64,
}

impl Received {
    /// Returns the sum of all fields except `interrupted`.
    pub fn total(&self) -> u64 {
        self.listing + self.measuring + self.baseline + self.training + self.validation + self.other
    }
}

/// Availability of the hosts' profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProfileState {
    /// No profile is available yet.
    Missing,
    /// The profile arrived during the job.
    Measured,
}

/// Kind of the training targets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Task {
    /// A single class per sample.
    #[default]
    Classes,
    /// Any number of labels per sample.
    Labels,
    /// A fixed number of target values per sample.
    Numbers,
}

impl Event {
    /// Returns true if the event only updates progress bars.
    pub fn is_progress(&self) -> bool {
        matches!(
            self,
            Self::Progress { .. } | Self::Notice(Notice::Uploading { .. })
        )
    }
}

/// Skipped objects of a data root. Hidden files, folder markers and the labels table are not counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedObjects {
    /// Number of objects.
    pub objects: usize,
    /// Keys of the first objects, up to five.
    pub first: Vec<String>,
}

/// Reads a number. NaN is written as null, because JSON cannot represent it.
fn number<'de, D: Deserializer<'de>, T: Deserialize<'de> + From<f32>>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_else(|| f32::NAN.into()))
}

/// Line of `events.jsonl`.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedEvent {
    /// Seconds since the start of the job. `None` if the field is missing.
    pub at: Option<f64>,
    /// The event, or `None` if this version does not know it.
    pub event: Option<Event>,
}

impl LoggedEvent {
    /// Reads a line.
    ///
    /// # Errors
    /// Returns an error if the line is not an event, or if a field of a known event is missing.
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
        let step = Event::Step(TrainedStep {
            epoch: 1,
            step: 3,
            loss: 0.5,
            split: Split::None,
            waited_seconds: 0.25,
            computed_seconds: 1.0,
            bytes_received: 7,
            rows: 8,
            cached_rows: 2,
        });
        assert_eq!(
            serde_json::to_value(step).unwrap(),
            serde_json::json!({"event": "step", "epoch": 1, "step": 3, "loss": 0.5, "split": "none",
                "waited_seconds": 0.25, "computed_seconds": 1.0, "bytes_received": 7, "rows": 8, "cached_rows": 2})
        );
        let done = Event::Done(JobResult {
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
        });
        assert_eq!(
            serde_json::to_value(done).unwrap(),
            serde_json::json!({"event": "done", "model": "tuned.onnx", "split": "features", "epoch": 4,
                "validation_accuracy": 0.75, "bytes_received": 10, "seconds": 1.5,
                "received": {"listing": 4, "measuring": 0, "baseline": 0, "training": 6, "validation": 0, "other": 0,
                    "interrupted": 0}})
        );
    }

    /// Formats an event as a line of `events.jsonl`.
    fn logged(event: &Event) -> Vec<u8> {
        let mut line = serde_json::to_value(event).unwrap();
        line["at"] = serde_json::json!(2.5);
        line.to_string().into_bytes()
    }

    #[test]
    fn events_survive_a_json_round_trip() {
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
        let left_out = Event::LeftOut(SkippedObjects {
            objects: 1,
            first: vec!["a".to_owned()],
        });
        for event in figures.map(baseline).into_iter().chain([host, left_out]) {
            let read = LoggedEvent::parse(&logged(&event)).unwrap();
            assert_eq!((read.at, read.event), (Some(2.5), Some(event)));
        }
    }

    #[test]
    fn nan_is_written_as_null() {
        let line = br#"{"event":"epoch","epoch":1,"loss":null,"validation_accuracy":null,"validation_bytes_received":3,"bytes_received":9,
            "seconds":1.0,"waited_seconds":0.5,"split":"none","skipped":0,"cached_rows":4,"fetched_rows":0}"#;
        let Some(Event::Epoch(TrainedEpoch {
            loss,
            validation: Quality::Classes { accuracy },
            ..
        })) = LoggedEvent::parse(line).unwrap().event
        else {
            panic!("another event")
        };
        assert!(loss.is_nan() && accuracy.is_nan());
    }

    #[test]
    fn an_event_that_lacks_a_field_is_refused_and_an_unknown_one_is_not() {
        let unknown = LoggedEvent::parse(br#"{"event":"tomorrow","of":[1]}"#).unwrap();
        assert_eq!((unknown.at, unknown.event), (None, None));
        let said = |line: &[u8]| LoggedEvent::parse(line).unwrap_err().to_string();
        let warning = said(br#"{"event":"warning"}"#);
        assert!(warning.contains("missing field `message`"), "{warning}");
        assert!(said(br#"{"event":"retry","host":"a"}"#).contains("missing field `lost`"));
        assert!(
            said(br#"{"event":"baseline","bytes_received":1,"seconds":1}"#).contains("validation_accuracy")
        );
    }
}
