//! The bodies of the threads.

use super::execute::Sessions;
use super::shared::Shared;
use frostline_tensor::OpError;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One lane. A panic costs the job that caused it and the lane's sessions, whose state nobody knows any more.
pub(super) fn lane(shared: &Shared, index: usize) {
    let mut sessions = Sessions::new(shared.config());
    while let Some(job) = shared.next_job(index) {
        let run = AssertUnwindSafe(|| sessions.execute(shared.source(), &job, || shared.opened(index)));
        let outcome = catch_unwind(run).unwrap_or_else(|panic| {
            sessions = Sessions::new(shared.config());
            let reason = text_of(&*panic);
            tracing::error!(lane = index, reason, "a lane panicked and starts again");
            Err(OpError::runtime(format!(
                "the engine failed on this batch: {reason}"
            )))
        });
        let samples = job.batch.rows().unwrap_or(0);
        drop(job);
        shared.finish(index, samples, outcome);
    }
}

/// The clock that ends what takes too long.
pub(super) fn clock(shared: &Shared) {
    while shared.tick() {}
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a text")
}
