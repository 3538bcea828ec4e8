//! Features: rows of activations at a job's freeze cut, kept on this machine's disk so that the frozen layers run once for each sample.
//!
//! * [`Cache`]: a folder of stores within a number of bytes; the one used longest ago goes first.
//! * [`Provenance`]: what the values of rows depend on, by which all programs find each other's.
//! * [`Store`]: the rows of one [`Subject`], found by [`RowKey`]; any number of jobs use it at once.
//! * [`Segment`]: rows of a store as they lie in a [`SegmentStore`] for other machines.
//!
//! A row is believed by its checksum alone: whatever happened to the files, a store gives the row that was kept, or none. It knows nothing of
//! training, hosts or networks. `docs/features.md` describes the files.

mod cache;
mod error;
mod index;
mod provenance;
mod row;
mod segment;
mod shared;
mod store;
#[cfg(test)]
mod tests;
mod writer;

pub use cache::{Cache, Listed, Subject, folder_of_user};
pub use error::FeatureError;
pub use provenance::{Exactly, Provenance, Rounding};
pub use row::{Form, Row, RowKey, RowKeys};
pub use segment::{BrokenSegment, Segment, SegmentForm};
pub use shared::{SegmentStore, Stored, Unavailable};
pub use store::{Found, Store};
pub use writer::Stopped;
