//! Guest calls for an extraction. Each grant is processed by a separate call. Objects sent unchanged are read
//! without grants.

use super::check::CheckedExtraction;
use super::size::{BYTES_PER_CALL, GrantSize};
use super::work::{CallError, CallRows, READS_AT_ONCE, RowWork};
use crate::caller::Caller;
use crate::jobs::StageClock;
use crate::metrics::{Queue, SplitKind};
use crate::refusal::Refusal;
use crate::scheduling::TensorMemory;
use frostline_batching::{Charge, Grant, Kind};
use frostline_sandbox::Allowance;
use frostline_wire::{JobStage, RequestedSample};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
    work: RowWork,
    kind: SplitKind,
    clock: Arc<StageClock>,
    size: Option<GrantSize>,
    tensors: Arc<TensorMemory>,
    allowance: Arc<Allowance>,
    /// True if a grant was received.
    has_grant: AtomicBool,
    /// Maximum number of samples in a call. Halved when a call with more samples exceeds a memory limit of guests,
    /// so that the success of a guest does not depend on the size of grants, and thereby on the speed of the host.
    max_samples: AtomicUsize,
    remaining: Mutex<VecDeque<RequestedSample>>,
}

/// Samples of a call with their grant, which is not set for objects sent unchanged.
type NextCall = (Vec<RequestedSample>, Option<Grant>);

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
        max_samples: AtomicUsize::new(usize::MAX),
        remaining: Mutex::new(checked.samples.into()),
    });
    // A worker that returns samples after a failed call continues, so samples are never left over.
    let workers = (0..at_once).map(|_| {
        let calls = stream::try_unfold(Arc::clone(&shared), |shared| async move {
            let call = Arc::clone(&shared).run_next().in_current_span();
            let task = AbortOnDropHandle::new(tokio::spawn(Charge::current().pay_for(call)));
            let rows = task
                .await
                .map_err(|error| Refusal::host(format!("guest call failed: {error}")))??;
            Ok(rows.map(|rows| (rows, shared)))
        });
        calls.boxed()
    });
    stream::select_all(workers).boxed()
}

impl ExtractionState {
    /// Runs a call with the next samples. If it exceeds a memory limit, repeats it with half the samples. Returns
    /// `None` if no samples remain.
    async fn run_next(self: Arc<Self>) -> Result<Option<CallRows>, Refusal> {
        while let Some((samples, grant)) = self.next_call().await? {
            match self.run_call(samples.clone(), grant).await {
                Err(error) if error.needs_fewer_samples && samples.len() > 1 => {
                    self.halve(samples, &error.refusal)
                }
                outcome => return outcome.map(Some).map_err(|error| error.refusal),
            }
        }
        Ok(None)
    }

    /// Waits for a grant and takes its samples. Returns `None` if no samples remain.
    async fn next_call(&self) -> Result<Option<NextCall>, Refusal> {
        if self.remaining.lock().is_empty() {
            return Ok(None);
        }
        if let Some(guest) = self.work.guest() {
            // An admin may have disabled the guest after the start of the extraction.
            self.caller.check_guest_enabled(guest)?;
        }
        let grant = match &self.size {
            Some(size) => Some(self.wait_for_grant(size).await?),
            None => None,
        };
        let granted = grant.as_ref().map_or(1, |grant| grant.samples);
        let mut remaining = self.remaining.lock();
        // Other calls may have taken the last samples in the meantime.
        let count = granted.min(remaining.len());
        let samples: Vec<RequestedSample> = remaining.drain(..count).collect();
        Ok((count > 0).then_some((samples, grant)))
    }

    async fn run_call(
        &self,
        samples: Vec<RequestedSample>,
        grant: Option<Grant>,
    ) -> Result<CallRows, CallError> {
        let cover = grant
            .as_ref()
            .map(|grant| self.tensors.cover(grant.memory.bytes()));
        let started = Instant::now();
        let outcome = timeout(CALL_TIMEOUT, self.work.clone().call(samples)).await;
        let took = started.elapsed();
        self.caller.metrics().call_seconds.observe(took);
        let mut rows = outcome.map_err(|_| Refusal::Deadline {
            seconds: took.as_secs(),
        })??;
        self.allowance
            .check_object_bytes()
            .map_err(|error| Refusal::quota(error, &self.caller.tenant().name))?;
        drop(cover);
        if let (Some(size), Some(mut grant)) = (&self.size, grant) {
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
        Ok(rows)
    }

    /// Returns the samples of a call that exceeded a memory limit, and halves the number of samples per call. The
    /// author of the guest finds the reason in the guest's log.
    fn halve(&self, samples: Vec<RequestedSample>, reason: &Refusal) {
        let half = samples.len() / 2;
        self.max_samples.fetch_min(half, Ordering::Relaxed);
        self.caller.metrics().calls_halved.inc();
        if let RowWork::Activations { context, .. } = &self.work
            && let Some(on_log_line) = &context.on_log_line
        {
            let count = samples.len();
            on_log_line(
                "warn",
                &format!("a call with {count} samples is repeated with {half}: {reason}"),
            );
        }
        let mut remaining = self.remaining.lock();
        samples
            .into_iter()
            .rev()
            .for_each(|sample| remaining.push_front(sample));
    }

    /// Waits for the next grant. The size depends on the current rate of the tenant's own rows.
    async fn wait_for_grant(&self, size: &GrantSize) -> Result<Grant, Refusal> {
        let tenant = &self.caller.tenant().name;
        let own = self.caller.machine().lanes.rates_of(tenant).into_iter();
        let mut own = own.filter(|(stage, _)| size.stage.as_ref() == Some(stage));
        let rate = own.next().map(|(_, rate)| rate);
        let most = size.samples(rate).min(self.max_samples.load(Ordering::Relaxed));
        let samples = self.remaining.lock().len().clamp(1, most);
        let limit = if self.has_grant.load(Ordering::Relaxed) {
            self.caller.tenant().quota.wall()
        } else {
            FIRST_GRANT_TIMEOUT
        };
        let room = self.caller.memory(Kind::Grant);
        let started = Instant::now();
        let grant = room
            .grant(samples, BYTES_PER_CALL, size.bytes_per_sample, limit)
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
