//! Which objects there are, and how they become samples of a classification task.

mod dataset;
mod error;
mod folders;
mod listing;
mod samples;
mod shards;
mod shuffle;

pub use dataset::{Dataset, LeftOut};
pub use error::DatasetError;
pub use folders::SampleFiles;
pub use listing::{Listed, Listing};
pub use samples::Samples;
pub use shuffle::{Purpose, balanced_order, order};
