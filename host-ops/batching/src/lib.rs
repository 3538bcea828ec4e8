//! Who is next where tenants share something, and the waiting until it is their turn. Deciding is pure, without a clock, a lock or a
//! wait inside; waiting knows nothing of who is first. `docs/waiting.md` says how the two go together.
//!
//! - [`TurnGate`]: permits for long work, in turns between tenants
//! - [`TurnPool`]: threads that work in such turns
//! - [`GrantDesk`]: where extractions wait for samples, as [`Grants`] decides
//! - [`Waiters`]: how those of a gate and a desk wait, whatever [`Policy`] decides
//! - [`LaneQueue`]: work for the lanes, in turns, bounded
//! - [`device`]: which rows run next, on which lane
//! - [`Backoff`]: how long to wait before trying again

mod backoff;
pub mod device;
mod grant_desk;
mod grants;
mod lane_queue;
mod memory;
mod turn_gate;
mod turn_pool;
mod turns;
mod waiters;

pub use backoff::{Backoff, doubled};
pub use grant_desk::{Grant, GrantDesk};
pub use grants::{GrantRules, Granted, Grants};
pub use lane_queue::{LaneQueue, QueueFull, QueueLimits};
pub use memory::{Ask, Budget, Grant as MemoryGrant, Kind, Ledger, Memory, NoRoom, Reservation, Reserved};
pub use turn_gate::{EnterError, GateTurns, NEWCOMERS, Permit, Share, Standing, TurnGate};
pub use turn_pool::TurnPool;
pub use waiters::{Held, Policy, Waiters, Waiting};
