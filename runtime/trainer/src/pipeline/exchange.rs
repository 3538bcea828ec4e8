use super::buffer::BatchBuffer;
use super::fetch::{Fetcher, Transfer};
use super::request::Pending;
use super::{Rows, Source};
use crate::client::{Member, Step};
use crate::dataset::Sample;
use crate::retry::{Attempts, Decision, may_pass};
use crate::{ClientError, Event, Hosts, TrainerError};
use frostline_images::{DecodeLimits, DecodePool, ImageError, load};
use frostline_tensor::{OpError, PixelSpec};
use frostline_wire::{ActivationBatch, RowValue};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// One batch on its way: divides it into requests, places them at hosts, asks again for what got lost, decodes where the objects
/// themselves travel.
pub(super) struct Exchange {
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) hosts: Hosts,
    pub(super) source: Arc<Source>,
    pub(super) buffer: Arc<BatchBuffer>,
}

/// Samples that are asked of one host together.
pub(super) struct Ask {
    host: Arc<Member>,
    pending: Pending,
    attempts: Attempts,
    /// Hosts that failed to bring all of them, since the last wait.
    tried: BTreeSet<usize>,
    /// How often they were given up because nothing came.
    given_up: u32,
}

/// What became of an [`Ask`].
pub(super) struct Asked {
    /// Samples that are bad, by their place in the batch.
    pub(super) bad: Vec<(usize, OpError)>,
    pub(super) transfer: Transfer,
    /// What is missing, to be asked of these hosts now.
    pub(super) moved: Vec<Ask>,
}

/// Why rows are missing after an attempt.
enum Failure {
    /// The host failed, or refused.
    Host(ClientError),
    /// The host is well, but some samples failed for a reason that may pass.
    Samples(ClientError),
    /// Nothing came for this long.
    Silence(Duration),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Host(error)
    }
}

/// Where what is missing is asked next.
enum Next {
    /// Of the same host, after a wait.
    Here(Duration),
    /// Of the hosts that are up, after a wait.
    Anywhere(Duration),
}

impl Exchange {
    /// The batch's requests: the samples of each host, so many at a time.
    pub(super) fn begin(&self, samples: &Arc<[Sample]>) -> Result<Vec<Ask>, TrainerError> {
        let all = Pending::new(Arc::clone(samples), 0..samples.len() as u32);
        let placed = self.place(&all, &BTreeSet::new())?;
        let mut asks = Vec::new();
        for (host, pending) in placed {
            let positions: Vec<u32> = pending.samples().map(|(position, _)| position).collect();
            for part in positions.chunks(self.source.request_samples) {
                asks.push(Ask {
                    host: Arc::clone(&host),
                    pending: Pending::new(Arc::clone(samples), part.iter().copied()),
                    attempts: Attempts::new(self.fetcher.policy),
                    tried: BTreeSet::new(),
                    given_up: 0,
                });
            }
        }
        Ok(asks)
    }

    /// Asks until everything is there, or has to be asked elsewhere.
    pub(super) async fn ask(self: Arc<Self>, mut ask: Ask) -> Result<Asked, TrainerError> {
        let (mut transfer, mut moved) = (Transfer::default(), Vec::new());
        while ask.pending.len() > 0 {
            let before = ask.pending.len();
            let ended = self.attempt(&mut ask, &mut transfer).await;
            let Some(failure) = ended.err().or_else(|| passing(&mut ask)) else {
                continue;
            };
            let arrived = before - ask.pending.len();
            if ask.pending.len() == 0 {
                break;
            }
            match self.after(&mut ask, failure, arrived)? {
                Next::Here(wait) => tokio::time::sleep(wait).await,
                Next::Anywhere(wait) => {
                    tokio::time::sleep(wait).await;
                    moved = self.moved(&ask)?;
                    break;
                }
            }
        }
        let bad = ask.pending.into_bad().into_iter();
        Ok(Asked {
            bad: bad.map(|(position, error)| (position as usize, error)).collect(),
            transfer,
            moved,
        })
    }

    /// Divides what is missing among the hosts that may be asked now, but for those `tried`.
    fn place(
        &self,
        pending: &Pending,
        tried: &BTreeSet<usize>,
    ) -> Result<Vec<(Arc<Member>, Pending)>, TrainerError> {
        let mut candidates = self.hosts.candidates(tried);
        if candidates.is_empty() {
            // The last of the others has gone down since.
            candidates = self.hosts.candidates(&BTreeSet::new());
        }
        let place = |key: &str| self.hosts.place(key, &candidates);
        let index = |sample: &Sample| place(&sample.key).map_or(0, |host| host.index());
        let groups = pending.divide(index).into_iter();
        let host = |index| candidates.iter().find(|host| host.index() == index).cloned();
        groups
            .map(|(index, pending)| Some((host(index)?, pending)))
            .collect::<Option<_>>()
            .ok_or(TrainerError::Ended { part: "set of hosts" })
    }

    fn moved(&self, ask: &Ask) -> Result<Vec<Ask>, TrainerError> {
        let placed = self.place(&ask.pending, &ask.tried)?.into_iter();
        let moved = placed.map(|(host, pending)| Ask {
            host,
            pending,
            attempts: ask.attempts.clone(),
            tried: ask.tried.clone(),
            given_up: ask.given_up,
        });
        Ok(moved.collect())
    }

    /// Decides after an attempt that brought `arrived` rows and left some missing: at another host at once while there is one that was
    /// not tried; else after a wait, or not at all.
    fn after(&self, ask: &mut Ask, failure: Failure, arrived: usize) -> Result<Next, TrainerError> {
        let host = ask.host.url().to_owned();
        let error = match failure {
            Failure::Host(error) if may_pass(&error) => {
                ask.host.failed(&error);
                error
            }
            Failure::Host(error) if error.is_busy() => {
                self.fetcher.windows.of(&host).was_busy();
                return self.wait(ask, error, arrived).map(Next::Here);
            }
            Failure::Host(error) => return self.wait(ask, error, arrived).map(Next::Here),
            Failure::Samples(error) => error,
            Failure::Silence(silence) => {
                ask.given_up += 1;
                ask.tried.insert(ask.host.index());
                if self.hosts.candidates(&ask.tried).is_empty() {
                    ask.tried.clear();
                }
                ask.attempts.moves(arrived);
                let reason = format!(
                    "nothing came for {:.1} s, longer than usual",
                    silence.as_secs_f64()
                );
                self.tell(ask, &reason, Duration::ZERO);
                return Ok(Next::Anywhere(Duration::ZERO));
            }
        };
        ask.tried.insert(ask.host.index());
        if !self.hosts.candidates(&ask.tried).is_empty() {
            ask.attempts.moves(arrived);
            self.tell(ask, &error.to_string(), Duration::ZERO);
            return Ok(Next::Anywhere(Duration::ZERO));
        }
        ask.tried.clear();
        self.wait(ask, error, arrived).map(Next::Anywhere)
    }

    /// How long to wait before the next attempt.
    ///
    /// # Errors
    /// When there is none.
    fn wait(&self, ask: &mut Ask, error: ClientError, arrived: usize) -> Result<Duration, TrainerError> {
        match ask.attempts.after(&error, arrived) {
            Decision::Again(wait) => {
                self.tell(ask, &error.to_string(), wait);
                Ok(wait)
            }
            Decision::GiveUp if ask.attempts.fruitless() > 0 => Err(TrainerError::Lost {
                host: self.hosts.names(),
                lost: ask.pending.len(),
                first: ask
                    .pending
                    .samples()
                    .next()
                    .map(|(_, sample)| sample.key.clone())
                    .unwrap_or_default(),
                attempts: ask.attempts.fruitless(),
                source: Box::new(error),
            }),
            Decision::GiveUp => Err(error.into()),
        }
    }

    fn tell(&self, ask: &Ask, reason: &str, wait: Duration) {
        (self.fetcher.events)(Event::Retry {
            host: ask.host.url().to_owned(),
            lost: ask.pending.len(),
            attempt: ask.attempts.fruitless(),
            wait_seconds: wait.as_secs_f64(),
            reason: reason.to_owned(),
        });
    }

    /// Opens one extraction for what is missing and takes its rows until it ends, well or not.
    async fn attempt(&self, ask: &mut Ask, transfer: &mut Transfer) -> Result<(), Failure> {
        let window = self.fetcher.windows.of(ask.host.url());
        let _open = window.open().await;
        ask.host.catch_up().await?;
        let client = self.hosts.client(&ask.host);
        let opened = Instant::now();
        let request = self.source.request(ask.pending.samples());
        let limit = self
            .source
            .answer_bytes(ask.pending.samples().map(|(_, sample)| sample));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut silence = Silence::of(self, ask);
        let mut decoding = JoinSet::new();
        let ended = async {
            let mut stream = silence
                .end_with(client.extract(&request, self.source.format(), limit))
                .await?;
            loop {
                match silence.end_with(stream.step()).await? {
                    Step::Bytes => {}
                    Step::End => break,
                    Step::Rows(batches) => {
                        for batch in &batches {
                            self.take(ask, batch, &mut decoding)?;
                        }
                    }
                }
            }
            window.went_well();
            ask.host.did_well();
            transfer.open_seconds += opened.elapsed().as_secs_f64();
            transfer.host_seconds += stream.work().unwrap_or_default().as_secs_f64();
            Ok(())
        }
        .await;
        if matches!(ended, Ok(()) | Err(Failure::Silence(_))) {
            self.fetcher.patience.saw(&self.source.split, silence.longest);
        }
        // What arrived before a stream broke counts, so it is decoded in any case.
        while let Some(decoded) = decoding.join_next().await {
            let Ok((position, crop)) = decoded else { continue };
            match crop {
                Ok(crop) if self.buffer.set(position as usize, RowValue::U8(&crop)) => {
                    ask.pending.arrived(position)
                }
                Ok(_) => ask
                    .pending
                    .spoiled(position, OpError::runtime("its crop does not fit the recipe")),
                Err(error) => ask.pending.spoiled(position, OpError::from(error)),
            }
        }
        ended
    }

    fn take(
        &self,
        ask: &mut Ask,
        batch: &ActivationBatch,
        decoding: &mut JoinSet<(u32, Result<Vec<u8>, ImageError>)>,
    ) -> Result<(), ClientError> {
        let host = Arc::clone(&ask.host);
        let protocol = |reason: String| ClientError::Protocol {
            host: host.url().to_owned(),
            reason,
        };
        for row in batch.rows() {
            let row = row.map_err(|error| protocol(error.to_string()))?;
            match (row.outcome, self.source.rows) {
                (Err(error), _) => ask.pending.failed(row.position, error),
                (Ok(RowValue::Object(bytes)), Rows::Objects(spec)) => {
                    let decoders = self.fetcher.decoders.clone();
                    decoding.spawn(decode(decoders, row.position, bytes.to_vec(), spec));
                }
                (Ok(value), _) if self.buffer.set(row.position as usize, value) => {
                    ask.pending.arrived(row.position)
                }
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

/// Watches the time between signs of life of one answer.
struct Silence<'a> {
    exchange: &'a Exchange,
    /// The host that is asked, and those asked before.
    tried: BTreeSet<usize>,
    given_up: u32,
    longest: Duration,
}

/// How often a request that waits sees what others have shown meanwhile.
const LOOK: Duration = Duration::from_millis(500);

impl<'a> Silence<'a> {
    fn of(exchange: &'a Exchange, ask: &Ask) -> Self {
        let mut tried = ask.tried.clone();
        tried.insert(ask.host.index());
        Self {
            exchange,
            tried,
            given_up: ask.given_up,
            longest: Duration::ZERO,
        }
    }

    /// Waits for the next sign of life, for as long as others of its kind make plausible.
    async fn end_with<T>(
        &mut self,
        sign: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, Failure> {
        let since = Instant::now();
        let mut sign = std::pin::pin!(sign);
        loop {
            let left = self.limit().map(|limit| limit.saturating_sub(since.elapsed()));
            if left == Some(Duration::ZERO) {
                self.longest = self.longest.max(since.elapsed());
                return Err(Failure::Silence(since.elapsed()));
            }
            let pause = left.unwrap_or(LOOK).min(LOOK);
            if let Ok(sign) = tokio::time::timeout(pause, &mut sign).await {
                self.longest = self.longest.max(since.elapsed());
                return Ok(sign?);
            }
        }
    }

    fn limit(&self) -> Option<Duration> {
        let elsewhere = !self.exchange.hosts.candidates(&self.tried).is_empty();
        let patience = &self.exchange.fetcher.patience;
        patience.limit(&self.exchange.source.split, self.given_up, elsewhere)
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
fn passing(ask: &mut Ask) -> Option<Failure> {
    let error = ask.pending.take_passing()?;
    Some(Failure::Samples(ClientError::Interrupted {
        host: ask.host.url().to_owned(),
        reason: error.message,
    }))
}
