//! Fetching of samples: requests, placement on hosts, retries, failover and batch assembly.

mod attempt;
mod buffer;
mod exchange;
mod failover;
mod fetcher;
mod inquiry;
mod request;
mod source;
mod straggler;
mod transfer;
mod window;

pub use fetcher::{Fetched, Fetcher};
pub use inquiry::{Inquiry, InquiryError};
pub use source::{RowKind, Source, Weight};
pub(crate) use straggler::StragglerPolicy;
pub use transfer::Transfer;
