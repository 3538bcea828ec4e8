//! The isolation suite: everything a tenant might do to a host, one case each, with a neighbour's extraction running beside it.
//!
//! A case is contained when it ends as it should, the neighbour gets what it asked for bit for bit, the host still serves, and nobody saw
//! what is another's: all that tenants have is marked, and all that they receive and the host writes is looked through. Guests that misbehave
//! are those of `frostline-behaviours`, models those of `frostline-hostile`; requests and images are here.

mod canary;
mod case;
mod exchange;
mod floods;
mod guests;
mod images;
mod lost_lane;
mod memory;
mod mixture;
mod models;
mod neighbour;
mod requests;
mod scene;
mod slow;
mod tap;

pub use case::{Case, Class, Expected, Seen};
pub use lost_lane::{Tried, is_part, lost_lane, play, without_walls};
pub use memory::{BUDGET, MemorySeen, Watch, memory_cases, row_cases};
pub use mixture::{Mixed, mixture};
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
