//! The host's memory: one [`Ledger`], and the waiting for it.

mod kind;
mod ledger;
mod reserved;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use kind::Kind;
pub use ledger::{Ask, Budget, Ledger, NoRoom, Reservation};
pub use reserved::{Grant, Memory, Reserved};
