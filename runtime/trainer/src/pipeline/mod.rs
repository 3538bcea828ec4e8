//! Requests batches in the right order, with prefetch, and at the current split.

mod bad;
mod batches;
mod feed;
mod steer;

pub(crate) use bad::BadSamples;
pub(crate) use batches::{FeedPlan, Part};
pub(crate) use feed::{Feed, FeedBatch};
pub(crate) use steer::Steering;
