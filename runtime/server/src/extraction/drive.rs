//! Drives an extraction: admission, grants, calls, encoding, sending.

use super::calls::{Calls, calls};
use super::check;
use super::encoder::Encoder;
use crate::caller::Caller;
use crate::metrics::{Outcome, Queue, SplitKind};
use crate::refusal::Refusal;
use crate::scheduling::Permit;
use crate::unique::unique_id;
use bytes::Bytes;
use frostline_batching::Reserved;
use frostline_wire::{ExtractionRequest, Split};
use futures::StreamExt;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

/// A piece of an answer.
pub(crate) enum Piece {
    /// More of the stream.
    Rows(Vec<Bytes>),
    /// The last of it, and how long the host worked on all of it. An answer that never gets this is aborted.
    End(Vec<Bytes>, Duration),
}

/// An extraction whose first rows are there.
pub(crate) struct Extraction {
    caller: Caller,
    /// The guest whose code it runs.
    guest: Option<String>,
    kind: SplitKind,
    first: Option<Vec<Bytes>>,
    calls: Calls,
    encoder: Encoder,
    permit: Permit,
    /// What the request takes, until it ends.
    memory: Reserved,
    deadline: Instant,
    /// How long the host worked for the first rows.
    until_first: Duration,
}

/// What a client asks for.
pub(crate) struct ClientRequest {
    pub(crate) request: ExtractionRequest,
    /// Whether its rows are to have checksums.
    pub(crate) checksums: bool,
}

impl Extraction {
    /// Holds a request against what there is, waits for its turn and then for its first rows. Dropping this future cancels everything that
    /// was started.
    ///
    /// # Errors
    /// [`Refusal`] for all that fails until then.
    pub(crate) async fn start(
        caller: Caller,
        client_request: ClientRequest,
        memory: Reserved,
        deadline: Instant,
    ) -> Result<Self, Refusal> {
        let no_id = |error| Refusal::host(format!("cannot generate an extraction id: {error}"));
        let id = unique_id().map_err(no_id)?;
        tracing::Span::current().record("extraction", &id);
        let request = &client_request.request;
        check::precheck(&caller, request)?;
        let (tenant, kind) = (caller.tenant(), SplitKind::from(&request.split));
        let guest = match &request.split {
            Split::Cut(_) => request.guest.as_ref().map(|pin| pin.name.clone()),
            Split::None | Split::Input => None,
        };
        let too_long = |_| Refusal::Deadline {
            seconds: tenant.allowed.wall().as_secs(),
        };
        let started = Instant::now();
        let entering = caller
            .scheduling()
            .extractions
            .enter(&tenant.name, tenant.allowed.permits());
        let permit = timeout_at(deadline, entering).await.map_err(too_long)??;
        let waits = &caller.metrics().queue_waits;
        waits.observe(Queue::Extraction, started.elapsed());
        let started_calls = tokio::select! {
            started_calls = timeout_at(deadline, first_rows(&caller, id, client_request, kind)) => started_calls.map_err(too_long).flatten(),
            refusal = caller.wait_until_revoked(guest.as_deref()) => Err(refusal),
        };
        let refused = |_: &Refusal| {
            caller
                .metrics()
                .count_extraction(&tenant.name, kind, Outcome::Refused)
        };
        let (first, encoder, calls) = started_calls.inspect_err(refused)?;
        Ok(Self {
            caller,
            guest,
            kind,
            first,
            calls,
            encoder,
            permit,
            memory,
            deadline,
            until_first: started.elapsed(),
        })
    }

    /// Sends all rows in a task of its own, which ends when nobody receives them any more.
    pub(crate) fn send(self, pieces: mpsc::Sender<Piece>) {
        let work = self.caller.scheduling().work.clone();
        work.spawn(self.run(pieces).in_current_span());
    }

    async fn run(self, pieces: mpsc::Sender<Piece>) {
        let started = Instant::now();
        let caller = &self.caller;
        let sending = send(&pieces, self.first, self.until_first, self.calls, self.encoder);
        let outcome = tokio::select! {
            outcome = timeout_at(self.deadline, sending) => match outcome {
                Ok(Ok(())) => Outcome::Done,
                Ok(Err(_)) if pieces.is_closed() => Outcome::ClientGone,
                Ok(Err(error)) => {
                    if let Some(left_out) = caller.tenant().log_lines.sample() {
                        tracing::error!(%error, left_out, "extraction failed after its answer had started");
                    }
                    Outcome::Failed
                }
                Err(_) => Outcome::Deadline,
            },
            () = pieces.closed() => Outcome::ClientGone,
            () = caller.scheduling().end.cancelled() => Outcome::HostStopped,
            _ = caller.wait_until_revoked(self.guest.as_deref()) => Outcome::Dismissed,
        };
        drop((self.permit, self.memory));
        let (metrics, took) = (caller.metrics(), started.elapsed());
        metrics.extraction_seconds.observe(took);
        metrics.count_extraction(&caller.tenant().name, self.kind, outcome);
        if let Some(left_out) = caller.tenant().log_lines.sample() {
            let seconds = took.as_secs_f64();
            tracing::info!(kind = ?self.kind, ?outcome, seconds, left_out, "extraction ended");
        }
        tracing::Span::current().record("outcome", <&str>::from(outcome));
    }
}

/// Begins the calls of an extraction that has its permit, and waits for the first rows.
async fn first_rows(
    caller: &Caller,
    id: String,
    client_request: ClientRequest,
    kind: SplitKind,
) -> Result<(Option<Vec<Bytes>>, Encoder, Calls), Refusal> {
    let checked = check::check(caller, id, client_request.request).await?;
    let (rows, encoding) = (checked.rows.clone(), checked.encoding);
    let encoder = Encoder::new(caller.clone(), rows, encoding, client_request.checksums)?;
    let mut calls = calls(caller.clone(), checked, kind);
    let (first, encoder) = next_rows(&mut calls, encoder).await?;
    Ok((first, encoder, calls))
}

/// The next rows, encoded; `None` after the last. Meanwhile the calls under way go on.
async fn next_rows(calls: &mut Calls, encoder: Encoder) -> Result<(Option<Vec<Bytes>>, Encoder), Refusal> {
    match calls.next().await {
        Some(rows) => {
            let (pieces, encoder) = encoder.rows(rows?).await?;
            Ok((Some(pieces), encoder))
        }
        None => Ok((None, encoder)),
    }
}

/// Sends all rows and the end. While the client is slow this waits in `send`, and no further grant is requested.
async fn send(
    pieces: &mpsc::Sender<Piece>,
    first: Option<Vec<Bytes>>,
    until_first: Duration,
    mut calls: Calls,
    mut encoder: Encoder,
) -> Result<(), Refusal> {
    let disconnected = |_| Refusal::host("the client disconnected");
    if let Some(rows) = first {
        pieces.send(Piece::Rows(rows)).await.map_err(disconnected)?;
    }
    let mut work = until_first;
    loop {
        let started = Instant::now();
        let (rows, next_encoder) = next_rows(&mut calls, encoder).await?;
        work += started.elapsed();
        let Some(rows) = rows else {
            let end = Piece::End(next_encoder.finish()?, work);
            return pieces.send(end).await.map_err(disconnected);
        };
        encoder = next_encoder;
        pieces.send(Piece::Rows(rows)).await.map_err(disconnected)?;
    }
}
