//! Who runs and who waits: extractions, profiles and questions to guests; and the samples that running extractions may hold.

mod admission;
mod lines;

pub(crate) use admission::{Admission, Permit};
pub(crate) use frostline_batching::GrantDesk;
pub(crate) use lines::Standing;
