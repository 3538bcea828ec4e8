//! The isolation suite: everything a tenant might do to a host, one case each, with a neighbour's extraction running beside it.
//!
//! A case is contained when it ends as it should, the neighbour gets what it asked for, and the host still serves. Guests that misbehave
//! are those of `frostline-behaviours`, models those of `frostline-hostile`; requests and images are here.

mod case;
mod exchange;
mod guests;
mod images;
mod memory;
mod models;
mod neighbour;
mod requests;
mod scene;
mod slow;

pub use case::{Case, Class, Expected, Seen};
pub use memory::{BUDGET, MemorySeen, Watch, memory_cases, row_cases};
pub use neighbour::{Neighbour, distinct};
pub use scene::Scene;
pub use slow::keep_lanes;

/// All cases but those of guests that `cargo xtask guests` compiles.
pub fn cases() -> Vec<Case> {
    [guests::made(), models::all(), images::all(), requests::all()].concat()
}

/// Cases of guests that `cargo xtask guests` compiles. For tests in `needs_guests`.
pub fn compiled_guests() -> Vec<Case> {
    guests::compiled()
}
