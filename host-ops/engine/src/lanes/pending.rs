use super::job::{Outcome, RowJob};
use super::run::Submitter;
use super::shared::Shared;
use frostline_tensor::{BoxFuture, OpError, OpErrorCode, Stage, Tensor};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// Queues a submission immediately. The returned future waits for the outcome.
pub(super) fn submit(
    shared: &Arc<Shared>,
    customer: &Submitter,
    stage: &Stage,
    batch: Tensor,
) -> BoxFuture<Outcome> {
    let (reply, outcome) = oneshot::channel();
    let stage = Stage {
        precision: shared.config.device.precision(customer.terms.terms.precision),
        ..stage.clone()
    };
    let row = shared.networks.source.row(&stage);
    let job = RowJob::new(customer.clone(), stage, batch, row);
    let pushed = job.and_then(|job| shared.push(job, reply));
    match pushed {
        Ok(id) => Box::pin(Pending {
            shared: Arc::clone(shared),
            id,
            outcome,
        }),
        Err(error) => Box::pin(std::future::ready(Err(error))),
    }
}

/// A submission in progress. Dropping it cancels the submission.
struct Pending {
    shared: Arc<Shared>,
    id: u64,
    outcome: oneshot::Receiver<Outcome>,
}

impl Future for Pending {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let outcome = Pin::new(&mut self.outcome).poll(context);
        outcome.map(|outcome| {
            outcome.unwrap_or_else(|_| {
                Err(OpError::from_host(
                    OpErrorCode::RuntimeError,
                    "lane ended before returning an output",
                ))
            })
        })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.outcome.is_terminated() {
            self.shared.cancel(self.id);
        }
    }
}
