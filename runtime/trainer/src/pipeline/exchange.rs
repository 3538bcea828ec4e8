use super::Source;
use super::attempt::{Failure, passing};
use super::buffer::BatchBuffer;
use super::fetch::{Fetcher, Transfer};
use super::request::Pending;
use crate::Sample;
use crate::client::Member;
use crate::retry::{Attempts, Decision, may_pass};
use crate::{ClientError, Event, Hosts, TrainerError};
use frostline_tensor::OpError;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// One batch on its way: divides it into requests, places them at hosts, and decides where to ask again for what got lost.
pub(super) struct Exchange {
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) hosts: Hosts,
    pub(super) source: Arc<Source>,
    pub(super) buffer: Arc<BatchBuffer>,
}

/// Samples that are asked of one host together.
pub(super) struct Ask {
    pub(super) host: Arc<Member>,
    pub(super) pending: Pending,
    attempts: Attempts,
    /// Hosts that failed to bring all of them, since the last wait.
    pub(super) tried: BTreeSet<usize>,
    /// How often they were given up because nothing came.
    pub(super) given_up: u32,
}

/// What became of an [`Ask`].
pub(super) struct Asked {
    /// Samples that are bad, by their place in the batch.
    pub(super) bad: Vec<(usize, OpError)>,
    pub(super) transfer: Transfer,
    /// What is missing, to be asked of these hosts now.
    pub(super) moved: Vec<Ask>,
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
        let index = |sample: &Sample| place(&sample.object.key).map_or(0, |host| host.index());
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
            Failure::LeftOut => return Ok(Next::Anywhere(Duration::ZERO)),
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
                    .map(|(_, sample)| sample.object.key.clone())
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
}
