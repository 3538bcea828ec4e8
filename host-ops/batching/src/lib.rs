//! Fair scheduling of the resources that tenants share: threads, lanes, permits and memory.
//!
//! Policies decide which tenant is served next. They are pure data structures without clocks, locks or waits.
//! Waiting is separate and does not depend on the policy. See `docs/waiting.md`.
//!
//! - [`TurnGate`]: permits for long work, granted to tenants in turns
//! - [`TurnPool`]: threads that execute work of tenants in turns
//! - [`Memory`]: the memory budget of a host, divided by the [`Ledger`], and [`Grant`]s of it for guest calls
//! - [`Waiters`]: the wait queue of gates and memory, for any [`Policy`]
//! - [`device`]: selects the rows that a lane executes next
//! - [`Backoff`]: waits between retries

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
