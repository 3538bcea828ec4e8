use super::buffer::BatchBuffer;
use super::request::Pending;
use super::window::Window;
use super::{Rows, Source};
use crate::dataset::Sample;
use crate::retry::{Attempts, Decision, RetryPolicy};
use crate::{ClientError, Event, Events, HostClient, TrainerError};
use frostline_images::{DecodeLimits, DecodePool, ImageError, load};
use frostline_tensor::{OpError, PixelSpec, Tensor};
use frostline_wire::{ActivationBatch, RowValue};
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;

/// Fetches batches: divides them into requests, asks again for what got lost, decodes where the objects themselves travel.
pub(crate) struct Fetcher {
    window: Window,
    policy: RetryPolicy,
    decoders: DecodePool,
    events: Events,
}

/// A batch as it arrived.
pub(crate) struct Fetched {
    /// The samples that worked, in the order asked for, `f32`.
    pub(crate) rows: Tensor,
    /// The indices, among those asked for, of the samples that worked.
    pub(crate) kept: Vec<usize>,
    /// The others.
    pub(crate) bad: Vec<(usize, OpError)>,
    /// How they came.
    pub(crate) transfer: Transfer,
}

/// What bringing a batch here took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Transfer {
    /// Body bytes of all its answers.
    pub(crate) bytes: u64,
    /// Seconds its requests were open, added up.
    pub(crate) open_seconds: f64,
    /// Seconds of these that the host worked on them, as it says.
    pub(crate) host_seconds: f64,
}

impl Transfer {
    /// The share of the requests' time that went by on the host; `None` when it does not say.
    pub(crate) fn on_host(&self) -> Option<f64> {
        (self.host_seconds > 0.0 && self.open_seconds > 0.0).then(|| self.host_seconds / self.open_seconds)
    }

    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.open_seconds += other.open_seconds;
        self.host_seconds += other.host_seconds;
    }
}

impl Fetcher {
    /// A fetcher with at most `open_requests` requests open at once.
    pub(crate) fn new(
        open_requests: usize,
        policy: RetryPolicy,
        decoders: DecodePool,
        events: Events,
    ) -> Self {
        Self {
            window: Window::new(open_requests, open_requests),
            policy,
            decoders,
            events,
        }
    }

    /// Fetches `samples` from `source`, whatever it takes within the policy.
    ///
    /// # Errors
    /// [`TrainerError::Lost`], or the host's refusal.
    pub(crate) async fn fetch(
        self: Arc<Self>,
        client: HostClient,
        source: Arc<Source>,
        samples: Arc<[Sample]>,
    ) -> Result<Fetched, TrainerError> {
        let buffer = Arc::new(BatchBuffer::new(samples.len(), &source.shape, source.pixels())?);
        let mut requests = JoinSet::new();
        for start in (0..samples.len()).step_by(source.request_samples) {
            let end = samples.len().min(start + source.request_samples);
            let (fetcher, client) = (Arc::clone(&self), client.clone());
            let (samples, source, buffer) = (Arc::clone(&samples), Arc::clone(&source), Arc::clone(&buffer));
            requests.spawn(async move {
                fetcher
                    .request(&client, &source, &samples, start..end, &buffer)
                    .await
            });
        }
        let (mut bad, mut transfer) = (Vec::new(), Transfer::default());
        while let Some(ended) = requests.join_next().await {
            let (spoiled, took) = ended.map_err(|_| TrainerError::Ended {
                part: "fetching task",
            })??;
            bad.extend(spoiled);
            transfer.add(took);
        }
        transfer.bytes = client.bytes_received();
        bad.sort_by_key(|(index, _)| *index);
        let kept =
            (0..samples.len()).filter(|index| bad.binary_search_by_key(index, |(bad, _)| *bad).is_err());
        let kept: Vec<usize> = kept.collect();
        let (rows, kept) = self
            .decoders
            .run(move || (buffer.finish(&kept), kept))
            .await
            .map_err(|error| TrainerError::Preprocess { source: error.into() })?;
        let rows = rows.map_err(|source| TrainerError::Preprocess { source })?;
        Ok(Fetched {
            rows,
            kept,
            bad,
            transfer,
        })
    }

    /// Fetches one request's samples into the batch and returns those that are bad.
    async fn request(
        &self,
        client: &HostClient,
        source: &Source,
        samples: &[Sample],
        range: std::ops::Range<usize>,
        buffer: &BatchBuffer,
    ) -> Result<(Vec<(usize, OpError)>, Transfer), TrainerError> {
        let numbered = samples.get(range.clone()).unwrap_or_default().iter().zip(range);
        let mut pending = Pending::new(numbered.map(|(sample, index)| (index as u32, sample)));
        let mut attempts = Attempts::new(self.policy);
        let mut transfer = Transfer::default();
        while pending.len() > 0 {
            let before = pending.len();
            let ended = self
                .attempt(client, source, &mut pending, buffer, &mut transfer)
                .await;
            let Some(error) = ended.err().or_else(|| passing(client, &mut pending)) else {
                continue;
            };
            let arrived = before - pending.len();
            if pending.len() > 0 {
                self.wait(client, &pending, &mut attempts, error, arrived).await?;
            }
        }
        let bad = pending
            .into_bad()
            .into_iter()
            .map(|(position, error)| (position as usize, error))
            .collect();
        Ok((bad, transfer))
    }

    /// Waits before the next attempt, or gives up.
    async fn wait(
        &self,
        client: &HostClient,
        pending: &Pending<'_>,
        attempts: &mut Attempts,
        error: ClientError,
        arrived: usize,
    ) -> Result<(), TrainerError> {
        if error.is_busy() {
            self.window.was_busy();
        }
        match attempts.after(&error, arrived) {
            Decision::Again(wait) => {
                (self.events)(Event::Retry {
                    host: client.url().to_owned(),
                    lost: pending.len(),
                    attempt: attempts.fruitless(),
                    wait_seconds: wait.as_secs_f64(),
                    reason: error.to_string(),
                });
                tokio::time::sleep(wait).await;
                Ok(())
            }
            Decision::GiveUp if attempts.fruitless() > 0 => Err(TrainerError::Lost {
                host: client.url().to_owned(),
                lost: pending.len(),
                first: pending
                    .samples()
                    .next()
                    .map(|(_, sample)| sample.key.clone())
                    .unwrap_or_default(),
                attempts: attempts.fruitless(),
                source: Box::new(error),
            }),
            Decision::GiveUp => Err(error.into()),
        }
    }

    /// Opens one extraction for what is missing and takes its rows until it ends, well or not.
    async fn attempt(
        &self,
        client: &HostClient,
        source: &Source,
        pending: &mut Pending<'_>,
        buffer: &BatchBuffer,
        transfer: &mut Transfer,
    ) -> Result<(), ClientError> {
        let _open = self.window.open().await;
        let opened = Instant::now();
        let request = source.request(pending.samples());
        let limit = source.answer_bytes(pending.samples().map(|(_, sample)| sample));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut decoding = JoinSet::new();
        let ended = async {
            let mut stream = client.extract(&request, source.format(), limit).await?;
            while let Some(batches) = stream.next().await? {
                for batch in &batches {
                    self.take(client, source, batch, pending, buffer, &mut decoding)?;
                }
            }
            self.window.went_well();
            transfer.open_seconds += opened.elapsed().as_secs_f64();
            transfer.host_seconds += stream.work().unwrap_or_default().as_secs_f64();
            Ok(())
        }
        .await;
        // What arrived before a stream broke counts, so it is decoded in any case.
        while let Some(decoded) = decoding.join_next().await {
            let Ok((position, crop)) = decoded else { continue };
            match crop {
                Ok(crop) if buffer.set(position as usize, RowValue::U8(&crop)) => pending.arrived(position),
                Ok(_) => pending.spoiled(position, OpError::runtime("its crop does not fit the recipe")),
                Err(error) => pending.spoiled(position, OpError::from(error)),
            }
        }
        ended
    }

    fn take(
        &self,
        client: &HostClient,
        source: &Source,
        batch: &ActivationBatch,
        pending: &mut Pending<'_>,
        buffer: &BatchBuffer,
        decoding: &mut JoinSet<(u32, Result<Vec<u8>, ImageError>)>,
    ) -> Result<(), ClientError> {
        let protocol = |reason: String| ClientError::Protocol {
            host: client.url().to_owned(),
            reason,
        };
        for row in batch.rows() {
            let row = row.map_err(|error| protocol(error.to_string()))?;
            match (row.outcome, source.rows) {
                (Err(error), _) => pending.failed(row.position, error),
                (Ok(RowValue::Object(bytes)), Rows::Objects(spec)) => {
                    decoding.spawn(decode(self.decoders.clone(), row.position, bytes.to_vec(), spec));
                }
                (Ok(value), _) if buffer.set(row.position as usize, value) => pending.arrived(row.position),
                _ => {
                    return Err(protocol(format!(
                        "a row of the wrong type at position {}",
                        row.position
                    )));
                }
            }
        }
        Ok(())
    }
}

async fn decode(
    decoders: DecodePool,
    position: u32,
    bytes: Vec<u8>,
    spec: PixelSpec,
) -> (u32, Result<Vec<u8>, ImageError>) {
    let crop = decoders
        .run(move || load(&bytes, &spec, &DecodeLimits::default()))
        .await;
    (position, crop.and_then(|crop| crop))
}

/// Samples that failed for a reason that may pass count as lost.
fn passing(client: &HostClient, pending: &mut Pending<'_>) -> Option<ClientError> {
    let error = pending.take_passing()?;
    Some(ClientError::Interrupted {
        host: client.url().to_owned(),
        reason: error.message,
    })
}
