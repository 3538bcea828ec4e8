//! Whether a job computes its frozen layers in int8.

use super::calibrate::Trial;
use super::{EXACT_ENOUGH, Int8Record, WORTHWHILE};
use crate::compute::{Dedicated, blocking, session_options};
use crate::host_loads::HostLoads;
use crate::{Event, Events, Job, Measuring, ProfileCache, RunFolder, SettingError, TrainerError, whole_file};
use bytes::Bytes;
use frostline_client::{HostClient, Hosts};
use frostline_engine::{Device, adds_bytes_exactly, library_version};
use frostline_graph::Model;
use frostline_images::{DecodeLimits, load, normalise};
use frostline_job::PrefixPrecision;
use frostline_job::folder::INT8;
use frostline_profile::{ProfileError, machine};
use frostline_quantisation::{RULES, WeightBits};
use frostline_tensor::{Data, OpError, PixelSpec, Shape, Tensor};
use frostline_wire::ObjectInfo;
use serde::Serialize;
use std::io::Write;

/// Images that are looked at: two thirds calibrate, which is where ranges settle (the prototype had 32), and the error of one third
/// spreads by less than 0.001.
pub(crate) const IMAGES: usize = 48;

/// Images that are read at once: photos of phones take 10 MB.
const READ_AT_ONCE: usize = 8;

/// Frozen layers that may compute in int8.
pub(crate) struct Candidate<'a> {
    /// The whole network.
    pub(crate) model: &'a Model,
    /// Layers up to here are never trained.
    pub(crate) freeze: &'a str,
    pub(crate) precision: PrefixPrecision,
    pub(crate) allow_imprecise: bool,
    pub(crate) pixels: PixelSpec,
    /// Where the images are,
    pub(crate) root: &'a str,
    /// those to look at,
    pub(crate) images: Vec<ObjectInfo>,
    /// and who reads them.
    pub(crate) hosts: &'a Hosts,
    pub(crate) threads: usize,
    pub(crate) cache: Option<&'a ProfileCache>,
    /// The run's folder, which keeps the record: a run that is resumed computes with the very same integers.
    pub(crate) run: Option<&'a RunFolder>,
}

/// A network whose frozen layers compute in int8.
pub(crate) struct RoundedModel {
    pub(crate) model: Model,
    /// How finely its weights are rounded.
    pub(crate) weights: WeightBits,
}

/// What a stored record depends on beside the frozen layers.
#[derive(Serialize)]
struct Key {
    int8: u32,
    machine: String,
    library: String,
    threads: usize,
    pixels: PixelSpec,
    weights: WeightBits,
    samples: Vec<(String, Option<String>)>,
}

/// The network with its frozen layers in int8, where `job` is to compute so.
///
/// # Errors
/// [`TrainerError::Imprecise`], and [`TrainerError::Setting`] for a job that cannot.
pub(crate) async fn decide_for(
    job: &Job,
    candidate: Candidate<'_>,
    events: &Events,
) -> Result<Option<RoundedModel>, TrainerError> {
    let why = match candidate.precision {
        PrefixPrecision::F32 => return Ok(None),
        _ if !job.guest.is_stock() => {
            "only the stock guest is known to prepare images as calibration does; use f32 with this guest"
        }
        _ if job.device != Device::Cpu => {
            "a GPU computes int8 layers slower than f32; use f32, or --device cpu"
        }
        _ if candidate.model.input_name()? == candidate.freeze => {
            "no layer stays frozen; use f32, or freeze some"
        }
        _ => return candidate.decide(events).await,
    };
    match candidate.precision {
        PrefixPrecision::Auto => Ok(None),
        _ => Err(SettingError {
            what: "--prefix-precision",
            value: "int8".to_owned(),
            must: why.to_owned(),
        }
        .into()),
    }
}

impl Candidate<'_> {
    /// The network with its frozen layers in int8, where they are to compute so.
    ///
    /// # Errors
    /// [`TrainerError::Imprecise`].
    pub(crate) async fn decide(&self, events: &Events) -> Result<Option<RoundedModel>, TrainerError> {
        let mut record = self.record(events).await?;
        let reason = self.judge(&mut record)?;
        events(record.event(reason));
        self.write(&record).await?;
        if !record.used {
            return Ok(None);
        }
        let (model, freeze) = (self.model.clone(), self.freeze.to_owned());
        blocking(move || {
            Ok(Some(RoundedModel {
                model: record.apply(&model, &freeze)?.model,
                weights: record.recipe.weights,
            }))
        })
        .await
    }

    /// Why the job computes in int8, or does not.
    fn judge(&self, record: &mut Int8Record) -> Result<String, TrainerError> {
        let exact = record.cosine >= EXACT_ENOUGH || self.allow_imprecise;
        let fast = record.speedup >= WORTHWHILE;
        record.used = exact && (fast || self.precision == PrefixPrecision::Int8);
        let worst = || record.worst.clone().unwrap_or_else(|| self.freeze.to_owned());
        match (exact, record.used) {
            (false, _) if self.precision == PrefixPrecision::Int8 => Err(TrainerError::Imprecise {
                cosine: record.cosine,
                least: EXACT_ENOUGH,
                worst: worst(),
            }),
            (false, _) => Ok(format!("rows agree too little, most is lost up to '{}'", worst())),
            (true, false) => Ok("it is not a tenth faster here".to_owned()),
            (true, true) => Ok(match record.recipe.in_f32.len() {
                0 => "all layers with weights".to_owned(),
                kept => format!(
                    "{kept} layers stay in f32, most precision was lost up to '{}'",
                    worst()
                ),
            }),
        }
    }

    /// What is known of the frozen layers in int8: from the run that is resumed, from the cache, or found out now.
    async fn record(&self, events: &Events) -> Result<Int8Record, TrainerError> {
        let resumed = self.run.filter(|run| run.resume);
        if let Some(record) = resumed.and_then(|run| Int8Record::read(&run.path.join(INT8))) {
            return Ok(record);
        }
        let exactly =
            adds_bytes_exactly() && HostLoads::ask(self.hosts).await.without_exact_bytes().is_none();
        let options = session_options(Device::Cpu, self.threads);
        let key = Key {
            int8: RULES,
            machine: machine(None),
            library: library_version().unwrap_or_default(),
            threads: options.threads,
            pixels: self.pixels,
            weights: match exactly {
                true => WeightBits::Eight,
                false => WeightBits::Seven,
            },
            samples: self
                .images
                .iter()
                .map(|object| (object.sample.key.clone(), object.sample.etag.clone()))
                .collect(),
        };
        let (model, freeze, weights) = (self.model.clone(), self.freeze.to_owned(), key.weights);
        let layers = blocking(move || Ok(model.layers_sha256(&freeze)?)).await?;
        if let Some(known) = self.cache.and_then(|cache| cache.get(&layers, &key)) {
            return Ok(known);
        }
        events(Event::Measuring {
            what: Measuring::Int8,
        });
        let (seen, unseen) = self.read().await?;
        let trial = Trial {
            model: self.model.clone(),
            freeze: self.freeze.to_owned(),
            seen,
            unseen,
            weights,
            options,
        };
        let tried = Dedicated::open(move |interrupt| trial.run(interrupt)).await?;
        let record = tried.run(|record| Ok(record.clone())).await?;
        if let Some(cache) = self.cache {
            // Without it, the next job calibrates again.
            let _ = cache.put(&layers, &key, &record);
        }
        Ok(record)
    }

    /// Network input of the images, as far as they can be decoded: of two thirds to calibrate with, and of the others to measure the error.
    async fn read(&self) -> Result<(Tensor, Tensor), TrainerError> {
        let (root, spec) = (self.root, self.pixels);
        let mut crops = Vec::new();
        for images in self.images.chunks(READ_AT_ONCE) {
            let read = |client: HostClient| async move { client.read(root, images).await };
            let objects = self.hosts.first(read).await?;
            crops.extend(blocking(move || Ok(decode(&objects, &spec))).await?);
        }
        blocking(move || divide(crops, &spec)).await
    }

    /// Keeps the record in the run's folder.
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

/// Pixels of what can be decoded.
fn decode(objects: &[Bytes], spec: &PixelSpec) -> Vec<Vec<u8>> {
    let limits = DecodeLimits::default();
    let crops = objects.iter().map(|object| load(object, spec, &limits));
    crops.filter_map(Result::ok).collect()
}

/// Two thirds of the images, and the others.
fn divide(crops: Vec<Vec<u8>>, spec: &PixelSpec) -> Result<(Tensor, Tensor), TrainerError> {
    let (mut seen, mut unseen) = (Vec::new(), Vec::new());
    for (index, crop) in crops.into_iter().enumerate() {
        let side = if index % 3 == 1 { &mut unseen } else { &mut seen };
        side.push(crop);
    }
    if seen.is_empty() {
        return Err(ProfileError::Nothing { what: "sample" }.into());
    }
    if unseen.is_empty() {
        unseen.clone_from(&seen);
    }
    let tensor = |crops: Vec<Vec<u8>>| {
        let shape = Shape::new(spec.sample_shape()).batched(crops.len());
        let bytes = Tensor::new(shape, Data::U8(crops.concat()))?;
        normalise(&bytes, spec).map_err(|error| TrainerError::Preprocess {
            source: OpError::from(error),
        })
    };
    Ok((tensor(seen)?, tensor(unseen)?))
}
