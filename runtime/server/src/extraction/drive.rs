//! Drives an extraction: admission, grants, calls, encoding, sending.

use super::calls::{Calls, start_calls};
use super::check;
use super::encoder::Encoder;
use crate::caller::Caller;
use crate::jobs::{JobExtraction, NewExtraction, StageClock};
use crate::metrics::{Outcome, Queue, SplitKind};
use crate::refusal::Refusal;
use crate::scheduling::AdmissionPermit;
use bytes::Bytes;
use frostline_batching::{Charge, Reserved};
use frostline_state::unique_id;
use frostline_wire::{ErrorClass, ExtractionRequest, JobStage, Split, StageSeconds};
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

/// Chunk of an answer.
pub(crate) enum Piece {
    Rows(Vec<Bytes>),
    /// Final rows and timing. Without this part, the answer is aborted.
    End(Vec<Bytes>, Timing),
}

/// Timing of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Timing {
    /// Time for the whole answer, including the wait for a permit but not for the client.
    pub(crate) work: Duration,
    /// Time spent on the images per stage.
    pub(crate) stages: StageSeconds,
}

/// Encoded rows of a chunk and the number of images.
struct EncodedRows {
    pieces: Vec<Bytes>,
    images: u64,
}

/// An extraction whose first rows have been computed.
pub(crate) struct Extraction {
    caller: Caller,
    /// Name of the guest. Only set for splits at a cut.
    guest: Option<String>,
    kind: SplitKind,
    in_job: JobExtraction,
    first: Option<EncodedRows>,
    calls: Calls,
    encoder: Encoder,
    permit: AdmissionPermit,
    /// Memory of the request, held until the extraction ends.
    memory: Reserved,
    deadline: Instant,
    /// When the client began to wait for a permit.
    started: Instant,
    /// Duration from `started` to the first rows, including the wait for a permit.
    until_first: Duration,
}

pub(crate) struct ClientRequest {
    pub(crate) request: ExtractionRequest,
    /// Id of the client's trace, which is used as job id.
    pub(crate) trace: Option<String>,
}

impl Extraction {
    /// Validates a request, then waits for a permit and for the first rows. Dropping this future cancels all
    /// work that was started.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the request is refused, or fails before the first rows are available.
    pub(crate) async fn start(
        caller: Caller,
        client_request: ClientRequest,
        memory: Reserved,
        deadline: Instant,
    ) -> Result<Self, Refusal> {
        let id = unique_id()
            .map_err(|error| Refusal::host(format!("cannot generate an extraction id: {error}")))?;
        tracing::Span::current().record("extraction", &id);
        let request = &client_request.request;
        caller.check_budgets()?;
        check::precheck(&caller, request)?;
        let tenant = caller.tenant();
        let kind = SplitKind::from(&request.split);
        let guest = match &request.split {
            Split::Cut(_) => request.guest.as_ref().map(|pin| pin.name.clone()),
            Split::None | Split::Input => None,
        };
        let seconds = tenant.quota.wall().as_secs();
        let mut in_job = enqueue(&caller, &id, &client_request)?;
        let images = request.samples.len();
        let started = Instant::now();
        let entering = caller
            .scheduling()
            .extractions
            .enter(&tenant.name, tenant.quota.permits());
        let permit = timeout_at(deadline, entering).await;
        let permit = permit.map_err(|_| Refusal::Deadline { seconds })??;
        let waits = &caller.metrics().queue_waits;
        waits.observe(Queue::Extraction, started.elapsed());
        in_job.enter(started.elapsed(), images);
        let clock = in_job.clock();
        let first = first_rows(&caller, id, client_request, kind, clock);
        let started_calls = tokio::select! {
            started_calls = timeout_at(deadline, first) => {
                started_calls.map_err(|_| Refusal::Deadline { seconds }).flatten()
            }
            refusal = caller.wait_until_refused(|| check_may_continue(&caller, clock.job(), guest.as_deref())) => Err(refusal),
        };
        let (first, encoder, calls) = started_calls.inspect_err(|_| {
            caller
                .metrics()
                .count_extraction(&tenant.name, kind, Outcome::Refused)
        })?;
        Ok(Self {
            caller,
            guest,
            kind,
            in_job,
            first,
            calls,
            encoder,
            permit,
            memory,
            deadline,
            started,
            until_first: started.elapsed(),
        })
    }

    /// Sends all rows in a separate task. The task ends early if the receiver of `pieces` is dropped.
    pub(crate) fn send(self, pieces: mpsc::Sender<Piece>) {
        let work = self.caller.scheduling().work.clone();
        work.spawn(Charge::current().pay_for(self.run(pieces).in_current_span()));
    }

    async fn run(self, pieces: mpsc::Sender<Piece>) {
        let caller = &self.caller;
        let clock = Arc::clone(self.in_job.clock());
        let sending = send(
            &pieces,
            self.first,
            self.until_first,
            self.calls,
            self.encoder,
            &clock,
        );
        let outcome = tokio::select! {
            outcome = timeout_at(self.deadline, sending) => match outcome {
                Ok(Ok(())) => Outcome::Done,
                Ok(Err(_)) if pieces.is_closed() => Outcome::ClientGone,
                Ok(Err(error)) => failed(caller, &error),
                Err(_) => Outcome::Deadline,
            },
            () = pieces.closed() => Outcome::ClientGone,
            () = caller.scheduling().end.cancelled() => Outcome::HostStopped,
            _ = caller.wait_until_refused(|| check_may_continue(caller, clock.job(), self.guest.as_deref())) => Outcome::Dismissed,
        };
        drop((self.permit, self.memory, self.in_job));
        let metrics = caller.metrics();
        let took = self.started.elapsed();
        metrics.extraction_seconds.observe(took);
        metrics.count_extraction(&caller.tenant().name, self.kind, outcome);
        if let Some(left_out) = caller.tenant().log_lines.sample() {
            let seconds = took.as_secs_f64();
            tracing::info!(kind = ?self.kind, ?outcome, seconds, left_out, "extraction ended");
        }
        tracing::Span::current().record("outcome", <&str>::from(outcome));
    }
}

/// Logs an error during the answer. Only failures of the host are errors for the operator.
fn failed(caller: &Caller, error: &Refusal) -> Outcome {
    let is_host = error.class() == ErrorClass::Host;
    if let Some(left_out) = caller.tenant().log_lines.sample() {
        let message = "extraction failed during the answer";
        match is_host {
            true => tracing::error!(%error, left_out, message),
            false => tracing::info!(%error, left_out, message),
        }
    }
    if is_host {
        Outcome::Failed
    } else {
        Outcome::GuestFailed
    }
}

/// Adds the extraction to a job.
fn enqueue(caller: &Caller, id: &str, client_request: &ClientRequest) -> Result<JobExtraction, Refusal> {
    let ClientRequest { request, trace, .. } = client_request;
    let tenant = &caller.tenant().name;
    caller.check_job(trace.as_deref().unwrap_or(id))?;
    Ok(caller.jobs().enqueue(NewExtraction {
        tenant: tenant.clone(),
        trace: trace.clone(),
        extraction: id.to_owned(),
        split: request.split.to_string(),
        model: request.model.as_ref().map(|pin| pin.name.clone()),
    }))
}

/// Returns an error if a running extraction of `job` must end. `guest` is the guest that executes, if any.
fn check_may_continue(caller: &Caller, job: &str, guest: Option<&str>) -> Result<(), Refusal> {
    caller.check_access()?;
    caller.check_job(job)?;
    caller.check_budgets()?;
    guest.map_or(Ok(()), |guest| caller.check_guest_enabled(guest))
}

/// Starts the calls of an extraction with a permit, and waits for the first rows.
async fn first_rows(
    caller: &Caller,
    id: String,
    client_request: ClientRequest,
    kind: SplitKind,
    clock: &Arc<StageClock>,
) -> Result<(Option<EncodedRows>, Encoder, Calls), Refusal> {
    let checked = check::check(caller, id, client_request.request, clock).await?;
    let rows = checked.rows.clone();
    let encoding = checked.encoding;
    let encoder = Encoder::new(caller.clone(), rows, encoding)?;
    let mut calls = start_calls(caller.clone(), checked, kind, Arc::clone(clock));
    let (first, encoder) = next_rows(&mut calls, encoder, clock).await?;
    Ok((first, encoder, calls))
}

/// Waits for the next rows and encodes them. Returns `None` after the last rows. Other calls continue during
/// the encoding.
async fn next_rows(
    calls: &mut Calls,
    encoder: Encoder,
    clock: &StageClock,
) -> Result<(Option<EncodedRows>, Encoder), Refusal> {
    let Some(rows) = calls.next().await else {
        return Ok((None, encoder));
    };
    let rows = rows?;
    let started = Instant::now();
    let (good, bad) = rows.counts();
    let images = good + bad;
    let (pieces, encoder) = encoder.rows(rows).await?;
    clock.add(JobStage::Encode, started.elapsed(), images);
    Ok((Some(EncodedRows { pieces, images }), encoder))
}

fn disconnected(_: mpsc::error::SendError<Piece>) -> Refusal {
    Refusal::host("the client disconnected")
}

/// Sends all rows and the end. While the client is slow this waits in `send`, and no further grant is requested.
async fn send(
    pieces: &mpsc::Sender<Piece>,
    mut rows: Option<EncodedRows>,
    until_first: Duration,
    mut calls: Calls,
    mut encoder: Encoder,
    clock: &StageClock,
) -> Result<(), Refusal> {
    let mut work = until_first;
    while let Some(EncodedRows {
        pieces: bytes,
        images,
    }) = rows
    {
        let started = Instant::now();
        pieces.send(Piece::Rows(bytes)).await.map_err(disconnected)?;
        clock.add(JobStage::Send, started.elapsed(), images);
        let started = Instant::now();
        (rows, encoder) = next_rows(&mut calls, encoder, clock).await?;
        work += started.elapsed();
    }
    let timing = Timing {
        work,
        stages: clock.seconds(),
    };
    let end = Piece::End(encoder.finish()?, timing);
    pieces.send(end).await.map_err(disconnected)
}
