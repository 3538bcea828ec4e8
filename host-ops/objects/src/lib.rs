//! Object stores addressed by URL: paged listings, reads and writes. This crate is the only user of
//! `object_store`.
//!
//! A [`Store`] is bound to a root: keys are relative to it and cannot escape it. Every operation has a
//! deadline. Concurrent reads are bounded, to prevent a tenant's job from using all connections of a host.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests start threads"))]

mod access;
mod codes;
mod dates;
mod error;
mod explain;
mod fault;
mod folder;
mod hedge;
mod key;
mod kind;
mod local;
mod names;
mod on_fault;
mod open;
mod room;
mod root;
mod scope;
mod shards;
mod store;
#[cfg(test)]
mod tests;
mod tls;

pub use dates::ClockReading;
pub use error::ObjectError;
pub use fault::Fault;
pub use open::{KeysFile, OwnStore, Role, check_scheme, parse_root};
pub use room::{Guard, ReadRoom};
pub use root::LARGEST_READ;
pub use store::Store;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
