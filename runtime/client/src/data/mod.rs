//! Listings of data roots and the conversion into data sets.

mod dataset;
mod division;
mod error;
mod folders;
mod listing;
mod part;
mod reading;
mod samples;
mod shards;
mod shuffle;
mod table;

pub use dataset::{Dataset, Evaluated};
pub use division::{Division, OneSided};
pub use error::{DatasetError, LabelsError};
pub use folders::{Placed, SampleFiles};
use frostline_job::{SkippedObjects, Task};
pub use listing::{Listed, Listing};
pub use part::Part;
pub use samples::Samples;
pub use shuffle::{Purpose, balanced_order, order};
pub use table::LabelTable;
