//! How many samples a guest's next call gets, and in which order lanes work: pure decisions, without a clock, a lock or
//! a wait inside. Whoever asks does the waiting.
//!
//! - [`Grants`]: which waiting extraction gets samples now, and how many
//! - [`LaneQueue`]: work for the lanes, in order of arrival within a tenant, in turns between tenants, bounded

mod grants;
mod lane_queue;

pub use grants::{Budget, Decision, GrantRules, Grants, Waiting};
pub use lane_queue::{LaneQueue, QueueFull, QueueLimits};
