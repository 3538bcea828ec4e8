//! Measurements on the trainer itself: the frozen layers, decoding, and a training step.

use crate::{ProfileFolder, TrainerError, blocking};
use bytes::Bytes;
use frostline_compute::{ComputeError, Dedicated, StepTerms, Suffix, SuffixParts, Targets, measured_rows};
use frostline_engine::{Device, Interrupt, Lanes, LanesConfig, SessionOptions, StageSource, library_version};
use frostline_graph::Model;
use frostline_images::{DecodeLimits, load_augmented, normalize};
use frostline_plan::TrainerProfile;
use frostline_primitives::now;
use frostline_profile::{
    MeasureOptions, MeasuredModel, ProfileError, encoded_pixels, machine, measure, measured_cuts, timed,
};
use frostline_quantization::for_precision;
use frostline_tensor::{
    Augmentation, Data, ExecutionTerms, GraphExecutor, OpError, PixelSpec, Precision, Shape, Stage, Tensor,
    Terms, View,
};
use frostline_training::StepSettings;
use frostline_wire::{CutProfile, Encoded, Platform};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Inputs of the measurements on a trainer.
#[derive(Debug, Clone)]
pub(crate) struct TrainerTask {
    /// The network with the trained head.
    pub(crate) model: Model,
    /// The same network with the frozen layers in the form that the job computes.
    pub(crate) frozen: Model,
    /// SHA-256 of the uploaded form of the frozen layers.
    pub(crate) frozen_sha256: String,
    /// The freeze cut.
    pub(crate) freeze: String,
    /// The cuts to measure, in the order of execution.
    pub(crate) cuts: Vec<String>,
    /// Preprocessing recipe.
    pub(crate) pixels: PixelSpec,
    /// Augmentation, which is counted as decoding.
    pub(crate) view: Option<View>,
    /// Samples per training step.
    pub(crate) batch: usize,
    /// Settings of the training step.
    pub(crate) settings: StepSettings,
    /// Device and number of threads.
    pub(crate) options: SessionOptions,
    /// Precision for the frozen layers.
    pub(crate) precision: Precision,
}

/// Cache key of the profile in addition to the hash of the frozen layers.
#[derive(Serialize)]
struct ProfileKey<'a> {
    platform: &'a Platform,
    freeze: &'a str,
    cuts: &'a [String],
    pixels: &'a PixelSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    augmentation: Option<Augmentation>,
    batch: usize,
    settings: String,
    /// Hash of the operators and the weight shapes in the trained layers.
    suffix: String,
    #[serde(skip_serializing_if = "Precision::is_full")]
    precision: Precision,
}

/// Returns the trainer's profile for `task`. If the profile is not in `cache`, it is measured on the objects
/// from `samples`; `samples` is only awaited in this case. A failure to store the profile is ignored.
///
/// # Errors
/// Returns [`TrainerError::Profile`] if the frozen layers cannot be measured, [`ComputeError::Training`] if
/// the other layers cannot be trained, and any error from `samples`.
pub(crate) async fn trainer_profile(
    task: TrainerTask,
    cache: Option<&ProfileFolder>,
    samples: impl Future<Output = Result<Vec<Bytes>, TrainerError>>,
) -> Result<TrainerProfile, TrainerError> {
    let for_key = task.clone();
    let stored = cache.cloned();
    let (platform, key, stored) = blocking(move || {
        let platform = platform(&for_key)?;
        let key = key(&for_key, &platform)?;
        let stored = stored.and_then(|cache| cache.get(&for_key.frozen_sha256, &key));
        Ok((platform, key, stored))
    })
    .await?;
    if let Some(stored) = stored {
        return Ok(stored);
    }
    let model = task.frozen_sha256.clone();
    let profile = measured(task, platform, samples.await?).await?;
    if let Some(cache) = cache {
        let cache = cache.clone();
        let profile = profile.clone();
        // If the profile cannot be stored, the next job measures again.
        blocking(move || Ok(cache.put(&model, &key, &profile).ok())).await?;
    }
    Ok(profile)
}

fn platform(task: &TrainerTask) -> Result<Platform, TrainerError> {
    let options = &task.options;
    let gpu = match options.device {
        Device::Cpu => None,
        Device::Cuda(index) => Some(index),
    };
    let library = library_version().map_err(ComputeError::engine("measuring"))?;
    Ok(Platform {
        machine: machine(gpu),
        device: options.device.to_string(),
        library: format!("onnxruntime {library}"),
        lanes: 1,
        threads_per_lane: options.threads.max(1),
        decode_threads: options.threads.max(1),
        rows: measured_rows(&task.frozen, task.batch, options)?,
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
    let key = ProfileKey {
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
    let spec = task.pixels;
    let view = task.view;
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

/// Preprocessed samples and the measured times.
struct DecodedPixels {
    normalized: Tensor,
    decode_seconds: f64,
    normalize_seconds: f64,
    encoded: BTreeMap<String, Encoded>,
}

/// Decodes the objects on the current thread. Objects that fail to decode are skipped.
fn decode(objects: &[Bytes], spec: &PixelSpec, view: Option<&View>) -> Result<DecodedPixels, TrainerError> {
    let mut crops = Vec::new();
    let mut seconds = Vec::new();
    let limits = DecodeLimits::default();
    for (number, object) in objects.iter().enumerate() {
        // The keys only seed the augmentation, so the values do not matter.
        let key = number.to_string();
        if let Ok((crop, took)) = timed(|| load_augmented(object, spec, &limits, view, &key)) {
            seconds.push(took);
            crops.extend(crop);
        }
    }
    let count = seconds.len();
    if count == 0 {
        return Err(ProfileError::Missing { what: "sample" }.into());
    }
    // The first sample is slow because the caches are cold.
    let counted = seconds
        .get(1..)
        .filter(|rest| !rest.is_empty())
        .unwrap_or(&seconds);
    let decode_seconds = counted.iter().sum::<f64>() / counted.len() as f64;
    let shape = Shape::new(spec.sample_shape()).batched(count);
    let bytes = Tensor::new(shape, Data::U8(crops))?;
    let (normalized, normalizing) = timed(|| normalize(&bytes, spec))?;
    Ok(DecodedPixels {
        normalize_seconds: normalizing / count as f64,
        decode_seconds,
        encoded: encoded_pixels(&bytes, &normalized)?,
        normalized,
    })
}

/// Measures the frozen layers on a single lane with all threads of the trainer.
async fn cuts(task: &TrainerTask, rows: usize, pixels: Tensor) -> Result<Vec<CutProfile>, TrainerError> {
    let model = task.frozen.clone();
    let names = task.cuts.clone();
    let (input, cuts) =
        blocking(move || Ok((model.input_name()?.to_owned(), measured_cuts(&model, &names)?))).await?;
    let subject = MeasuredModel {
        model: task.frozen_sha256.clone(),
        input,
        pixels: None,
        precision: task.precision,
        cuts,
    };
    let config = LanesConfig {
        lanes: 1,
        threads_per_lane: task.options.threads,
        ..LanesConfig::for_device(task.options.device)
    };
    let stages = Arc::new(NetworkStages(task.frozen.clone()));
    let lanes = Lanes::start(config, stages);
    let lanes = lanes.map_err(ComputeError::engine("measuring the frozen layers"))?;
    // Without a fixed size, the lanes would pad batches to the size of a host.
    let padded = task.options.device.padded_rows().is_some();
    let terms = ExecutionTerms {
        terms: Terms {
            fixed_batch: padded.then_some(rows),
            precision: task.precision,
            ..Terms::default()
        },
        ..ExecutionTerms::default()
    };
    let executor: Arc<dyn GraphExecutor> = Arc::new(lanes.for_tenant("profile").on_terms(1, terms));
    let rules = MeasureOptions {
        batch: rows,
        padded,
        ..MeasureOptions::default()
    };
    let measured = measure(&subject, &pixels, &executor, &rules).await?;
    Ok(measured.cuts)
}

/// Provides arbitrary stages of the network.
struct NetworkStages(Model);

impl StageSource for NetworkStages {
    fn stage_model(&self, stage: &Stage) -> Result<Bytes, OpError> {
        let part = self
            .0
            .slice(Some(&stage.from), Some(&stage.to))
            .and_then(|part| for_precision(part, stage.precision))
            .and_then(|part| part.to_bytes());
        part.map(Bytes::from)
            .map_err(|error| OpError::invalid(error.to_string()))
    }
}

/// Measures the seconds for a training step with a separate training state.
async fn step(task: TrainerTask) -> Result<f64, TrainerError> {
    let batch = task.batch;
    let training = Dedicated::open(move |interrupt: &Interrupt| {
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
        Ok::<_, ComputeError>((Suffix::open(parts, interrupt)?, zeros))
    });
    let training = training.await?;
    let terms = StepTerms::measured();
    training
        .run(move |(suffix, zeros)| {
            let mut least = f64::INFINITY;
            for counts in [false, true, true] {
                let started = Instant::now();
                suffix.train(zeros, Targets::Classes(vec![0; batch]), &terms)?;
                if counts {
                    least = least.min(started.elapsed().as_secs_f64());
                }
            }
            Ok(least)
        })
        .await
}
