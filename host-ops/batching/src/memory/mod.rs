//! Memory budget of a host: the [`Ledger`], and waiting for memory.

mod ask;
mod kind;
mod ledger;
mod reserved;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use ask::{Ask, Budget, OutOfBudget, Reservation};
pub use kind::Kind;
pub use ledger::Ledger;
pub use reserved::{Grant, Memory, Reserved};
