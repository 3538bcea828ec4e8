//! The bodies of the threads.

use super::engine::Engine;
use super::shared::Shared;
use crate::EngineError;
use frostline_tensor::OpError;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;

/// One lane; it tells `started` whether it can work. A panic costs the run that caused it and the lane's sessions, whose
/// state nobody knows any more.
pub(super) fn lane(shared: &Shared, index: usize, started: Sender<Result<(), EngineError>>) {
    let mut engine = Engine::new(shared.config(), index);
    let first = engine.prepare(shared);
    let works = first.is_ok();
    drop(started.send(first));
    drop(started);
    while works
        && engine.recover(shared)
        && let Some(submission) = shared.next(index, || engine.rest())
    {
        let span = &submission.span;
        let run = AssertUnwindSafe(|| span.in_scope(|| engine.execute(shared, index, &submission)));
        let outcome = catch_unwind(run).unwrap_or_else(|panic| {
            engine = Engine::new(shared.config(), index);
            let reason = text_of(&*panic);
            tracing::error!(parent: span, lane = index, reason, "a lane panicked and starts again");
            Err(OpError::runtime(format!(
                "the engine failed on this batch: {reason}"
            )))
        });
        let samples = submission.run.batch.rows().unwrap_or(0);
        drop(submission);
        shared.finish(index, samples, outcome);
    }
}

pub(super) fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a text")
}
