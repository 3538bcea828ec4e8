//! Batches on their way to the trainer: which samples, in which requests, what became of them.

mod bad;
mod buffer;
mod feed;
mod fetch;
mod flow;
mod request;
mod source;
mod steer;
mod window;

pub(crate) use bad::BadSamples;
pub(crate) use feed::{Feed, FeedPlan, Part};
pub(crate) use fetch::{Fetcher, Transfer};
pub use flow::Flow;
pub(crate) use source::{Rows, Source};
pub(crate) use steer::Steering;
