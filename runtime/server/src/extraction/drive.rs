//! Drives an admitted extraction: grants, calls, encoding, sending.

use super::admission::Place;
use super::body::{AnswerBody, Piece};
use super::encoder::Encoder;
use super::work::{Rows, Work};
use crate::caller::Caller;
use crate::metrics::{Outcome, SampleLabels, SplitKind, TenantLabels};
use crate::refusal::Refusal;
use crate::service::Service;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use frostline_wire::{ARROW_STREAM, RequestedSample};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

/// Rows by call, in the order the calls end; dropping it cancels them all.
pub(super) type Calls = BoxStream<'static, Result<Rows, Refusal>>;

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
    let at_once = caller.config.calls;
    let shared = Arc::new(Shared {
        caller,
        work,
        kind,
        left: Mutex::new(samples.into_iter()),
    });
    let tasks = stream::unfold(shared, |shared| async move {
        if shared.left().len() == 0 {
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
    fn left(&self) -> MutexGuard<'_, std::vec::IntoIter<RequestedSample>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a grant and calls with its samples; `None` when other calls took the last ones meanwhile.
    async fn call(self: Arc<Self>) -> Result<Option<Rows>, Refusal> {
        if let Some(guest) = self.work.guest() {
            // An admin may have disabled it since the extraction began.
            self.caller.may_run(guest)?;
        }
        let left = self.left().len();
        let Some(grant) = self.caller.desk.next(&self.caller.tenant().name, left).await else {
            return Ok(None);
        };
        let samples: Vec<RequestedSample> = self.left().by_ref().take(grant.samples).collect();
        if samples.is_empty() {
            return Ok(None);
        }
        let started = Instant::now();
        let outcome = timeout_at(Instant::from_std(grant.until), self.work.clone().call(samples)).await;
        drop(grant);
        let took = started.elapsed();
        self.caller.metrics.call_seconds.0.observe(took.as_secs_f64());
        let rows = outcome.map_err(|_| Refusal::Deadline {
            seconds: took.as_secs(),
        })??;
        count(&self.caller, &self.caller.tenant().name, self.kind, &rows);
        Ok(Some(rows))
    }
}

fn count(service: &Service, tenant: &str, split: SplitKind, rows: &Rows) {
    let (good, bad) = rows.count();
    for (failed, samples) in [(false, good), (true, bad)] {
        service
            .metrics
            .samples
            .get_or_create(&SampleLabels { split, failed })
            .inc_by(samples);
    }
    let labels = TenantLabels {
        tenant: tenant.to_owned(),
    };
    let tally = &service.metrics.tenants;
    tally.samples.get_or_create(&labels).inc_by(good + bad);
    service.metrics.meter.count(good + bad);
}

/// The next rows, encoded; `None` after the last. Meanwhile the calls under way go on.
pub(super) async fn next(
    calls: &mut Calls,
    encoder: Encoder,
) -> Result<(Option<Vec<Bytes>>, Encoder), Refusal> {
    match calls.next().await {
        Some(rows) => {
            let (pieces, encoder) = encoder.rows(rows?).await?;
            Ok((Some(pieces), encoder))
        }
        None => Ok((None, encoder)),
    }
}

/// An extraction whose first rows are there.
pub(super) struct Answer {
    pub(super) service: Arc<Service>,
    pub(super) caller: Caller,
    pub(super) tenant: String,
    /// The guest whose code it runs.
    pub(super) guest: Option<String>,
    pub(super) kind: SplitKind,
    pub(super) calls: Calls,
    pub(super) encoder: Encoder,
    pub(super) place: Place,
    pub(super) deadline: Instant,
    /// How long the host worked for the first rows.
    pub(super) until_first: Duration,
}

impl Answer {
    /// Sends the rest in a task of its own that ends when the body is dropped.
    pub(super) fn stream(self, first: Option<Vec<Bytes>>) -> Response {
        let (sender, coming) = mpsc::channel(1);
        let labels = TenantLabels {
            tenant: self.tenant.clone(),
        };
        let metrics = &self.service.metrics;
        let sent = metrics.tenants.answer_bytes.get_or_create(&labels).clone();
        let body = AnswerBody::new(coming, [metrics.answer_bytes.clone(), sent]);
        let work = self.service.work.clone();
        work.spawn(self.run(sender, first).in_current_span());
        let mut response = Response::new(Body::new(body));
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(ARROW_STREAM));
        response
    }

    async fn run(self, sender: mpsc::Sender<Piece>, first: Option<Vec<Bytes>>) {
        let Self {
            service,
            caller,
            tenant,
            guest,
            kind,
            calls,
            encoder,
            place,
            deadline,
            until_first,
        } = self;
        let started = Instant::now();
        let outcome = tokio::select! {
            outcome = timeout_at(deadline, send(&sender, first, until_first, calls, encoder)) => match outcome {
                Ok(Ok(())) => Outcome::Done,
                Ok(Err(error)) => {
                    tracing::error!(%error, "an extraction failed after its answer had begun");
                    Outcome::Failed
                }
                Err(_) => Outcome::Deadline,
            },
            () = sender.closed() => Outcome::ClientGone,
            () = service.end.cancelled() => Outcome::HostStopped,
            _ = caller.dismissed(guest.as_deref()) => Outcome::Dismissed,
        };
        drop(place);
        service
            .metrics
            .extraction_seconds
            .0
            .observe(started.elapsed().as_secs_f64());
        service.metrics.ended(&tenant, kind, outcome);
        tracing::info!(
            ?kind,
            ?outcome,
            seconds = started.elapsed().as_secs_f64(),
            "extraction ended"
        );
    }
}

/// Sends all rows and the end. While the client is slow this waits in `send`, and no further grant is asked for.
async fn send(
    sender: &mpsc::Sender<Piece>,
    first: Option<Vec<Bytes>>,
    until_first: Duration,
    mut calls: Calls,
    mut encoder: Encoder,
) -> Result<(), Refusal> {
    let gone = |_| Refusal::host("the client is gone");
    if let Some(pieces) = first {
        sender.send(Piece::Rows(pieces)).await.map_err(gone)?;
    }
    let mut work = until_first;
    loop {
        let started = Instant::now();
        let (pieces, left) = next(&mut calls, encoder).await?;
        work += started.elapsed();
        let Some(pieces) = pieces else {
            let end = Piece::End(left.finish()?, work);
            return sender.send(end).await.map_err(gone);
        };
        encoder = left;
        sender.send(Piece::Rows(pieces)).await.map_err(gone)?;
    }
}
