//! The isolation suite: attacks of a tenant on a host, one case each, while a neighbor extracts.
//!
//! A case is contained if it ends as expected, the neighbor's activations are bit-identical, the host still serves, and no data leaked:
//! everything a tenant owns is marked, and all that tenants receive and the host writes is searched for marks. Hostile guests are in
//! `frostline-behaviors`, hostile models in `frostline-hostile`; requests and images are here.

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
mod neighbor;
mod requests;
mod scene;
mod slow;
mod tap;

pub use case::{Case, CaseResult, Class, Expected};
pub use lost_lane::{AttemptResult, is_part, lost_lane, play, without_walls};
pub use memory::{BUDGET, MemoryPeak, Watch, memory_cases, row_cases};
pub use mixture::{MixtureReport, mixture};
pub use neighbor::{Neighbor, distinct};
pub use scene::Scene;
pub use slow::keep_lanes;

/// All cases except those of guests that `cargo xtask guests` compiles.
pub fn cases() -> Vec<Case> {
    [guests::made(), models::all(), images::all(), requests::all()].concat()
}

/// Cases of guests that `cargo xtask guests` compiles. For tests in `needs_guests`.
pub fn compiled_guests() -> Vec<Case> {
    guests::compiled()
}
