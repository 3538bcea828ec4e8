//! Decides if a job computes frozen layers in int8.

use super::compare::Comparison;
use super::{Int8Record, LEAST_SIMILARITY, MIN_SPEEDUP};
use crate::host_loads::HostLoads;
use crate::measure::read;
use crate::{
    Event, Events, Job, Measuring, ProfileFolder, RunFolder, SettingError, TrainerError, blocking, whole_file,
};
use bytes::Bytes;
use frostline_client::Hosts;
use frostline_compute::{Dedicated, session_options};
use frostline_engine::{Device, exact_int8, library_version};
use frostline_graph::Model;
use frostline_images::{DecodeLimits, load, normalize};
use frostline_job::folder::INT8;
use frostline_job::{Policy, PrefixPrecision};
use frostline_profile::{ProfileError, machine};
use frostline_quantization::{RULES, WeightBits};
use frostline_tensor::{Data, PixelSpec, Shape, Tensor};
use frostline_wire::{ObjectInfo, Split};
use serde::Serialize;
use std::io::Write;

/// Number of images read. 32 images are used for calibration, because more hardly widen the ranges, and 16
/// for comparison.
pub(crate) const IMAGES: usize = 48;

/// Images read per request. Photos from phones have about 10 MB.
const READ_AT_ONCE: usize = 8;

/// Frozen layers to be considered for int8.
pub(crate) struct Int8Candidate<'a> {
    /// The whole network.
    pub(crate) model: &'a Model,
    /// The cut before which layers are never trained.
    pub(crate) freeze: &'a str,
    pub(crate) precision: PrefixPrecision,
    pub(crate) allow_imprecise: bool,
    pub(crate) pixels: Option<PixelSpec>,
    pub(crate) root: &'a str,
    /// Images for calibration and comparison.
    pub(crate) images: Vec<ObjectInfo>,
    pub(crate) hosts: &'a Hosts,
    pub(crate) threads: usize,
    pub(crate) cache: Option<&'a ProfileFolder>,
    /// Run folder that stores the record. A resumed run uses the same integers.
    pub(crate) run: Option<&'a RunFolder>,
}

/// A network with frozen layers in int8.
pub(crate) struct QuantizedModel {
    pub(crate) model: Model,
    /// Precision of the quantized weights.
    pub(crate) weights: WeightBits,
}

/// Cache key of a record, in addition to the hash of the frozen layers.
#[derive(Serialize)]
struct QuantizationKey {
    rules: u32,
    machine: String,
    library: String,
    threads: usize,
    pixels: PixelSpec,
    weights: WeightBits,
    samples: Vec<(String, Option<String>)>,
}

/// Returns the network with frozen layers in int8, or `None` if `job` computes them in f32.
///
/// # Errors
/// Returns [`TrainerError::Setting`] if int8 is required but unsupported for the job, and the errors of
/// [`Int8Candidate::decide`].
pub(crate) async fn decide_for(
    job: &Job,
    candidate: Int8Candidate<'_>,
    events: &Events,
) -> Result<Option<QuantizedModel>, TrainerError> {
    let why = match candidate.precision {
        PrefixPrecision::F32 => return Ok(None),
        _ if !job.guest.is_stock() => {
            "calibration requires the stock guest, whose preprocessing the trainer knows; use f32 with this guest"
        }
        _ if job.device != Device::Cpu => "int8 is supported on the CPU only; use f32, or the device cpu",
        _ if candidate.model.input_name()? == candidate.freeze => {
            "int8 requires frozen layers; use f32, or freeze layers"
        }
        _ if matches!(&job.spec.split, Policy::Fixed(Split::Cut(cut)) if cut.contains(',') && *cut != job.freeze) => {
            "the frozen layers can be split at a cut through several tensors in f32 only; use f32, or the split 'freeze'"
        }
        _ => return candidate.decide(events).await,
    };
    match candidate.precision {
        PrefixPrecision::Auto => Ok(None),
        _ => Err(SettingError::new("prefix_precision", "int8", why).into()),
    }
}

impl Int8Candidate<'_> {
    /// Returns the network with frozen layers in int8, or `None` if f32 is preferred.
    ///
    /// # Errors
    /// Returns [`TrainerError::Imprecise`] if int8 is required but too imprecise, and other errors if images
    /// cannot be read or the network cannot be quantized.
    pub(crate) async fn decide(&self, events: &Events) -> Result<Option<QuantizedModel>, TrainerError> {
        let mut record = self.record(events).await?;
        record.used = self.is_used(&record)?;
        let reason = self.reason(&record);
        events(record.event(reason));
        self.write(&record).await?;
        if !record.used {
            return Ok(None);
        }
        let model = self.model.clone();
        let freeze = self.freeze.to_owned();
        blocking(move || {
            Ok(Some(QuantizedModel {
                model: record.apply(&model, &freeze)?.model,
                weights: record.scheme.weights,
            }))
        })
        .await
    }

    /// Returns true if int8 is used.
    fn is_used(&self, record: &Int8Record) -> Result<bool, TrainerError> {
        let is_fast = record.speedup >= MIN_SPEEDUP;
        match (self.precision, self.is_precise(record)) {
            (PrefixPrecision::F32, _) | (PrefixPrecision::Auto, false) => Ok(false),
            (PrefixPrecision::Auto, true) => Ok(is_fast),
            (PrefixPrecision::Int8, true) => Ok(true),
            (PrefixPrecision::Int8, false) => Err(TrainerError::Imprecise {
                cosine: record.cosine,
                least: LEAST_SIMILARITY,
                worst: self.worst(record),
            }),
        }
    }

    fn is_precise(&self, record: &Int8Record) -> bool {
        self.allow_imprecise || record.cosine >= LEAST_SIMILARITY
    }

    fn worst(&self, record: &Int8Record) -> String {
        record.worst.clone().unwrap_or_else(|| self.freeze.to_owned())
    }

    /// Explains the decision in the event.
    fn reason(&self, record: &Int8Record) -> String {
        let in_f32 = record.layers - record.quantized_layers;
        if !self.is_precise(record) {
            format!(
                "too imprecise, the error is largest up to '{}'",
                self.worst(record)
            )
        } else if !record.used {
            format!("the speedup is below {MIN_SPEEDUP}")
        } else if in_f32 > 0 {
            format!(
                "{in_f32} layers stay in f32, the error was largest up to '{}'",
                self.worst(record)
            )
        } else {
            "all layers are quantized".to_owned()
        }
    }

    /// Returns the preprocessing of the images for calibration.
    fn recipe(&self) -> Result<PixelSpec, TrainerError> {
        self.pixels.ok_or_else(|| TrainerError::Pixels {
            reason: "calibration requires a network of images; use f32 with this network".to_owned(),
        })
    }

    /// Returns the record of the resumed run if available, then a cached record. Calibrates otherwise.
    async fn record(&self, events: &Events) -> Result<Int8Record, TrainerError> {
        let resumed = self.run.filter(|run| run.resume);
        if let Some(record) = resumed.and_then(|run| Int8Record::read(&run.path.join(INT8))) {
            return Ok(record);
        }
        let is_exact = exact_int8() && HostLoads::ask(self.hosts).await.without_exact_int8().is_none();
        let options = session_options(Device::Cpu, self.threads);
        let key = QuantizationKey {
            rules: RULES,
            machine: machine(None),
            library: library_version().unwrap_or_default(),
            threads: options.threads,
            pixels: self.recipe()?,
            weights: match is_exact {
                true => WeightBits::Eight,
                false => WeightBits::Seven,
            },
            samples: self
                .images
                .iter()
                .map(|object| (object.sample.key.clone(), object.sample.etag.clone()))
                .collect(),
        };
        let model = self.model.clone();
        let freeze = self.freeze.to_owned();
        let weights = key.weights;
        let layers = blocking(move || Ok(model.layers_sha256(&freeze)?)).await?;
        if let Some(known) = self.cache.and_then(|cache| cache.get(&layers, &key)) {
            return Ok(known);
        }
        events(Event::Measuring {
            what: Measuring::Int8,
        });
        let (calibration, held_out) = self.read().await?;
        let comparison = Comparison {
            model: self.model.clone(),
            freeze: self.freeze.to_owned(),
            calibration,
            held_out,
            weights,
            options,
        };
        let compared = Dedicated::open(move |interrupt| comparison.run(interrupt)).await?;
        let record = compared
            .run(|record| Ok::<_, TrainerError>(record.clone()))
            .await?;
        if let Some(cache) = self.cache {
            // If caching fails, the next job calibrates again.
            let _ = cache.put(&layers, &key, &record);
        }
        Ok(record)
    }

    /// Reads images as network input for calibration and comparison. Images that fail to decode are skipped.
    async fn read(&self) -> Result<(Tensor, Tensor), TrainerError> {
        let spec = self.recipe()?;
        let mut crops = Vec::new();
        for images in self.images.chunks(READ_AT_ONCE) {
            let objects = read(self.hosts, self.root, images).await?;
            crops.extend(blocking(move || Ok(decode(&objects, &spec))).await?);
        }
        blocking(move || divide(crops, &spec)).await
    }

    /// Stores the record in the run folder.
    async fn write(&self, record: &Int8Record) -> Result<(), TrainerError> {
        let Some(run) = self.run.cloned() else {
            return Ok(());
        };
        let text = serde_json::to_vec(record).map_err(|_| TrainerError::Ended { part: "calibration" })?;
        blocking(move || {
            let written =
                whole_file::write_to(&run.path.join(INT8), run.create, |file| file.write_all(&text));
            written.map(drop).map_err(|error| TrainerError::Run {
                run: run.path,
                why: error.to_string(),
            })
        })
        .await
    }
}

/// Decodes images to pixels and skips failures.
fn decode(objects: &[Bytes], spec: &PixelSpec) -> Vec<Vec<u8>> {
    let limits = DecodeLimits::default();
    let crops = objects.iter().map(|object| load(object, spec, &limits));
    crops.filter_map(Result::ok).collect()
}

/// Divides images into two thirds for calibration and one third for comparison, and converts both to network
/// input.
fn divide(crops: Vec<Vec<u8>>, spec: &PixelSpec) -> Result<(Tensor, Tensor), TrainerError> {
    let mut calibration = Vec::new();
    let mut held_out = Vec::new();
    for (index, crop) in crops.into_iter().enumerate() {
        let side = if index % 3 == 1 {
            &mut held_out
        } else {
            &mut calibration
        };
        side.push(crop);
    }
    if calibration.is_empty() {
        return Err(ProfileError::Missing { what: "sample" }.into());
    }
    if held_out.is_empty() {
        held_out.clone_from(&calibration);
    }
    Ok((to_input(&calibration, spec)?, to_input(&held_out, spec)?))
}

fn to_input(crops: &[Vec<u8>], spec: &PixelSpec) -> Result<Tensor, TrainerError> {
    let shape = Shape::new(spec.sample_shape()).batched(crops.len());
    let bytes = Tensor::new(shape, Data::U8(crops.concat()))?;
    Ok(normalize(&bytes, spec)?)
}
