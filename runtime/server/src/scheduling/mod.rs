//! Who runs and who waits: extractions, profiles and questions to guests; and the samples that running extractions may hold.

mod admission;
mod desk;
mod lines;

pub(crate) use admission::{Admission, Permit};
pub(crate) use desk::GrantDesk;
pub(crate) use lines::Standing;
