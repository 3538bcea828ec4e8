//! Reports of run folders as web pages, tables of epochs and TensorBoard files. The same charts draw figures
//! as SVG files.
//!
//! [`Run::read`] accepts the folder of any job, including failed ones, and is the only function that reads
//! files. The size of reports does not depend on the duration of the job. All text in the folder is untrusted
//! and cannot become markup.

mod chart;
mod error;
mod figure;
mod markup;
mod metrics;
mod page;
mod run;
mod tensorboard;

pub use chart::{CutCost, cuts, links};
pub use error::ReportError;
pub use metrics::metrics_csv;
pub use page::html;
pub use run::Run;
pub use tensorboard::tensorboard;
