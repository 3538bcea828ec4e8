//! The calls of an extraction: for every grant one.

use super::work::{CallRows, Work};
use crate::caller::Caller;
use crate::metrics::SplitKind;
use crate::refusal::Refusal;
use frostline_wire::RequestedSample;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

/// Rows by call, in the order the calls end; dropping it cancels them all.
pub(super) type Calls = BoxStream<'static, Result<CallRows, Refusal>>;

/// What the calls of one extraction share.
struct Shared {
    caller: Caller,
    work: Work,
    kind: SplitKind,
    left: Mutex<std::vec::IntoIter<RequestedSample>>,
}

/// The calls of an extraction: for every grant one, several at once, so that reading, computing and encoding overlap.
/// Each is a task of its own, so it goes on and gives its grant back while the client is slow; no further one is started
/// then, because nobody takes the results.
pub(super) fn calls(caller: Caller, work: Work, kind: SplitKind, samples: Vec<RequestedSample>) -> Calls {
    let at_once = caller.config().calls;
    let shared = Arc::new(Shared {
        caller,
        work,
        kind,
        left: Mutex::new(samples.into_iter()),
    });
    let tasks = stream::unfold(shared, |shared| async move {
        if shared.left.lock().len() == 0 {
            return None;
        }
        let task = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&shared).call().in_current_span()));
        let task = async move {
            task.await
                .unwrap_or_else(|lost| Err(Refusal::host(format!("a call was lost: {lost}"))))
        };
        Some((task, shared))
    });
    tasks
        .buffer_unordered(at_once)
        .filter_map(|outcome| async move { outcome.transpose() })
        .boxed()
}

impl Shared {
    /// Waits for a grant and calls with its samples; `None` when other calls took the last ones meanwhile.
    async fn call(self: Arc<Self>) -> Result<Option<CallRows>, Refusal> {
        if let Some(guest) = self.work.guest() {
            // An admin may have disabled it since the extraction began.
            self.caller.may_run(guest)?;
        }
        let left = self.left.lock().len();
        let Some(grant) = self
            .caller
            .scheduling()
            .desk
            .next(&self.caller.tenant().name, left)
            .await
        else {
            return Ok(None);
        };
        let samples: Vec<RequestedSample> = self.left.lock().by_ref().take(grant.samples).collect();
        if samples.is_empty() {
            return Ok(None);
        }
        let started = Instant::now();
        let outcome = timeout_at(Instant::from_std(grant.until), self.work.clone().call(samples)).await;
        drop(grant);
        let took = started.elapsed();
        self.caller.metrics().call_seconds.observe(took);
        let rows = outcome.map_err(|_| Refusal::Deadline {
            seconds: took.as_secs(),
        })??;
        let (good, bad) = rows.count();
        self.caller
            .metrics()
            .answered(&self.caller.tenant().name, self.kind, good, bad);
        Ok(Some(rows))
    }
}
