//! Batches on their way to the trainer: which samples, in which requests, what became of them.

mod attempt;
mod bad;
mod buffer;
mod exchange;
mod feed;
mod fetch;
mod flow;
mod patience;
mod request;
mod source;
mod steer;
mod window;

pub(crate) use bad::BadSamples;
pub(crate) use feed::{Feed, FeedPlan, Part};
pub(crate) use fetch::{Fetcher, Transfer};
pub use flow::Flow;
pub(crate) use patience::PatiencePolicy;
pub(crate) use source::{Rows, Source, Weight};
pub(crate) use steer::Steering;
