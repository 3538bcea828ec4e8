//! Who is next where tenants share something, and the waiting until it is their turn. Deciding is pure, without a clock, a lock or a
//! wait inside; waiting knows nothing of who is first. `docs/waiting.md` says how the two go together.
//!
//! - [`TurnGate`]: permits for long work, in turns between tenants
//! - [`TurnPool`]: threads that work in such turns
//! - [`Memory`]: what a host may hold, as the [`Ledger`] decides, and [`Grant`]s of it for guests' calls
//! - [`Waiters`]: how those of a gate and of memory wait, whatever [`Policy`] decides
//! - [`device`]: which rows run next, on which lane
//! - [`Backoff`]: how long to wait before trying again

mod backoff;
pub mod device;
mod lock;
mod memory;
mod turn_gate;
mod turn_pool;
mod turns;
mod waiters;

pub use backoff::{Backoff, doubled};
pub use lock::Lock;
pub use memory::{Ask, Budget, Grant, Kind, Ledger, Memory, OutOfBudget, Reservation, Reserved};
pub use turn_gate::{EnterError, GateTurns, NEWCOMERS, Permit, Share, Standing, TurnGate};
pub use turn_pool::TurnPool;
pub use waiters::{Held, Policy, Waiters, Waiting};
