//! Memory budget of a host with the [`Ledger`] and the queue of waiting requests.

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
