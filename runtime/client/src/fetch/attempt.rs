use super::buffer::BatchBuffer;
use super::exchange::{Exchange, HostRequest};
use super::{RowKind, Transfer, Weight};
use crate::blocking::blocking;
use crate::extraction::AnswerStep;
use crate::{ClientError, HostClient};
use frostline_images::ImageError;
use frostline_tensor::{OpError, OpErrorCode, PixelSpec};
use frostline_wire::{ActivationBatch, FrameError, RowValue};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Reason for missing rows after an attempt.
pub(super) enum Failure {
    /// The host failed or refused the request.
    Host(ClientError),
    /// The host works, but some samples failed for a transient reason.
    Samples(ClientError),
    /// No data arrived for this duration.
    Silence(Duration),
    /// The host became unavailable, so the request is not sent.
    LeftOut,
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Host(error)
    }
}

impl Exchange {
    /// Opens one extraction for the missing samples and receives rows until the stream ends or fails.
    pub(super) async fn attempt(
        &self,
        ask: &mut HostRequest,
        transfer: &mut Transfer,
    ) -> Result<(), Failure> {
        let window = self.memory.windows.window_for(ask.host.url());
        let _open = window.open().await;
        if !self.hosts.may_be_asked(&ask.host) {
            return Err(Failure::LeftOut);
        }
        let begun = Instant::now();
        ask.host.catch_up().await?;
        let hosts = self.hosts.metered();
        let client = hosts.client(&ask.host);
        let mut silence = Silence::new(self, ask);
        let mut decoding = JoinSet::new();
        let received = self.receive(&client, ask, &mut silence, &mut decoding);
        let ended = received.await.map(|taken| *transfer += taken);
        match ended {
            Ok(()) => {
                window.went_well();
                ask.host.record_success(begun);
            }
            Err(_) => {
                let wasted = hosts.bytes_received();
                self.memory.interrupted.fetch_add(wasted, Ordering::Relaxed);
            }
        }
        if matches!(ended, Ok(()) | Err(Failure::Silence(_))) {
            self.memory.stragglers.record(&self.source.split, silence.longest);
        }
        // Rows that arrived before an error count, so decode them in any case.
        while let Some(decoded) = decoding.join_next().await {
            match decoded {
                Ok((position, Ok(()))) => ask.pending.arrived(position),
                Ok((position, Err(error))) => ask.pending.mark_bad(position, error),
                Err(_) => {}
            }
        }
        ended
    }

    /// Requests the missing samples and receives rows until the stream ends. Returns the time spent in total
    /// and on the host.
    async fn receive(
        &self,
        client: &HostClient,
        ask: &mut HostRequest,
        silence: &mut Silence<'_>,
        decoding: &mut JoinSet<DecodedRow>,
    ) -> Result<Transfer, Failure> {
        let opened = Instant::now();
        let request = self.source.request(ask.pending.requested());
        let weight = Weight::sum(ask.pending.requested().map(|(_, sample)| sample));
        let limit = usize::try_from(self.source.answer_bytes(weight)).unwrap_or(usize::MAX);
        let extraction = client.extract(&request, self.source.format(), limit);
        let mut stream = silence.end_with(extraction).await?;
        if let Some(computed) = stream.precision() {
            self.hosts
                .report_precision(&ask.host, request.terms.precision, computed);
        }
        loop {
            match silence.end_with(stream.step()).await? {
                AnswerStep::Bytes => {}
                AnswerStep::Rows(batches) => self.place_rows(ask, batches, decoding).await?,
                AnswerStep::End => break,
            }
        }
        let timing = stream.timing();
        self.hosts.count_stages(&ask.host, timing.stages);
        Ok(Transfer {
            bytes: 0,
            open_seconds: opened.elapsed().as_secs_f64(),
            host_seconds: timing.work.as_secs_f64(),
        })
    }

    /// Copies rows into the batch and passes objects to the decoders.
    async fn place_rows(
        &self,
        ask: &mut HostRequest,
        batches: Vec<ActivationBatch>,
        decoding: &mut JoinSet<DecodedRow>,
    ) -> Result<(), ClientError> {
        let buffer = Arc::clone(&self.buffer);
        let rows = self.source.rows;
        let arrivals = blocking("copying of rows", move || place(&batches, &buffer, rows)).await?;
        for row in arrivals {
            match row {
                Arrival::Row(position) => ask.pending.arrived(position),
                Arrival::Failure(position, error) => ask.pending.failed(position, error),
                Arrival::Object(position, bytes, spec) => {
                    let decoders = self.memory.decoders.clone();
                    let buffer = Arc::clone(&self.buffer);
                    let view = self.source.view;
                    let key = ask.pending.key(position);
                    let crop = async move { decoders.load(bytes, spec, view, key).await };
                    decoding.spawn(decode(crop, buffer, position));
                }
                Arrival::Altered => ask.pending.altered(),
                Arrival::Invalid(reason) => {
                    return Err(ClientError::Protocol {
                        host: ask.host.url().to_owned(),
                        reason: reason.into(),
                    });
                }
            }
        }
        Ok(())
    }
}

/// Outcome of one row of an answer.
enum Arrival {
    /// The row was copied into the batch.
    Row(u32),
    /// The host reports an error for this position.
    Failure(u32, OpError),
    /// The object has to be decoded.
    Object(u32, Vec<u8>, PixelSpec),
    /// The row has a wrong checksum.
    Altered,
    /// The row is invalid. Later rows were not read.
    Invalid(String),
}

/// Copies or widens every row into the batch.
fn place(batches: &[ActivationBatch], buffer: &BatchBuffer, rows: RowKind) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    for row in batches.iter().flat_map(ActivationBatch::rows) {
        let row = match row {
            Ok(row) => match (row.outcome, rows) {
                (Err(error), _) => Arrival::Failure(row.position, error),
                (Ok(RowValue::Object(bytes)), RowKind::Objects(spec)) => {
                    Arrival::Object(row.position, bytes.to_vec(), spec)
                }
                (Ok(value), _) if buffer.set(row.position as usize, &value) => Arrival::Row(row.position),
                _ => Arrival::Invalid(format!("a row of the wrong type at position {}", row.position)),
            },
            Err(FrameError::Checksum { .. }) => Arrival::Altered,
            Err(error) => Arrival::Invalid(error.to_string()),
        };
        let last = matches!(row, Arrival::Invalid(_));
        arrivals.push(row);
        if last {
            break;
        }
    }
    arrivals
}

/// Timer for the pauses in an answer.
struct Silence<'a> {
    exchange: &'a Exchange,
    /// Hosts already asked for these samples, including the current host.
    tried: BTreeSet<usize>,
    given_up: u32,
    longest: Duration,
}

/// Interval at which a waiting request compares the silence with the limit.
const COMPARISON: Duration = Duration::from_millis(500);

impl<'a> Silence<'a> {
    fn new(exchange: &'a Exchange, ask: &HostRequest) -> Self {
        let mut tried = ask.tried.clone();
        tried.insert(ask.host.index);
        Self {
            exchange,
            tried,
            given_up: ask.given_up,
            longest: Duration::ZERO,
        }
    }

    /// Waits for `sign`. If another host can be asked, gives up when the silence exceeds the limit for
    /// requests at this split.
    async fn end_with<T>(
        &mut self,
        sign: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, Failure> {
        let since = Instant::now();
        let mut sign = std::pin::pin!(sign);
        loop {
            let came = tokio::time::timeout(COMPARISON, &mut sign).await;
            let silence = since.elapsed();
            self.longest = self.longest.max(silence);
            match came {
                Ok(came) => return Ok(came?),
                Err(_) if self.limit().is_some_and(|limit| silence >= limit) => {
                    return Err(Failure::Silence(silence));
                }
                Err(_) => {}
            }
        }
    }

    fn limit(&self) -> Option<Duration> {
        let patience = &self.exchange.memory.stragglers;
        let limit = patience.limit(&self.exchange.source.split, self.given_up);
        limit.filter(|_| !self.exchange.hosts.candidates(&self.tried).is_empty())
    }
}

/// Object position and decoding result.
type DecodedRow = (u32, Result<(), OpError>);

async fn decode(
    crop: impl Future<Output = Result<Vec<u8>, ImageError>>,
    buffer: Arc<BatchBuffer>,
    position: u32,
) -> DecodedRow {
    let decoded = match crop.await {
        Ok(crop) if buffer.set(position as usize, &RowValue::U8(&crop)) => Ok(()),
        Ok(_) => Err(OpError::runtime("the crop does not match the pixel spec")),
        Err(error) => Err(error.into()),
    };
    (position, decoded)
}

/// Converts transient sample failures and corrupt rows of an attempt into a failure, so that the samples are
/// requested again.
pub(super) fn passing(ask: &mut HostRequest) -> Option<Failure> {
    let host = ask.host.url().to_owned();
    let rows = ask.pending.take_altered();
    if rows > 0 {
        return Some(Failure::Samples(ClientError::CorruptRows { host, rows }));
    }
    let error = ask.pending.take_passing()?;
    let kind = (error.host_caused, error.code);
    let reason = error.into();
    Some(Failure::Samples(match kind {
        (true, OpErrorCode::Security) => ClientError::DataAccessDenied { host, reason },
        (true, _) => ClientError::RowsUnavailable { host, reason },
        (false, _) => ClientError::Interrupted { host, reason },
    }))
}
