//! The bodies of the threads.

use super::engine::Engine;
use super::shared::Shared;
use crate::EngineError;
use frostline_tensor::OpError;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;

/// One lane; it tells `started` whether it can work. A panic costs the job that caused it and the lane's sessions, whose
/// state nobody knows any more.
pub(super) fn lane(shared: &Shared, index: usize, started: Sender<Result<(), EngineError>>) {
    let mut engine = Engine::new(shared.config(), index);
    let first = engine.prepare(shared);
    let works = first.is_ok();
    drop(started.send(first));
    drop(started);
    while works
        && engine.recover(shared)
        && let Some(job) = shared.next_job(index, || engine.rest())
    {
        let run = AssertUnwindSafe(|| job.span.in_scope(|| engine.execute(shared, index, &job)));
        let outcome = catch_unwind(run).unwrap_or_else(|panic| {
            engine = Engine::new(shared.config(), index);
            let reason = text_of(&*panic);
            tracing::error!(parent: &job.span, lane = index, reason, "a lane panicked and starts again");
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

pub(super) fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a text")
}
