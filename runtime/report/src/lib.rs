//! A run folder as things a person looks at: a page that stands alone, a table of its epochs, a file for TensorBoard; and figures as SVG
//! files, drawn by the same charts.
//!
//! [`Run::read`] takes what a job left, however it ended, and is the only place that reads files. What is made of it is bounded, however
//! long the job was, and treats every word of the folder as a stranger's: nothing of it can become markup.

mod chart;
mod error;
mod facts;
mod figure;
mod markup;
mod metrics;
mod page;
mod run;
mod tensorboard;

pub use chart::{Cut, Cuts, LinkPoint, Links, cuts, links};
pub use error::ReportError;
pub use metrics::metrics_csv;
pub use page::html;
pub use run::Run;
pub use tensorboard::tensorboard;
