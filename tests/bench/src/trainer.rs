//! Trainer side of the two tiers. Runs jobs in this process and records the time of each step.

use crate::legs::{LegTimes, StepEnd, framing};
use crate::networks::Network;
use crate::tiers::Tiers;
use crate::training::OPTIMIZER;
use crate::whole::JobTimes;
use anyhow::{Context, Result, bail};
use frostline_client::{HostClient, Token, UploadKind};
use frostline_e2e::HostProcess;
use frostline_features::Cache;
use frostline_graph::Model;
use frostline_trainer::rehearsal::{Leg, Rehearsal};
use frostline_trainer::{
    ComputeError, EncodingChoice, Event, Events, FetchLimits, Job, LearningRates, Policy, ProfileFolder,
    TrainedStep, TrainerError, train,
};
use frostline_training::TrainingGraph;
use frostline_wire::{Encoding, Split};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Instant;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Small enough that random weights do not diverge. Step times do not depend on the learning rate.
const LEARNING_RATE: f32 = 1e-6;

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
    /// Set by [`Trainer::upload`].
    rehearsal: Option<Rehearsal>,
}

/// Checks that the layers after `freeze` can be trained, before anything is sent or measured.
fn check_suffix(model: &Model, freeze: &str, batch: usize) -> Result<(), TrainerError> {
    let suffix = model.slice(Some(freeze), None)?;
    let built = TrainingGraph::build(&suffix, batch, OPTIMIZER);
    built.map_err(ComputeError::not_trained(freeze))?;
    Ok(())
}

/// Returns true if the network cannot be trained as configured. Such errors do not depend on the machine, the
/// host or the link.
pub(crate) fn cannot_train(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(
            TrainerError::Compute(ComputeError::Training { .. } | ComputeError::Graph(_))
                | TrainerError::Untrainable { .. }
                | TrainerError::Graph(_)
                | TrainerError::LayersTooLarge { .. }
        )
    )
}

/// Size and duration of the frozen layers' upload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Upload {
    pub(crate) bytes: u64,
    /// Seconds for writing, hashing and sending them.
    pub(crate) seconds: f64,
}

impl<'a> Trainer<'a> {
    pub(crate) fn open(
        tiers: &'a Tiers,
        host: &'a HostProcess,
        network: &Network,
        batch: usize,
    ) -> Result<Self> {
        let file = network.file()?;
        let model = Model::read(&file).map_err(TrainerError::from)?;
        check_suffix(&model, &network.freeze, batch)?;
        Ok(Self {
            tiers,
            host,
            runtime: tokio::runtime::Builder::new_multi_thread().enable_all().build()?,
            network: network.clone(),
            model,
            file,
            batch,
            scratch: tempfile::tempdir()?,
            rehearsal: None,
        })
    }

    /// Starts a host, uploads the network's layers and calls `work` with the trainer. The link is unlimited
    /// during the upload, so no timed job includes it.
    pub(crate) fn with_host<T>(
        tiers: &Tiers,
        network: &Network,
        batch: usize,
        work: impl FnOnce(&mut Trainer<'_>) -> Result<T>,
    ) -> Result<T> {
        let folder = tempfile::tempdir()?;
        tiers.link().hold(None)?;
        let host = tiers.host(folder.path())?;
        let mut trainer = Trainer::open(tiers, &host, network, batch)?;
        trainer.upload()?;
        work(&mut trainer)
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

    /// Cache folder for `frostline` (`XDG_CACHE_HOME`), with measurements of this machine.
    pub(crate) fn cache(&self) -> &Path {
        self.scratch.path()
    }

    /// Sends guest and frozen layers to the host.
    pub(crate) fn upload(&mut self) -> Result<Upload> {
        let mut upload = None;
        let job = self.job();
        let rehearsal = self.run(
            |client, events, _| async move { Rehearsal::open(job, client, &events).await },
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
        self.rehearsal = Some(rehearsal);
        upload.context("the job sent no model")
    }

    /// Runs all legs in one rehearsal and returns the times of each leg.
    pub(crate) fn time(&mut self, legs: &[Leg], flow: FetchLimits) -> Result<Vec<LegTimes>> {
        let ticks = self.run_legs(legs, flow)?;
        let framing = framing(&ticks);
        let mut rest = ticks.as_slice();
        let mut times = Vec::new();
        for leg in legs {
            let (own, others) = rest
                .split_at_checked(leg.steps as usize)
                .context("the job ended during a leg")?;
            rest = others;
            times.push(LegTimes::measure(leg, own, flow, framing)?);
        }
        Ok(times)
    }

    /// Runs one unmeasured step of each leg. The first step at a split loads layers on both sides and is
    /// slower than usual.
    pub(crate) fn warm_up(&mut self, legs: &[Leg], flow: FetchLimits) -> Result<()> {
        let legs: Vec<Leg> = legs
            .iter()
            .map(|leg| Leg {
                steps: 1,
                ..leg.clone()
            })
            .collect();
        self.run_legs(&legs, flow).map(drop)
    }

    /// Runs all legs in one rehearsal and returns the steps.
    fn run_legs(&mut self, legs: &[Leg], flow: FetchLimits) -> Result<Vec<StepEnd>> {
        let mut ticks = Vec::new();
        let mut rehearsal = self
            .rehearsal
            .take()
            .context("the frozen layers must be uploaded first")?;
        let own = legs.to_vec();
        let rehearsal = self.run(
            |_, events, stop| async move {
                rehearsal.run(&own, flow, &events, &stop).await?;
                Ok(rehearsal)
            },
            self.note(&mut ticks, |_| Ok(())),
        )?;
        self.rehearsal = Some(rehearsal);
        Ok(ticks)
    }

    /// Runs a complete job with `policy` and the splits in `candidates`. `after` is called after each step
    /// with the number of steps so far.
    pub(crate) fn watch(
        &self,
        policy: Policy,
        encoding: Option<Encoding>,
        candidates: &[Split],
        epochs: u32,
        after: impl FnMut(usize) -> Result<()>,
    ) -> Result<Vec<StepEnd>> {
        let mut job = self.job();
        job.spec.split = policy;
        job.spec.encoding = encoding.map_or(EncodingChoice::Auto, EncodingChoice::Fixed);
        job.spec.candidates = Some(candidates.to_vec());
        job.spec.recipe.epochs = epochs;
        let mut ticks = Vec::new();
        self.run(
            |client, events, stop| async move { train(job, client, events, stop).await.map(drop) },
            self.note(&mut ticks, after),
        )?;
        Ok(ticks)
    }

    /// Runs a complete job with a planned split from `candidates`. Features are cached in `features`, if set.
    pub(crate) fn whole(
        &self,
        candidates: &[Split],
        epochs: u32,
        features: Option<Cache>,
    ) -> Result<JobTimes> {
        let mut job = self.job();
        job.spec.candidates = Some(candidates.to_vec());
        self.timed(job, epochs, features)
    }

    /// Like [`Trainer::whole`], with a fixed split and encoding.
    pub(crate) fn whole_at(
        &self,
        (split, encoding): (Split, Encoding),
        epochs: u32,
        features: Option<Cache>,
    ) -> Result<JobTimes> {
        let mut job = self.job();
        job.spec.split = Policy::Fixed(split);
        job.spec.encoding = EncodingChoice::Fixed(encoding);
        self.timed(job, epochs, features)
    }

    fn timed(&self, mut job: Job, epochs: u32, features: Option<Cache>) -> Result<JobTimes> {
        job.spec.recipe.epochs = epochs;
        job.features = features;
        let mut whole = JobTimes::default();
        let started = Instant::now();
        self.run(
            |client, events, stop| async move { train(job, client, events, stop).await.map(drop) },
            |event, _| {
                whole.add_event(event);
                Ok(())
            },
        )?;
        whole.seconds = started.elapsed().as_secs_f64();
        Ok(whole)
    }

    /// Records each step in `ticks` and then calls `after` with the number of steps so far. Prints changes of
    /// plan.
    fn note<'t>(
        &'t self,
        ticks: &'t mut Vec<StepEnd>,
        mut after: impl FnMut(usize) -> Result<()> + 't,
    ) -> impl FnMut(&Event, Instant) -> Result<()> + 't {
        move |event, at| {
            if let Event::Replan { step, reason, .. } = event {
                println!("       after step {step}: {reason}");
            }
            if let Event::Step(TrainedStep {
                split,
                waited_seconds,
                bytes_received,
                ..
            }) = event
            {
                ticks.push(StepEnd {
                    at,
                    received: self.tiers.link().received()?,
                    waited: *waited_seconds,
                    payload: *bytes_received,
                    split: split.clone(),
                });
                after(ticks.len())?;
            }
            Ok(())
        }
    }

    /// Runs `work` on the runtime and calls `watch` for every event on this thread. Ctrl-C and errors from
    /// `watch` stop the work.
    fn run<F, T: Send + 'static>(
        &self,
        work: impl FnOnce(HostClient, Events, CancellationToken) -> F,
        mut watch: impl FnMut(&Event, Instant) -> Result<()>,
    ) -> Result<T>
    where
        F: Future<Output = Result<T, TrainerError>> + Send + 'static,
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
        let trained = self.runtime.block_on(task).context("the trainer panicked")?;
        watched.and(trained)
    }

    fn job(&self) -> Job {
        let mut job = Job::new(
            self.model.clone(),
            self.network.name.clone(),
            self.network.freeze.clone(),
            self.tiers.data().to_owned(),
            self.scratch.path().join("tuned.onnx"),
        );
        job.spec.recipe.batch = self.batch;
        job.spec.recipe.lr = Some(LearningRates::One(LEARNING_RATE.into()));
        job.spec.threads = 1;
        job.cache = Some(ProfileFolder::new(self.cache().join("frostline")));
        job
    }
}

#[cfg(test)]
mod tests {
    use super::{cannot_train, check_suffix};
    use frostline_graph::Model;
    use frostline_graph::build::{Axis, batched, initializer, model, node, value};
    use frostline_graph::onnx::{GraphProto, NodeProto, data_type};
    use frostline_tensor::Tensor;

    fn network(nodes: Vec<NodeProto>) -> Model {
        let weights = [("ones", vec![4], 4), ("fc.weight", vec![4, 3], 12)];
        let weights = weights
            .map(|(name, dims, count)| initializer(name, &Tensor::f32(dims, vec![1.0; count]).unwrap()));
        let graph = GraphProto {
            name: "head".to_owned(),
            node: nodes,
            initializer: weights.to_vec(),
            input: vec![batched("x", &[4])],
            output: vec![value(
                "logits",
                data_type::FLOAT,
                &[Axis::batch(), Axis::Fixed(3)],
            )],
            ..GraphProto::default()
        };
        Model::from_proto(model(17, graph)).unwrap()
    }

    #[test]
    fn a_suffix_without_gradients_is_reported_before_upload() {
        let first = node("Relu", &["x"], &["cut"]);
        let head = |input| node("MatMul", &[input, "fc.weight"], &["logits"]);
        let plain = network(vec![first.clone(), head("cut")]);
        check_suffix(&plain, "cut", 2).unwrap();
        let scaled = node("Mul", &["cut", "ones"], &["scaled"]);
        let bent = node("Tan", &["scaled"], &["bent"]);
        let refused = check_suffix(&network(vec![first, scaled, bent, head("bent")]), "cut", 2);
        let refused = anyhow::Error::from(refused.unwrap_err());
        assert!(cannot_train(&refused), "{refused:#}");
        assert!(format!("{refused:#}").contains("operator Tan"), "{refused:#}");
    }
}
