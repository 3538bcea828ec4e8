use super::shared::{Shared, Ticket};
use frostline_tensor::{BoxFuture, OpError, Stage, Tensor};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Queues the work at once; the future only waits for it.
pub(super) fn submit(
    shared: &Arc<Shared>,
    tenant: &str,
    stage: &Stage,
    batch: Tensor,
) -> BoxFuture<Result<Tensor, OpError>> {
    match shared.enqueue(tenant, stage, batch) {
        Ok(ticket) => Box::pin(Pending {
            shared: Arc::clone(shared),
            ticket,
        }),
        Err(error) => Box::pin(std::future::ready(Err(error))),
    }
}

/// A submission under way; dropping it takes it back.
struct Pending {
    shared: Arc<Shared>,
    ticket: Ticket,
}

impl Future for Pending {
    type Output = Result<Tensor, OpError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(Pin::new(&mut self.ticket.outcome).poll(context));
        Poll::Ready(outcome.unwrap_or_else(|_| Err(OpError::runtime("the lane ended without an answer"))))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.ticket.outcome.is_terminated() {
            self.shared.cancel(&self.ticket);
        }
    }
}
