//! Batches on their way to the trainer: which samples, when, divided where.

mod bad;
mod feed;
mod flow;
mod steer;

pub(crate) use bad::BadSamples;
pub(crate) use feed::{Feed, FeedPlan, Part};
pub use flow::Flow;
pub(crate) use steer::Steering;
