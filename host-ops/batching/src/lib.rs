//! How many samples a guest's next call gets, and whose turn it is on threads that tenants share: pure
//! decisions, without a clock, a lock or a wait inside. Whoever asks does the waiting, threads by [`TurnQueue`].
//!
//! - [`Grants`]: which waiting extraction gets samples now, and how many
//! - [`Turns`]: of all tenants with something ready, the one that has used the least time
//! - [`TurnQueue`]: such turns as threads wait for
//! - [`LaneQueue`]: work for the lanes, in such turns, bounded
//! - [`Backoff`]: how long to wait before trying again

mod backoff;
mod grants;
mod lane_queue;
mod turn_queue;
mod turns;

pub use backoff::{Backoff, doubled};
pub use grants::{Budget, Decision, GrantRules, Grants, Holder, Waiting};
pub use lane_queue::{LaneQueue, QueueFull, QueueLimits};
pub use turn_queue::TurnQueue;
pub use turns::Turns;
