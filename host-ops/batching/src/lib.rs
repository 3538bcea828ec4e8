//! Fair scheduling of resources shared by tenants, such as threads, lanes, permits and memory.
//!
//! Policies decide which tenant is served next. Policies are pure data structures and contain no clocks,
//! locks or waits. Waiting is separate and does not depend on the policy. See `docs/waiting.md`.
//!
//! - [`TurnGate`]: permits for long work, granted to tenants in turns
//! - [`TurnPool`]: threads that execute work of tenants in turns
//! - [`run_blocking`]: runs blocking work for a tenant until the client disconnects
//! - [`Charge`]: accounts CPU time of threads to a tenant
//! - [`TenantPermits`]: private permits per tenant, acquired before shared ones
//! - [`Memory`]: the host's memory budget with its [`Ledger`], and [`Grant`]s for guest calls
//! - [`Waiters`]: queues waiting requests for any [`Policy`]
//! - [`device`]: assigns rows to lanes

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests start threads"))]

mod blocking;
mod charge;
pub mod device;
mod memory;
mod shares;
mod tenant_permits;
mod turn_gate;
mod turn_pool;
mod turns;
mod waiters;

pub use blocking::{Stop, Unfinished, run_blocking};
pub use charge::{Charge, thread_cpu};
pub use memory::{Ask, Budget, Grant, Kind, Ledger, Memory, OutOfBudget, Reservation, Reserved};
pub use tenant_permits::TenantPermits;
pub use turn_gate::{EnterError, GateTurns, NEWCOMERS, Permit, Share, Standing, TurnGate};
pub use turn_pool::TurnPool;
pub use waiters::{HeldShare, Policy, Waiters, Waiting};
