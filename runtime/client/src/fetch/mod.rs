//! Fetching of samples: requests, placement on hosts, retries, failover and batch assembly.

mod attempt;
mod buffer;
mod exchange;
mod failover;
mod fetcher;
mod inquiry;
mod pass;
mod patience;
mod request;
mod source;
mod transfer;
mod window;

pub use fetcher::{Fetched, Fetcher};
pub use inquiry::{Inquiry, InquiryError};
pub use pass::{Ahead, Pass, Passed};
pub(crate) use patience::PatiencePolicy;
pub use source::{RowKind, Source, Weight};
pub use transfer::Transfer;
