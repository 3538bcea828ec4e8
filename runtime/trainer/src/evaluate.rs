use crate::client::Waits;
use crate::compute::{Dedicated, Forward, correct};
use crate::pipeline::{BadSamples, Feed, FeedPlan, Part, Rows, Source, Steering};
use crate::run::fetcher;
use crate::setup::{blocking, session_options};
use crate::{Dataset, Evaluation, EvaluationJob, Events, Hosts, Sample, TrainerError, notes};
use frostline_engine::Interrupt;
use frostline_graph::Network;
use frostline_tensor::PixelSpec;
use frostline_wire::{Encoding, ObjectInfo, Split};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Measures a whole model on the objects of a data root: they travel as they are, and everything is computed here.
///
/// # Errors
/// [`TrainerError`].
pub async fn evaluate(
    job: EvaluationJob,
    hosts: impl Into<Hosts>,
    events: Events,
    cancel: CancellationToken,
) -> Result<Evaluation, TrainerError> {
    let hosts = hosts.into().for_job(&events, Waits::default());
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(TrainerError::Cancelled),
        evaluation = run(&job, &hosts, &events) => evaluation,
    }
}

async fn run(job: &EvaluationJob, hosts: &Hosts, events: &Events) -> Result<Evaluation, TrainerError> {
    if job.batch == 0 {
        let value = "0".to_owned();
        return Err(TrainerError::Setting {
            what: "the batch size",
            value,
            must: "it must be at least 1",
        });
    }
    let model = job.model.clone();
    let network = blocking(move || Ok(model.network()?)).await?;
    let pixels = notes::pixels(&job.model, &network, job.pixels)?;
    let samples = samples(job, &network, hosts.objects(&job.root, job.layout, events).await?)?;
    let interrupt = Interrupt::new();
    let (model, batch, options, guard) = (
        job.model.clone(),
        job.batch,
        session_options(job.device, job.threads),
        interrupt.clone(),
    );
    let forward = blocking(move || Forward::open(&model, batch, &options, &guard, "evaluating")).await?;
    let forward = Dedicated::start(forward, interrupt)?;
    let plan = FeedPlan {
        train: Arc::new([]),
        validation: samples.into(),
        epochs: 0,
        batch: job.batch,
        seed: 0,
        ahead: AHEAD,
        memory_bytes: MEMORY_BYTES,
    };
    let bad = Arc::new(BadSamples::new(job.on_bad_sample, Arc::clone(events)));
    let steering = Arc::new(Steering::towards(source(job, pixels)));
    let fetcher = fetcher(OPEN_REQUESTS, job.threads, events)?;
    let mut feed = Feed::start(plan.clone(), fetcher, steering, hosts.clone(), Arc::clone(&bad))?;
    let (mut right, mut samples) = (0, 0);
    for _ in 0..plan.batches(Part::Validation) {
        let batch = &mut feed.next().await?;
        let Some(rows) = batch.rows.take() else { continue };
        let labels = std::mem::take(&mut batch.labels);
        samples += labels.len();
        right += forward
            .run(move |forward| Ok(correct(&forward.run(&rows)?, &labels)))
            .await?;
    }
    if samples == 0 {
        return Err(bad.nothing_left(Part::Validation, plan.validation.len()));
    }
    Ok(Evaluation {
        accuracy: right as f64 / samples as f64,
        samples,
    })
}

/// As a job's defaults, for the same reasons.
const MEMORY_BYTES: u64 = 2 << 30;
const REQUEST_SAMPLES: usize = 32;
const OPEN_REQUESTS: usize = 8;
const AHEAD: usize = 2;

/// Samples labelled by the classes the model carries, else by the sorted class folders, if they are as many as its outputs.
fn samples(
    job: &EvaluationJob,
    network: &Network,
    objects: Vec<ObjectInfo>,
) -> Result<Vec<Sample>, TrainerError> {
    let classes = match notes::classes(&job.model) {
        Some(classes) => classes,
        None => Dataset::class_folders(&objects),
    };
    let outputs = network.output.shape.dims().iter().product::<usize>();
    if classes.len() != outputs {
        return Err(TrainerError::Classes {
            classes: classes.len(),
            outputs,
        });
    }
    Ok(Dataset::to_evaluate(&job.root, objects, &classes)?)
}

fn source(job: &EvaluationJob, pixels: PixelSpec) -> Source {
    Source {
        root: job.root.clone(),
        split: Split::None,
        encoding: Encoding::F32,
        guest: None,
        model: None,
        parameters: String::new(),
        rows: Rows::Objects(pixels),
        shape: pixels.sample_shape().to_vec(),
        request_samples: REQUEST_SAMPLES,
    }
}
