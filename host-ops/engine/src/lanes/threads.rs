//! Thread functions of the lanes.

use super::engine::Engine;
use super::order::{Order, OrderResult, Task};
use super::preparing::PreparationTask;
use super::shared::Shared;
use crate::EngineError;
use frostline_tensor::OpError;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use tracing::Span;

/// Runs a lane. Sends the result of the first start to `started`.
pub(super) fn lane(shared: &Shared, index: usize, started: Sender<Result<(), EngineError>>) {
    let mut engine = Engine::new(&shared.config, index);
    let first = engine.prepare(shared, index);
    let works = first.is_ok();
    drop(started.send(first));
    drop(started);
    let mut rested = false;
    while works
        && engine.recover(shared, index)
        && let Some(task) = shared.next(index, rested)
    {
        rested = matches!(task, Task::Rest);
        match task {
            Task::Run(order) => {
                let ended = run(&mut engine, shared, index, &order);
                // Release the submissions' memory before their callers are notified.
                drop(order);
                shared.finish(index, ended);
            }
            Task::Close(stages) => shared.gave_back(index, engine.close(&stages), true),
            Task::Rest => shared.gave_back(index, engine.rest(), false),
        }
    }
}

/// Prepares stages as preparation `slot` until the lanes end.
pub(super) fn prepare(shared: &Shared, slot: usize) {
    while let Some(task) = shared.next_preparation(slot) {
        let prepare = AssertUnwindSafe(|| {
            let PreparationTask {
                stage,
                tenant,
                interrupt,
            } = &task;
            shared.networks.prepare(stage, tenant, interrupt);
        });
        if let Err(panic) = catch_unwind(prepare) {
            let reason = text_of(&*panic);
            tracing::error!(
                slot,
                reason,
                "preparing a stage panicked; running without preparation"
            );
        }
        shared.finish_preparation(slot);
    }
}

/// Runs an order. A panic fails the order and resets the engine, because its sessions may be in an invalid
/// state.
fn run(engine: &mut Engine, shared: &Shared, index: usize, order: &Order) -> OrderResult {
    let span = order
        .parts
        .first()
        .map(|part| part.job.span.clone())
        .unwrap_or_else(Span::none);
    let run = AssertUnwindSafe(|| span.in_scope(|| engine.run(shared, index, order)));
    catch_unwind(run).unwrap_or_else(|panic| {
        *engine = Engine::new(&shared.config, index);
        let reason = text_of(&*panic);
        tracing::error!(parent: &span, lane = index, reason, "a lane panicked; resetting the lane's engine");
        OrderResult::failed(OpError::runtime(format!(
            "the engine failed on this batch: {reason}"
        )))
    })
}

pub(super) fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic without a message")
}
