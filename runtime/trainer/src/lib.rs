//! The compute side: lists the data, decides where to divide the network, fetches batches ahead while one trains, and
//! writes the tuned model.

mod client;
mod dataset;
mod event;
mod plan;
mod retry;
mod shuffle;

pub use client::{ByteMeter, ClientError, Deadlines, ExtractionStream, HostClient, Token, Uploaded};
pub use dataset::{Dataset, DatasetError, Sample};
pub use event::{Evaluation, Event, Events, Outcome, UploadKind};
pub use plan::{Candidate, Plan, fewest_bytes};
