//! Divides a batch into requests, places them on hosts and retries lost samples.

use super::Transfer;
use super::attempt::{Failure, passing};
use super::exchange::{Exchange, HostRequest};
use super::request::PendingSamples;
use crate::hosts::{Member, place, placement_keys};
use crate::retry::{Attempts, Retry};
use crate::{ClientError, Notice};
use frostline_tensor::OpError;
use frostline_wire::ObjectInfo;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Outcome of a [`HostRequest`].
struct RequestOutcome {
    /// Bad samples, by index in the batch.
    bad: Vec<(usize, OpError)>,
    transfer: Transfer,
    /// Requests for the missing samples, to send to other hosts now.
    moved: Vec<HostRequest>,
}

/// Next attempt for missing samples, including the required wait.
enum NextAttempt {
    SameHost(Duration),
    AnyHost(Duration),
}

impl Exchange {
    /// Fetches all `samples`. Returns the bad samples and the transfer statistics.
    pub(super) async fn run(
        self: &Arc<Self>,
        samples: &Arc<[ObjectInfo]>,
    ) -> Result<(Vec<(usize, OpError)>, Transfer), ClientError> {
        let mut asking = JoinSet::new();
        for ask in self.first_asks(samples)? {
            asking.spawn(Arc::clone(self).ask(ask));
        }
        let mut bad = Vec::new();
        let mut transfer = Transfer::default();
        while let Some(ended) = asking.join_next().await {
            let part = "fetching task";
            let asked = ended.map_err(|_| ClientError::Ended { part })??;
            bad.extend(asked.bad);
            transfer += asked.transfer;
            for ask in asked.moved {
                asking.spawn(Arc::clone(self).ask(ask));
            }
        }
        Ok((bad, transfer))
    }

    /// Groups the batch by host and splits each group into requests of `request_samples`.
    fn first_asks(&self, samples: &Arc<[ObjectInfo]>) -> Result<Vec<HostRequest>, ClientError> {
        let all = PendingSamples::new(Arc::clone(samples), 0..samples.len() as u32);
        let placed = self.place(&all, &BTreeSet::new())?;
        let mut asks = Vec::new();
        let seen = self.hosts.seen();
        for (host, pending) in placed {
            let positions: Vec<u32> = pending.samples().map(|(position, _)| position).collect();
            for part in positions.chunks(self.source.request_samples) {
                asks.push(HostRequest {
                    host: Arc::clone(&host),
                    pending: PendingSamples::new(Arc::clone(samples), part.iter().copied()),
                    attempts: Attempts::new(self.memory.policy, seen),
                    tried: BTreeSet::new(),
                    given_up: 0,
                });
            }
        }
        Ok(asks)
    }

    /// Repeats attempts until all samples are present or have to be requested elsewhere.
    async fn ask(self: Arc<Self>, mut ask: HostRequest) -> Result<RequestOutcome, ClientError> {
        let mut transfer = Transfer::default();
        let mut moved = Vec::new();
        while ask.pending.len() > 0 {
            let before = ask.pending.len();
            let ended = self.attempt(&mut ask, &mut transfer).await;
            let arrived = before - ask.pending.len();
            let Some(failure) = ended.err().or_else(|| passing(&mut ask)) else {
                ask.attempts.moves(arrived);
                continue;
            };
            if arrived == 0 && matches!(failure, Failure::Samples(ClientError::RowsUnavailable { .. })) {
                ask.pending.outage();
            }
            if ask.pending.len() == 0 {
                break;
            }
            match self.after(&mut ask, failure, arrived)? {
                NextAttempt::SameHost(wait) => tokio::time::sleep(wait).await,
                NextAttempt::AnyHost(wait) => {
                    tokio::time::sleep(wait).await;
                    moved = self.moved(&ask)?;
                    break;
                }
            }
        }
        let bad = ask.pending.into_bad().into_iter();
        Ok(RequestOutcome {
            bad: bad.map(|(position, error)| (position as usize, error)).collect(),
            transfer,
            moved,
        })
    }

    /// Assigns the missing samples to available hosts, excluding `tried`.
    fn place(
        &self,
        pending: &PendingSamples,
        tried: &BTreeSet<usize>,
    ) -> Result<Vec<(Arc<Member>, PendingSamples)>, ClientError> {
        let mut candidates = self.hosts.candidates(tried);
        if candidates.is_empty() {
            // The last other host went down in the meantime, so use any host.
            candidates = self.hosts.candidates(&BTreeSet::new());
        }
        let keys = placement_keys(&candidates, &self.hosts.members());
        let groups = pending.divide(|sample| place(&keys, &sample.sample.key).unwrap_or_default());
        groups
            .into_iter()
            .map(|(number, pending)| Some((candidates.get(number).cloned()?, pending)))
            .collect::<Option<_>>()
            .ok_or(ClientError::Ended { part: "set of hosts" })
    }

    fn moved(&self, ask: &HostRequest) -> Result<Vec<HostRequest>, ClientError> {
        let placed = self.place(&ask.pending, &ask.tried)?.into_iter();
        let moved = placed.map(|(host, pending)| HostRequest {
            host,
            pending,
            attempts: ask.attempts.clone(),
            tried: ask.tried.clone(),
            given_up: ask.given_up,
        });
        Ok(moved.collect())
    }

    /// Decides after an attempt that delivered `arrived` rows and left some missing. If an untried host is
    /// available, the samples move there immediately. Otherwise, they are retried after a wait, or the fetch
    /// fails.
    fn after(
        &self,
        ask: &mut HostRequest,
        failure: Failure,
        arrived: usize,
    ) -> Result<NextAttempt, ClientError> {
        let host = ask.host.url().to_owned();
        let error = match failure {
            Failure::Host(error) if error.may_succeed_elsewhere() => {
                ask.host.record_failure(&error);
                error
            }
            Failure::Host(error) if error.is_busy() => {
                self.memory.windows.window_for(&host).was_busy();
                return self.wait(ask, error, arrived).map(NextAttempt::SameHost);
            }
            Failure::Host(error) => return self.wait(ask, error, arrived).map(NextAttempt::SameHost),
            Failure::Samples(error) => error,
            Failure::LeftOut => return Ok(NextAttempt::AnyHost(Duration::ZERO)),
            Failure::Silence(silence) => {
                ask.given_up += 1;
                ask.tried.insert(ask.host.index);
                if self.hosts.candidates(&ask.tried).is_empty() {
                    ask.tried.clear();
                }
                ask.attempts.moves(arrived);
                let reason = format!("no data for {:.1} s, longer than usual", silence.as_secs_f64());
                self.report_retry(ask, &reason, Duration::ZERO, None);
                return Ok(NextAttempt::AnyHost(Duration::ZERO));
            }
        };
        ask.tried.insert(ask.host.index);
        if !self.hosts.candidates(&ask.tried).is_empty() {
            ask.attempts.moves(arrived);
            self.report_retry(ask, &error.to_string(), Duration::ZERO, None);
            return Ok(NextAttempt::AnyHost(Duration::ZERO));
        }
        ask.tried.clear();
        self.wait(ask, error, arrived).map(NextAttempt::AnyHost)
    }

    /// Returns the wait before the next attempt.
    ///
    /// # Errors
    /// Returns [`ClientError::Lost`] if the retry limit is reached, or `error` if retrying cannot help.
    fn wait(
        &self,
        ask: &mut HostRequest,
        error: ClientError,
        arrived: usize,
    ) -> Result<Duration, ClientError> {
        let seen = self.hosts.seen();
        match ask.attempts.after(&error, arrived, seen) {
            Retry::Again(wait) => {
                let left = ask.attempts.outage_time_left(seen.observed);
                self.report_retry(ask, &error.to_string(), wait, left);
                Ok(wait)
            }
            Retry::GiveUp if error.may_pass_later() && ask.attempts.fruitless() > 0 => {
                Err(ClientError::Lost {
                    host: self.hosts.names(),
                    lost: ask.pending.len(),
                    first: ask
                        .pending
                        .samples()
                        .next()
                        .map(|(_, sample)| sample.sample.key.clone())
                        .unwrap_or_default(),
                    attempts: ask.attempts.fruitless(),
                    source: Box::new(error),
                })
            }
            Retry::GiveUp => Err(error),
        }
    }

    fn report_retry(&self, ask: &HostRequest, reason: &str, wait: Duration, left: Option<Duration>) {
        self.hosts.notify(Notice::Retry {
            host: ask.host.url().to_owned(),
            lost: ask.pending.len(),
            attempt: ask.attempts.fruitless(),
            wait_seconds: wait.as_secs_f64(),
            left_seconds: left.map(|left| left.as_secs_f64()),
            reason: reason.to_owned(),
        });
    }
}
