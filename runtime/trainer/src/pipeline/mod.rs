//! Batches on their way to the trainer: which samples, in which requests, what became of them.

mod bad;
mod buffer;
mod feed;
mod fetch;
mod request;
mod source;

pub(crate) use bad::BadSamples;
pub(crate) use feed::{Batch, Feed, FeedPlan, Part};
pub(crate) use fetch::Fetcher;
pub(crate) use source::{Rows, Source};
