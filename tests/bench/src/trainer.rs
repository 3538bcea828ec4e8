//! The trainer's side of the two tiers: runs jobs in this process and notes when each step ended.

use crate::networks::Network;
use crate::report::median;
use crate::tiers::Tiers;
use anyhow::{Context, Result, bail, ensure};
use frostline_e2e::HostProcess;
use frostline_graph::Model;
use frostline_trainer::{
    Event, Events, Guest, HostClient, Job, Leg, Policy, ProfileCache, Token, TrainerError, UploadKind,
    rehearse, train,
};
use frostline_wire::{Encoding, Split};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Instant;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Batches extracted ahead while one trains.
const AHEAD: usize = 1;

/// The step size does not matter for time; a small one keeps random weights from diverging.
const LEARNING_RATE: f32 = 1e-6;

/// The steps of a leg that do not count: until the pipeline is full of its batches, and once the next leg's are on their way.
const RAMP: (usize, usize) = (AHEAD + 1, AHEAD);

/// A network to train over the two tiers.
pub(crate) struct Trainer<'a> {
    tiers: &'a Tiers,
    host: &'a HostProcess,
    runtime: tokio::runtime::Runtime,
    network: Network,
    file: PathBuf,
    model: Model,
    batch: usize,
    scratch: TempDir,
}

/// How the batches of a job are asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flow {
    pub(crate) request_samples: usize,
    pub(crate) window: usize,
}

/// A step that ended.
#[derive(Debug, Clone)]
pub(crate) struct Tick {
    at: Instant,
    /// Bytes the link had brought by then.
    received: u64,
    pub(crate) split: Split,
}

/// What a leg's steps took, those at its ends left out.
#[derive(Debug, Clone)]
pub(crate) struct LegTimes {
    pub(crate) split: Split,
    /// Of each step.
    pub(crate) seconds: Vec<f64>,
    /// That the link brought, per step.
    pub(crate) bytes: f64,
}

/// What sending the frozen layers took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Upload {
    pub(crate) bytes: u64,
    /// To write, hash and send them.
    pub(crate) seconds: f64,
}

impl LegTimes {
    pub(crate) fn median(&self) -> f64 {
        median(&self.seconds)
    }
}

/// A leg of which `steps` steps count.
pub(crate) fn leg(split: &Split, encoding: Encoding, steps: u64) -> Leg {
    Leg {
        split: split.clone(),
        encoding,
        steps: steps + (RAMP.0 + RAMP.1) as u64,
    }
}

/// The steps a leg of `counted` counting steps takes in all.
pub(crate) fn all_steps(counted: u64) -> u64 {
    counted + (RAMP.0 + RAMP.1) as u64
}

impl<'a> Trainer<'a> {
    pub(crate) fn open(
        tiers: &'a Tiers,
        host: &'a HostProcess,
        network: &Network,
        batch: usize,
    ) -> Result<Self> {
        let file = network.file()?;
        Ok(Self {
            tiers,
            host,
            runtime: tokio::runtime::Builder::new_multi_thread().enable_all().build()?,
            network: network.clone(),
            model: Model::read(&file)?,
            file,
            batch,
            scratch: tempfile::tempdir()?,
        })
    }

    pub(crate) fn tiers(&self) -> &Tiers {
        self.tiers
    }

    pub(crate) fn host(&self) -> &HostProcess {
        self.host
    }

    pub(crate) fn network(&self) -> &Network {
        &self.network
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn batch(&self) -> usize {
        self.batch
    }

    /// Where `frostline` is to keep what it measures about this machine, as `XDG_CACHE_HOME`.
    pub(crate) fn cache(&self) -> &Path {
        self.scratch.path()
    }

    /// Sends guest and frozen layers to the host, and trains as few steps as there can be.
    pub(crate) fn upload(&self) -> Result<Upload> {
        let freeze = Split::Cut(self.network.freeze.clone());
        let legs = vec![leg(&freeze, Encoding::F32, 1)];
        let mut upload = None;
        self.run(
            |client, events, stop| rehearse(self.job(None), legs, client, events, stop),
            |event, _| {
                if let Event::Upload {
                    what: UploadKind::Model,
                    bytes,
                    seconds,
                    ..
                } = event
                {
                    upload = Some(Upload {
                        bytes: *bytes,
                        seconds: *seconds,
                    });
                }
                Ok(())
            },
        )?;
        upload.context("the job sent no model")
    }

    /// One job over all legs; the times of each.
    pub(crate) fn time(&self, legs: &[Leg], flow: Flow) -> Result<Vec<LegTimes>> {
        let mut ticks = Vec::new();
        let own = legs.to_vec();
        self.run(
            |client, events, stop| rehearse(self.job(Some(flow)), own, client, events, stop),
            self.note(&mut ticks, |_| Ok(())),
        )?;
        let mut rest = ticks.as_slice();
        let mut times = Vec::new();
        for leg in legs {
            let (own, others) = rest
                .split_at_checked(leg.steps as usize)
                .context("the job ended before its steps were done")?;
            rest = others;
            times.push(LegTimes::of(leg, own)?);
        }
        Ok(times)
    }

    /// A whole job of some epochs by `policy`; `after` is called after each step with the number of steps done.
    pub(crate) fn watch(
        &self,
        policy: Policy,
        encoding: Option<Encoding>,
        epochs: u32,
        after: impl FnMut(usize) -> Result<()>,
    ) -> Result<Vec<Tick>> {
        let mut job = self.job(None);
        job.split = policy;
        job.encoding = encoding;
        job.epochs = epochs;
        let mut ticks = Vec::new();
        self.run(
            |client, events, stop| async move { train(job, client, events, stop).await.map(drop) },
            self.note(&mut ticks, after),
        )?;
        Ok(ticks)
    }

    /// Notes each step.
    fn note<'t>(
        &'t self,
        ticks: &'t mut Vec<Tick>,
        mut after: impl FnMut(usize) -> Result<()> + 't,
    ) -> impl FnMut(&Event, Instant) -> Result<()> + 't {
        move |event, at| {
            if let Event::Step { split, .. } = event {
                let received = self.tiers.link().received()?;
                let split = split.clone();
                ticks.push(Tick { at, received, split });
                after(ticks.len())?;
            }
            Ok(())
        }
    }

    /// Does `work` on the runtime, and shows every event to `watch` on this thread. Ctrl-C ends it.
    fn run<F>(
        &self,
        work: impl FnOnce(HostClient, Events, CancellationToken) -> F,
        mut watch: impl FnMut(&Event, Instant) -> Result<()>,
    ) -> Result<()>
    where
        F: Future<Output = Result<(), TrainerError>> + Send + 'static,
    {
        let token = Token::read(self.host.token_file())?;
        let client = HostClient::new(&self.host.url(), Some(token))?;
        let (sender, events) = mpsc::channel();
        let tell: Events = Arc::new(move |event| {
            let _ = sender.send((event, Instant::now()));
        });
        let stop = CancellationToken::new();
        let work = work(client, tell, stop.clone());
        let task = self.runtime.spawn(async move {
            tokio::select! {
                result = work => result.map_err(anyhow::Error::from),
                _ = tokio::signal::ctrl_c() => bail!("interrupted"),
            }
        });
        let watched = events.iter().try_for_each(|(event, at)| watch(&event, at));
        if watched.is_err() {
            stop.cancel();
        }
        let trained = self.runtime.block_on(task).context("the trainer fell over")?;
        watched.and(trained)
    }

    fn job(&self, flow: Option<Flow>) -> Job {
        let mut job = Job::new(
            self.model.clone(),
            self.network.name.clone(),
            self.network.freeze.clone(),
            self.tiers.data().to_owned(),
            Guest::stock(),
            self.scratch.path().join("tuned.onnx"),
        );
        job.batch = self.batch;
        job.learning_rate = LEARNING_RATE;
        job.prefetch = AHEAD;
        job.threads = 1;
        job.cache = Some(ProfileCache::at(self.cache().join("frostline")));
        if let Some(flow) = flow {
            job.request_samples = flow.request_samples;
            job.open_requests = flow.window;
        }
        job
    }
}

impl LegTimes {
    fn of(leg: &Leg, ticks: &[Tick]) -> Result<Self> {
        for tick in ticks {
            ensure!(
                tick.split == leg.split,
                "a step ran at '{}' instead of '{}'",
                tick.split,
                leg.split
            );
        }
        let end = ticks.len().saturating_sub(RAMP.1);
        let counted = ticks.get(RAMP.0.saturating_sub(1)..end).unwrap_or_default();
        let pairs = || counted.iter().zip(counted.iter().skip(1));
        let seconds: Vec<f64> = pairs().map(|(one, next)| next.since(one)).collect();
        let bytes = match (counted.first(), counted.last()) {
            (Some(first), Some(last)) => last.received.saturating_sub(first.received) as f64,
            _ => f64::NAN,
        };
        let steps = seconds.len();
        ensure!(steps > 0, "a leg of {} steps has none that counts", ticks.len());
        Ok(Self {
            split: leg.split.clone(),
            seconds,
            bytes: bytes / steps as f64,
        })
    }
}

impl Tick {
    /// Seconds from an earlier one to this.
    pub(crate) fn since(&self, earlier: &Self) -> f64 {
        self.at.duration_since(earlier.at).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn steps_at_the_ends_of_a_leg_do_not_count() {
        let start = Instant::now();
        let split = Split::Input;
        let seconds = [9, 10, 11, 13, 15, 16, 30];
        let tick = |(index, second): (usize, &u64)| Tick {
            at: start + Duration::from_secs(*second),
            received: index as u64 * 100,
            split: split.clone(),
        };
        let ticks: Vec<Tick> = seconds.iter().enumerate().map(tick).collect();
        let times = LegTimes::of(&leg(&split, Encoding::U8, 4), &ticks).unwrap();
        assert_eq!(times.seconds, [1.0, 2.0, 2.0, 1.0]);
        assert_eq!((times.median(), times.bytes), (1.5, 100.0));
        let other = leg(&Split::None, Encoding::F32, 4);
        assert!(LegTimes::of(&other, &ticks).is_err());
    }
}
