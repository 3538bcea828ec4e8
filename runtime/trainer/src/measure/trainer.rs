//! The trainer measures itself: the frozen layers on its own engine, decoding, and a training step.

use super::ProfileCache;
use crate::TrainerError;
use crate::compute::{Dedicated, Suffix, SuffixParts, blocking, rows_for};
use crate::evaluation::Targets;
use crate::pipeline::BatchRows;
use crate::plan::TrainerProfile;
use crate::recipe::StepTerms;
use bytes::Bytes;
use frostline_engine::{Device, Interrupt, Lanes, LanesConfig, SessionOptions, StageSource, library_version};
use frostline_graph::Model;
use frostline_images::{DecodeLimits, load_augmented, normalize};
use frostline_profile::{
    MeasuredModel, ProfileError, Rules, encoded_pixels, machine, measure, memory, now, timed,
};
use frostline_tensor::{
    Augmentation, Data, GraphExecutor, OpError, PixelSpec, Precision, Shape, Stage, Tensor, View,
};
use frostline_training::StepSettings;
use frostline_wire::{CutProfile, Encoded, Platform, Split};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// What is measured on a trainer.
#[derive(Debug, Clone)]
pub(crate) struct TrainerTask {
    /// The network with the head that is trained.
    pub(crate) model: Model,
    /// The same with its frozen layers as the job computes them.
    pub(crate) frozen: Model,
    /// SHA-256 of its frozen layers, as they are uploaded.
    pub(crate) frozen_sha256: String,
    /// The freeze cut.
    pub(crate) freeze: String,
    /// The cuts to measure, in the order of execution.
    pub(crate) cuts: Vec<String>,
    /// How objects become the network's input.
    pub(crate) pixels: PixelSpec,
    /// How they are augmented, which counts as decoding.
    pub(crate) view: Option<View>,
    /// Samples of a training step.
    pub(crate) batch: usize,
    /// How a step is made.
    pub(crate) settings: StepSettings,
    /// Where and with how many threads the trainer computes.
    pub(crate) options: SessionOptions,
    /// How exactly it computes the frozen layers.
    pub(crate) precision: Precision,
}

/// What a stored profile depends on beside the frozen layers.
#[derive(Serialize)]
struct Key<'a> {
    platform: &'a Platform,
    freeze: &'a str,
    cuts: &'a [String],
    pixels: &'a PixelSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    augmentation: Option<Augmentation>,
    batch: usize,
    settings: String,
    /// Of the operators and weights' shapes of the layers that are trained.
    suffix: String,
    #[serde(skip_serializing_if = "Precision::is_full")]
    precision: Precision,
}

/// What a trainer takes for `task`: from `cache` while nothing it depends on has changed, else measured now, on the objects that `samples`
/// brings. A profile that cannot be stored is returned all the same.
///
/// # Errors
/// [`TrainerError::Profile`] when the frozen layers cannot be measured, [`TrainerError::Training`] when the others cannot be trained,
/// and what `samples` fails with.
pub(crate) async fn trainer_profile(
    task: TrainerTask,
    cache: Option<&ProfileCache>,
    samples: impl Future<Output = Result<Vec<Bytes>, TrainerError>>,
) -> Result<TrainerProfile, TrainerError> {
    let (for_key, stored) = (task.clone(), cache.cloned());
    let look_up = move || {
        let platform = platform(&for_key.options, &for_key.frozen)?;
        let key = key(&for_key, &platform)?;
        let stored = stored.and_then(|cache| cache.get(&for_key.frozen_sha256, &key));
        Ok((platform, key, stored))
    };
    let (platform, key, stored) = blocking(look_up).await?;
    if let Some(stored) = stored {
        return Ok(stored);
    }
    let model = task.frozen_sha256.clone();
    let profile = measured(task, platform, samples.await?).await?;
    if let Some(cache) = cache {
        let (cache, profile) = (cache.clone(), profile.clone());
        // Without it, the next job measures again.
        blocking(move || Ok(cache.put(&model, &key, &profile).ok())).await?;
    }
    Ok(profile)
}

fn platform(options: &SessionOptions, frozen: &Model) -> Result<Platform, TrainerError> {
    let gpu = match options.device {
        Device::Cpu => None,
        Device::Cuda(index) => Some(index),
    };
    let library = library_version().map_err(|source| TrainerError::Engine {
        doing: "measuring",
        source,
    })?;
    Ok(Platform {
        machine: machine(gpu),
        device: options.device.to_string(),
        library: format!("onnxruntime {library}"),
        lanes: 1,
        threads_per_lane: options.threads.max(1),
        decode_threads: options.threads.max(1),
        rows: rows_for(frozen, options)?,
    })
}

fn key(task: &TrainerTask, platform: &Platform) -> Result<serde_json::Value, TrainerError> {
    let suffix = task.model.slice(Some(&task.freeze), None)?;
    let mut hash = Sha256::new();
    for node in suffix.nodes() {
        hash.update(format!("{} ", node.op_type));
    }
    for parameter in suffix.parameters() {
        hash.update(format!("{:?} ", parameter.dims));
    }
    let key = Key {
        platform,
        freeze: &task.freeze,
        cuts: &task.cuts,
        pixels: &task.pixels,
        augmentation: task.view.map(|view| view.augmentation),
        batch: task.batch,
        settings: format!("{:?}", task.settings),
        suffix: hex::encode(hash.finalize()),
        precision: task.precision,
    };
    serde_json::to_value(key).map_err(|_| TrainerError::Ended { part: "profile" })
}

async fn measured(
    task: TrainerTask,
    platform: Platform,
    objects: Vec<Bytes>,
) -> Result<TrainerProfile, TrainerError> {
    let started = Instant::now();
    let (spec, view) = (task.pixels, task.view);
    let pixels = blocking(move || decode(&objects, &spec, view.as_ref())).await?;
    let cuts = if task.cuts.is_empty() {
        Vec::new()
    } else {
        cuts(&task, platform.rows, pixels.normalized).await?
    };
    let batch = task.batch;
    let step_seconds = step(task).await?;
    Ok(TrainerProfile {
        platform,
        decode_seconds_per_sample: pixels.decode_seconds,
        normalize_seconds_per_sample: pixels.normalize_seconds,
        input: pixels.encoded,
        cuts,
        step_seconds,
        batch,
        measured_in_seconds: started.elapsed().as_secs_f64(),
        measured_at: now(),
    })
}

/// Samples as the network takes them, and what getting there took.
struct Pixels {
    normalized: Tensor,
    decode_seconds: f64,
    normalize_seconds: f64,
    encoded: BTreeMap<String, Encoded>,
}

/// Decodes what can be decoded, on this thread.
fn decode(objects: &[Bytes], spec: &PixelSpec, view: Option<&View>) -> Result<Pixels, TrainerError> {
    let (mut crops, mut seconds) = (Vec::new(), Vec::new());
    let limits = DecodeLimits::default();
    for (number, object) in objects.iter().enumerate() {
        // Any keys will do: what is drawn for them takes as long as for others.
        let key = number.to_string();
        if let Ok((crop, took)) = timed(|| load_augmented(object, spec, &limits, view, &key)) {
            seconds.push(took);
            crops.extend(crop);
        }
    }
    let count = seconds.len();
    if count == 0 {
        return Err(ProfileError::Nothing { what: "sample" }.into());
    }
    // The first pays for cold caches.
    let counted = seconds
        .get(1..)
        .filter(|rest| !rest.is_empty())
        .unwrap_or(&seconds);
    let decode_seconds = counted.iter().sum::<f64>() / counted.len() as f64;
    let shape = Shape::new(spec.sample_shape()).batched(count);
    let bytes = Tensor::new(shape, Data::U8(crops))?;
    let preprocess = |error: frostline_images::ImageError| TrainerError::Preprocess {
        source: OpError::from(error),
    };
    let (normalized, normalizing) = timed(|| normalize(&bytes, spec)).map_err(preprocess)?;
    Ok(Pixels {
        normalize_seconds: normalizing / count as f64,
        decode_seconds,
        encoded: encoded_pixels(&bytes, &normalized)?,
        normalized,
    })
}

/// The frozen layers, through one lane with all the trainer's threads.
async fn cuts(task: &TrainerTask, rows: usize, pixels: Tensor) -> Result<Vec<CutProfile>, TrainerError> {
    let (model, names) = (task.frozen.clone(), task.cuts.clone());
    let (input, memory) = blocking(move || {
        let input = model
            .inputs()
            .next()
            .map(|input| input.name.clone())
            .unwrap_or_default();
        Ok((input, memory(&model, &names)?))
    })
    .await?;
    let subject = MeasuredModel {
        model: task.frozen_sha256.clone(),
        input,
        precision: task.precision,
        cuts: task.cuts.iter().cloned().zip(memory).collect(),
    };
    let config = LanesConfig {
        lanes: 1,
        threads_per_lane: task.options.threads,
        ..LanesConfig::for_device(task.options.device)
    };
    let stages = Arc::new(Stages(task.frozen.clone()));
    let lanes = Lanes::start(config, stages).map_err(|source| TrainerError::Engine {
        doing: "measuring the frozen layers",
        source,
    })?;
    let executor: Arc<dyn GraphExecutor> = Arc::new(lanes);
    let rules = Rules {
        batch: rows,
        ..Rules::default()
    };
    let measured = measure(&subject, &pixels, &executor, &rules).await?;
    Ok(measured.cuts)
}

/// The network, cut to whatever stage is asked for.
struct Stages(Model);

impl StageSource for Stages {
    fn stage_model(&self, stage: &Stage) -> Result<Bytes, OpError> {
        let part = self
            .0
            .slice(Some(&stage.from), Some(&stage.to))
            .and_then(|part| part.to_bytes());
        part.map(Bytes::from)
            .map_err(|error| OpError::invalid(error.to_string()))
    }
}

/// Seconds of a training step, on a state of its own.
async fn step(task: TrainerTask) -> Result<f64, TrainerError> {
    let (at, batch) = (Split::Cut(task.freeze.clone()), task.batch);
    let open = move |interrupt: &Interrupt| {
        let shape = task.model.network()?.frozen_row(&task.freeze)?.batched(batch);
        let zeros = Tensor::f32(shape.clone(), vec![0.0; shape.elements()?])?;
        let outputs = task.model.network()?.head.map_or(1, |head| head.classes);
        let parts = SuffixParts {
            suffix: task.model.slice(Some(&task.freeze), None)?,
            whole: task.model,
            freeze: task.freeze,
            linear: None,
            settings: task.settings,
            outputs,
            numbers: None,
            batch,
            middles: 1,
            options: task.options,
            precision: task.precision,
            state: None,
        };
        Ok((Suffix::open(parts, interrupt)?, zeros))
    };
    let terms = StepTerms::measured();
    let steps = move |(suffix, zeros): &mut (Suffix, Tensor)| {
        let mut step = || {
            let rows = BatchRows::plain(zeros.clone());
            let started = Instant::now();
            suffix.train(&at, rows, Targets::Classes(vec![0; batch]), &terms)?;
            Ok::<f64, TrainerError>(started.elapsed().as_secs_f64())
        };
        step()?;
        let (second, third) = (step()?, step()?);
        Ok(second.min(third))
    };
    Dedicated::open(open).await?.run(steps).await
}
