//! Primitives for hosts and clients that do not depend on scheduling.
//!
//! - [`now`]: the clock of this machine
//! - [`Backoff`]: computes the delay between retries
//! - [`Lock`]: a mutex for programs that may fork

mod backoff;
mod clock;
mod lock;

pub use backoff::{Backoff, doubled};
pub use clock::now;
pub use lock::Lock;
