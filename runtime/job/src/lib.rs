//! Settings, events and files of a fine-tuning job.
//!
//! * [`JobSpec`]: all job settings, including classes, defaults and help texts. This is the format of a run's
//!   `config.json`. Flags ([`flags::GivenFlags`]) and recipe files ([`Recipe`]) can override individual settings.
//! * [`Event`], [`Notice`], [`Quality`]: progress and results. The same types are used by `train --json` and
//!   in run folders. [`LoggedEvent`] parses stored events.
//! * [`scores`]: metrics for a single label or number, shared by evaluations and reports.
//! * [`plain()`], [`Plain`]: escaping of untrusted text for terminals.
//! * [`folder`]: run folder layout.

mod augment;
mod choice;
mod event;
#[cfg(feature = "flags")]
pub mod flags;
pub mod folder;
mod link_point;
mod notice;
mod pixels;
mod plain;
mod prices;
mod processor;
mod quality;
mod rates;
mod recipe;
mod refusal;
pub mod scores;
mod setting;
mod spec;
pub mod spreadsheet;
mod stated_pixels;
mod utc;

pub use choice::{
    CacheLimit, EncodingChoice, ExportPrefix, Keep, NewHead, Objective, OnBadSample, ParsePolicyError,
    Policy, PrefixPrecision, RULES, Unfreezing, Unlisted,
};
pub use event::{
    Event, Events, JobResult, ListedData, LoggedEvent, Measuring, ProfileState, Received, SkippedObjects,
    Task, TrainedEpoch, TrainedStep,
};
pub use link_point::LinkPoint;
pub use notice::{HostState, Notice, Notices, UploadKind};
pub use pixels::{Channels, Color, PixelFlags, PixelSource, pixels_line};
pub use plain::{Plain, plain, plain_line};
pub use prices::Prices;
pub use quality::Quality;
pub use rates::{HEAD, LearningRates, REST};
pub use recipe::{BatchNorm, ClassWeights, LossName, OptimizerName, Recipe, Sampling, Scheduler};
pub use refusal::{refusal, sweep_refusal};
pub use setting::{Class, Conflict, Setting, SettingError};
pub use spec::{FetchLimits, HostList, HostTerms, JobSpec, SpecError};
pub use stated_pixels::{PREPROCESSOR_CONFIG, StatedPixels};
pub use utc::utc;
