//! A job as data.
//!
//! * [`JobSpec`]: every setting once, with its [`Class`], its default and its text for people. A run's `config.json` is one; flags
//!   ([`flags::Given`]) and a [`Recipe`]'s file overlay one.
//! * [`Event`], [`Notice`], [`Quality`]: what a job tells, as `train --json` prints it and as its folder keeps it. [`Logged`] reads it back.
//! * [`scores`]: figures of one label or one number, for evaluations and reports.
//! * [`plain`], [`Plain`]: text of others on its way to people.
//! * [`folder`]: what lies where in a run's folder, and how a run ended.

mod augment;
mod choice;
mod event;
#[cfg(feature = "flags")]
pub mod flags;
pub mod folder;
mod notice;
mod pixels;
mod plain;
mod prices;
mod quality;
mod rates;
mod recipe;
mod redact;
mod refusal;
pub mod scores;
mod setting;
mod spec;
mod stated_pixels;
mod utc;

pub use choice::{
    CacheLimit, EncodingChoice, ExportPrefix, Keep, NewHead, Objective, OnBadSample, ParsePolicyError,
    Policy, PrefixPrecision, RULES, Unfreezing, Unlisted,
};
pub use event::{Event, Events, LeftOut, Logged, Measuring, ProfileState, Received, Shared, Task};
pub use notice::{HostState, Notice, Notices, UploadKind};
pub use pixels::{Channels, Color, PixelFlags, PixelSource, pixels_line};
pub use plain::{Plain, plain, plain_line};
pub use prices::Prices;
pub use quality::Quality;
pub use rates::{HEAD, LearningRates, REST};
pub use recipe::{BatchNorm, ClassWeights, LossName, OptimizerName, Recipe, Sampling, Scheduler};
pub use redact::without_secrets;
pub use refusal::refusal;
pub use setting::{Class, Setting, SettingError};
pub use spec::{Flow, HostList, HostTerms, JobSpec, SpecError};
pub use stated_pixels::{PREPROCESSOR_CONFIG, StatedPixels};
pub use utc::utc;
