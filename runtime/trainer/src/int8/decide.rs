//! Whether a job computes its frozen layers in int8.

use super::calibrate::Trial;
use super::{EXACT_ENOUGH, Int8Record, WORTHWHILE};
use crate::compute::{Dedicated, blocking, session_options};
use crate::host_loads::HostLoads;
use crate::{Event, Events, Job, Measuring, SettingError, TrainerError, whole_file};
use bytes::Bytes;
use frostline_client::{HostClient, Hosts, Samples};
use frostline_engine::{Device, adds_bytes_exactly, library_version};
use frostline_graph::Model;
use frostline_images::{DecodeLimits, load, normalise};
use frostline_job::PrefixPrecision;
use frostline_job::folder::INT8;
use frostline_profile::{ProfileError, machine};
use frostline_quantisation::WeightBits;
use frostline_tensor::{Data, OpError, PixelSpec, Shape, Tensor};
use serde::Serialize;
use std::io::Write;

/// Images that are looked at: two thirds calibrate, which is where ranges settle (the prototype had 32), and the error of one third
/// spreads by less than 0.001.
const IMAGES: usize = 48;

/// A job whose frozen layers may compute in int8.
pub(crate) struct Candidate<'a> {
    pub(crate) job: &'a Job,
    /// The network under the head that is trained.
    pub(crate) model: &'a Model,
    pub(crate) pixels: PixelSpec,
    /// Images to calibrate with.
    pub(crate) train: &'a Samples,
    /// Where they come from.
    pub(crate) hosts: &'a Hosts,
}

/// What a stored record depends on beside the frozen layers.
#[derive(Serialize)]
struct Key {
    int8: &'static str,
    machine: String,
    library: String,
    threads: usize,
    pixels: PixelSpec,
    weights: WeightBits,
    samples: Vec<(String, Option<String>)>,
}

/// The network with its frozen layers in int8, where `candidate` is to compute so.
///
/// # Errors
/// [`TrainerError::Imprecise`], and [`TrainerError::Setting`] for a job that cannot.
pub(crate) async fn decide(
    candidate: &Candidate<'_>,
    events: &Events,
) -> Result<Option<Model>, TrainerError> {
    let wanted = candidate.job.spec.prefix_precision;
    if wanted == PrefixPrecision::F32 {
        return Ok(None);
    }
    if let Some(why) = candidate.reason_against() {
        return match wanted {
            PrefixPrecision::Auto => Ok(None),
            _ => Err(SettingError {
                what: "--prefix-precision",
                value: "int8".to_owned(),
                must: why.to_owned(),
            }
            .into()),
        };
    }
    let mut record = candidate.record(events).await?;
    let reason = candidate.judge(&mut record)?;
    events(record.event(reason));
    candidate.write(&record).await?;
    if !record.used {
        return Ok(None);
    }
    let (model, freeze) = (candidate.model.clone(), candidate.freeze().to_owned());
    blocking(move || Ok(Some(record.apply(&model, &freeze)?.model))).await
}

impl Candidate<'_> {
    /// Layers up to here are never trained.
    fn freeze(&self) -> &str {
        self.job.earliest_freeze()
    }

    /// Why it cannot be.
    fn reason_against(&self) -> Option<&'static str> {
        if !self.job.guest.is_stock() {
            Some(
                "only the stock guest is known to prepare images as calibration does; use f32 with this guest",
            )
        } else if self.job.device != Device::Cpu {
            Some("a GPU computes int8 layers slower than f32; use f32, or --device cpu")
        } else if self.model.input_name().is_ok_and(|input| input == self.freeze()) {
            Some("no layer stays frozen; use f32, or freeze some")
        } else {
            None
        }
    }

    /// Why the job computes in int8, or does not.
    fn judge(&self, record: &mut Int8Record) -> Result<String, TrainerError> {
        let spec = &self.job.spec;
        let exact = record.cosine >= EXACT_ENOUGH || spec.allow_imprecise;
        let fast = record.speedup >= WORTHWHILE;
        record.used = exact && (fast || spec.prefix_precision == PrefixPrecision::Int8);
        let worst = || record.worst.clone().unwrap_or_else(|| self.freeze().to_owned());
        match (exact, record.used) {
            (false, _) if spec.prefix_precision == PrefixPrecision::Int8 => Err(TrainerError::Imprecise {
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
        let resumed = self.job.run.as_ref().filter(|run| run.resume);
        if let Some(record) = resumed.and_then(|run| Int8Record::read(&run.path.join(INT8))) {
            return Ok(record);
        }
        let samples = self.train.spread(IMAGES);
        let exactly = adds_bytes_exactly() && HostLoads::ask(self.hosts).await.add_bytes_exactly();
        let options = session_options(self.job.device, self.job.spec.threads);
        let key = Key {
            int8: env!("CARGO_PKG_VERSION"),
            machine: machine(None),
            library: library_version().unwrap_or_default(),
            threads: options.threads,
            pixels: self.pixels,
            weights: match exactly {
                true => WeightBits::Eight,
                false => WeightBits::Seven,
            },
            samples: samples
                .iter()
                .map(|object| (object.sample.key.clone(), object.sample.etag.clone()))
                .collect(),
        };
        let (model, freeze, weights) = (self.model.clone(), self.freeze().to_owned(), key.weights);
        let layers = blocking(move || Ok(model.layers_sha256(&freeze)?)).await?;
        if let Some(known) = self.job.cache.as_ref().and_then(|cache| cache.get(&layers, &key)) {
            return Ok(known);
        }
        events(Event::Measuring {
            what: Measuring::Int8,
        });
        let root = &self.job.spec.data;
        let wanted = &samples;
        let read = |client: HostClient| async move { client.read(root, wanted).await };
        let objects = self.hosts.first(read).await?;
        let pixels = self.pixels;
        let (seen, unseen) = blocking(move || decode(&objects, &pixels)).await?;
        let trial = Trial {
            model: self.model.clone(),
            freeze: self.freeze().to_owned(),
            seen,
            unseen,
            weights,
            options,
        };
        let tried = Dedicated::open(move |interrupt| trial.run(interrupt)).await?;
        let record = tried.run(|record| Ok(record.clone())).await?;
        if let Some(cache) = &self.job.cache {
            // Without it, the next job calibrates again.
            let _ = cache.put(&layers, &key, &record);
        }
        Ok(record)
    }

    /// Keeps the record in the run's folder: a run that is resumed computes with the very same integers.
    async fn write(&self, record: &Int8Record) -> Result<(), TrainerError> {
        let Some(run) = self.job.run.clone() else {
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

/// Network input of what can be decoded: of two thirds to calibrate with, and of the others to measure the error.
fn decode(objects: &[Bytes], spec: &PixelSpec) -> Result<(Tensor, Tensor), TrainerError> {
    let limits = DecodeLimits::default();
    let crops = objects
        .iter()
        .filter_map(|object| load(object, spec, &limits).ok());
    let (mut seen, mut unseen) = (Vec::new(), Vec::new());
    for (index, crop) in crops.enumerate() {
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
