//! The isolation suite runs attacks of tenants on a host while a neighbor extracts.
//!
//! A case is contained if it ends as expected, the neighbor's activations are bit-identical, the host still
//! serves, and no data leaked. To detect leaks, all data of tenants is marked, and everything that tenants
//! receive and hosts write is searched for marks. Hostile guests are in `frostline-behaviors`, hostile models
//! in `frostline-hostile`, requests and images here.

mod behavior;
mod canary;
mod case;
mod exchange;
mod floods;
mod footprint;
mod guests;
mod images;
mod knowledge;
mod lost_lane;
mod memory;
mod mixture;
mod models;
mod neighbor;
mod requests;
mod scene;
mod slow;
mod tap;
mod walks;

pub use behavior::{behavior_cases, routes};
pub use case::{AttackKind, Case, CaseResult, Expected};
pub use footprint::Footprint;
pub use lost_lane::{
    AttackedLog, AttemptResult, FORGED, LOGGED, is_simulation, lost_lane, lost_lane_logs, run_simulation,
    without_walls,
};
pub use memory::{BUDGET, MemoryPeak, Watch, memory_cases, row_cases, unread_cases};
pub use mixture::{MixtureReport, MixtureSettings, mixture};
pub use neighbor::{Neighbor, distinct};
pub use scene::Scene;
pub use slow::{keep_lanes, slow_cases};

/// Returns all cases that need no compiled guests.
pub fn cases() -> Vec<Case> {
    [
        guests::made(),
        models::all(),
        images::all(),
        requests::all(),
        knowledge::all(),
        walks::all(),
    ]
    .concat()
}

/// Returns the cases with guests that `cargo xtask guests` compiles. For tests in `needs_guests`.
pub fn compiled_guests() -> Vec<Case> {
    guests::compiled()
}
