//! Object stores by URL: list in pages, read, create; the one address of `object_store`.
//!
//! A [`Store`] is bound to a root: keys are relative to it and never escape it. Every operation has a deadline, and reads at
//! once are bounded, so that one tenant's job cannot take all of a host's connections.

mod codes;
mod error;
mod explain;
mod fault;
mod fetch;
mod folder;
mod hedge;
mod key;
mod kind;
mod list;
mod local;
mod names;
mod open;
mod room;
mod root;
mod scope;
mod shards;
mod store;
#[cfg(test)]
mod tests;
mod tls;

pub use error::ObjectError;
pub use fault::Fault;
pub use open::{KeysFile, OwnStore, Role, check_scheme};
pub use room::{Guard, ReadRoom};
pub use store::{LARGEST_READ, Store};
