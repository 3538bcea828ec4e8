//! Listings of data roots and the conversion into data sets.

mod dataset;
mod division;
mod error;
mod folders;
mod listing;
mod output_number;
mod part;
mod reading;
mod samples;
mod shuffle;
mod spelling;
mod subfolders;
mod table;

pub use dataset::{AssumedNames, Dataset, Evaluated};
pub use division::{ClassWarning, Division};
pub use error::{DatasetError, ExpectedLabels, LabelsError};
pub use folders::{Placed, SampleFiles};
use frostline_job::{SkippedObjects, Task};
pub use listing::{Listed, Listing};
pub use part::Part;
pub use samples::Samples;
pub use shuffle::{Purpose, balanced_order, order};
pub use spelling::is_same_name;
pub use subfolders::Subfolders;
pub use table::LabelTable;
