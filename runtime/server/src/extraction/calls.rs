//! Guest calls for an extraction. Each grant is processed by a separate call. Objects sent unchanged are read
//! without grants.

use super::check::CheckedExtraction;
use super::size::GrantSize;
use super::work::{CallRows, READS_AT_ONCE, Work};
use crate::caller::Caller;
use crate::jobs::StageClock;
use crate::metrics::{Queue, SplitKind};
use crate::refusal::Refusal;
use crate::scheduling::TensorMemory;
use frostline_batching::{Grant, Kind};
use frostline_sandbox::Allowance;
use frostline_wire::{JobStage, RequestedSample};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

/// Rows per call, ordered by completion. Dropping the stream cancels all calls.
pub(super) type Calls = BoxStream<'static, Result<CallRows, Refusal>>;

/// Maximum duration of a call. After this time the host ends the call and releases the grant. VGG19, the
/// slowest of the usual networks, needs 0.36 s per sample on one thread, so 16 samples need 6 s plus the time
/// to read them over a slow link. The limit also allows guests with a tenth of this speed.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum time that an extraction waits for the first grant. Later grants may take longer, because the
/// extraction may be waiting for its own client to read.
const FIRST_GRANT_TIMEOUT: Duration = Duration::from_secs(60);

/// State shared by all calls.
struct ExtractionState {
    caller: Caller,
    work: Work,
    kind: SplitKind,
    clock: Arc<StageClock>,
    size: Option<GrantSize>,
    tensors: Arc<TensorMemory>,
    allowance: Arc<Allowance>,
    /// True if a grant was received.
    has_grant: AtomicBool,
    remaining: Mutex<std::vec::IntoIter<RequestedSample>>,
}

/// Starts the calls for an extraction. Several grants are processed concurrently, so reading, computing and
/// encoding overlap. Objects sent unchanged need no grant; each call reads a single object and reserves
/// memory during the read.
///
/// Calls are separate tasks, which continue while the client reads slowly. No further calls start in the
/// meantime, because the results are not consumed.
pub(super) fn start_calls(
    caller: Caller,
    checked: CheckedExtraction,
    kind: SplitKind,
    clock: Arc<StageClock>,
) -> Calls {
    let at_once = match checked.size {
        Some(_) => caller.config().calls,
        None => READS_AT_ONCE,
    };
    let shared = Arc::new(ExtractionState {
        caller,
        work: checked.work,
        kind,
        clock,
        size: checked.size,
        tensors: checked.tensors,
        allowance: checked.allowance,
        has_grant: AtomicBool::new(false),
        remaining: Mutex::new(checked.samples.into_iter()),
    });
    let tasks = stream::unfold(shared, |shared| async move {
        if shared.remaining.lock().len() == 0 {
            return None;
        }
        let task = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&shared).run_next().in_current_span()));
        let task = async move {
            task.await
                .unwrap_or_else(|error| Err(Refusal::host(format!("guest call failed: {error}"))))
        };
        Some((task, shared))
    });
    tasks
        .buffer_unordered(at_once)
        .filter_map(|outcome| async move { outcome.transpose() })
        .boxed()
}

impl ExtractionState {
    /// Waits for a grant and runs a call with its samples. Returns `None` if other calls took the last
    /// samples in the meantime.
    async fn run_next(self: Arc<Self>) -> Result<Option<CallRows>, Refusal> {
        if let Some(guest) = self.work.guest() {
            // An admin may have disabled the guest after the start of the extraction.
            self.caller.check_guest_enabled(guest)?;
        }
        let grant = match &self.size {
            Some(size) => Some((size, self.wait_for_grant(size).await?)),
            None => None,
        };
        let samples = grant.as_ref().map_or(1, |(_, grant)| grant.samples);
        let samples: Vec<RequestedSample> = self.remaining.lock().by_ref().take(samples).collect();
        if samples.is_empty() {
            return Ok(None);
        }
        let cover = grant
            .as_ref()
            .map(|(_, grant)| self.tensors.cover(grant.memory.bytes()));
        let started = Instant::now();
        let outcome = timeout(CALL_TIMEOUT, self.work.clone().call(samples)).await;
        let took = started.elapsed();
        self.caller.metrics().call_seconds.observe(took);
        let mut rows = outcome.map_err(|_| Refusal::Deadline {
            seconds: took.as_secs(),
        })??;
        let exceeded = |error| Refusal::quota(error, &self.caller.tenant().name);
        self.allowance.check_object_bytes().map_err(exceeded)?;
        drop(cover);
        if let Some((size, mut grant)) = grant {
            // The reservation is held until the rows are sent. Shrinking a reservation never fails.
            let row_memory = size.row_memory(rows.bytes()).min(grant.memory.bytes());
            grant.memory.resize(row_memory).ok();
            rows.memory = Some(grant.memory);
        }
        let (good, bad) = rows.counts();
        self.caller
            .metrics()
            .count_samples(&self.caller.tenant().name, self.kind, good, bad);
        self.clock.count_images(good + bad);
        Ok(Some(rows))
    }

    /// Waits for the next grant. The size depends on the current rate of the tenant's own rows.
    async fn wait_for_grant(&self, size: &GrantSize) -> Result<Grant, Refusal> {
        let tenant = &self.caller.tenant().name;
        let own = self.caller.machine().lanes.rates_of(tenant).into_iter();
        let mut own = own.filter(|(stage, _)| size.stage.as_ref() == Some(stage));
        let rate = own.next().map(|(_, rate)| rate);
        let samples = self.remaining.lock().len().clamp(1, size.samples(rate));
        let limit = if self.has_grant.load(Ordering::Relaxed) {
            self.caller.tenant().quota.wall()
        } else {
            FIRST_GRANT_TIMEOUT
        };
        let room = self.caller.memory(Kind::Grant);
        let started = Instant::now();
        let grant = room
            .grant(samples, size.bytes_per_call, size.bytes_per_sample, limit)
            .await;
        let waits = &self.caller.metrics().queue_waits;
        let waited = started.elapsed();
        waits.observe(Queue::Memory, waited);
        let grant = grant?;
        self.clock.add(JobStage::Memory, waited, grant.samples as u64);
        self.has_grant.store(true, Ordering::Relaxed);
        Ok(grant)
    }
}
