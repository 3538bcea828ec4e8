//! Validation and measurement of profile requests.

use super::reading::ReadingCost;
use super::samples::{SampleReader, Samples};
use crate::caller::Caller;
use crate::config::Limits;
use crate::extraction::{READS_AT_ONCE, check_samples, check_view};
use crate::refusal::Refusal;
use frostline_batching::{Kind, Reserved};
use frostline_engine::Device;
use frostline_graph::Model;
use frostline_objects::Store;
use frostline_primitives::now;
use frostline_profile::{
    MeasureOptions, MeasuredCut, MeasuredModel, efficient_rows, encoded_pixels, measure, measured_cuts,
};
use frostline_sandbox::ModelView;
use frostline_state::FindResult;
use frostline_tensor::{DType, GraphExecutor, Normalization, PixelSpec, Precision, Stage};
use frostline_wire::{
    Activation, Augmentation, CutProfile, Description, Pixels, Platform, Profile, ProfileRequest, Split,
    UploadRef,
};
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;

/// Maximum number of samples in a profile. This is the size of one or two grants; more samples do not improve
/// the figures for sizes and decoding.
const MAX_SAMPLES: usize = 32;

/// Maximum number of cuts in a profile. The deepest of the usual networks has fewer blocks. Measuring a cut
/// costs two partial executions of the network.
const MAX_CUTS: usize = 64;

/// Returns the subject of stored profiles. It contains the tenant, because the figures depend on images of
/// the tenant and must not be visible to others.
pub(super) fn subject(caller: &Caller, sha256: &str) -> String {
    format!("{}/{sha256}", caller.tenant().name)
}

/// A validated profile request.
pub(super) struct ProfileTask {
    request: ProfileRequest,
    view: Arc<ModelView>,
    store: Arc<Store>,
    spec: PixelSpec,
    /// Precision that this host uses for the request.
    precision: Precision,
}

/// Inputs of a stored profile, apart from the model.
#[derive(Serialize)]
struct Key<'a> {
    platform: &'a Platform,
    root: &'a str,
    guest: &'a UploadRef,
    parameters: &'a str,
    cuts: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    augmentation: Option<Augmentation>,
    pixels: Normalization,
    #[serde(skip_serializing_if = "Precision::is_full")]
    precision: Precision,
}

/// Properties of the model, computed from the graph.
struct ModelAnalysis {
    /// Rows per measured engine batch.
    rows: usize,
    /// Cuts with the memory required to reach them.
    cuts: Vec<MeasuredCut>,
}

/// Model and memory for a measurement.
pub(super) struct Prepared {
    analysis: ModelAnalysis,
    _memory: Reserved,
}

impl ProfileTask {
    /// Validates a request against the models, guests, data and quotas of the tenant.
    pub(super) async fn check(caller: &Caller, request: ProfileRequest) -> Result<Self, Refusal> {
        let limits = Limits {
            samples: MAX_SAMPLES,
            ..caller.config().limits
        };
        check_samples(&request.samples, &limits)?;
        check_view(request.view.as_ref(), &Split::Input)?;
        let store = caller.store(&request.root, Kind::Read)?;
        let view = caller.model(&request.model)?;
        caller.find_guest(&request.guest)?;
        let allowance = caller.allowance();
        let guest = caller.guest(&request.guest, &allowance).await?;
        let permit = caller.description_permit().await?;
        let description = caller
            .describe(&guest, &view, &request.parameters, &allowance)
            .await?;
        drop(permit);
        check_cuts(&request.cuts, &view, &description)?;
        let Pixels::Spec(spec) = description.pixels else {
            return Err(Refusal::request(format!(
                "guest {} computes its own input, but a profile requires a guest with a pixel recipe (spec); without a profile, \
                 set the split yourself",
                description.name
            )));
        };
        if spec.sample_shape().as_slice() != view.input_shape.as_slice() {
            return Err(Refusal::request(format!(
                "the guest's recipe yields {:?} per sample, but the model's input is {:?}",
                spec.sample_shape(),
                view.input_shape
            )));
        }
        Ok(Self {
            precision: caller.config().device.precision(request.precision),
            request,
            view,
            store,
            spec,
        })
    }

    pub(super) fn model_name(&self) -> &str {
        &self.request.model.name
    }

    /// Returns the stored profile for the same inputs, if still valid.
    pub(super) async fn stored(&self, caller: &Caller) -> Result<Option<Profile>, Refusal> {
        let machine = caller.machine();
        let folder = machine.profiles.clone();
        let subject = subject(caller, &self.view.sha256);
        let key = self.key(&machine.platform())?;
        let permit = caller.description_permit().await?;
        caller
            .run_blocking(permit, move |_| Ok::<_, Refusal>(folder.get(&subject, &key)))
            .await
    }

    /// Stores a profile. If this fails, a warning is logged and the next request measures again.
    pub(super) async fn store(&self, caller: &Caller, profile: &Profile) -> Result<(), Refusal> {
        let folder = caller.machine().profiles.clone();
        let subject = subject(caller, &self.view.sha256);
        let key = self.key(&caller.machine().platform())?;
        let profile = profile.clone();
        let permit = caller.description_permit().await?;
        let kept = caller
            .run_blocking(permit, move |_| {
                Ok::<_, Refusal>(folder.put(&subject, &key, &profile))
            })
            .await?;
        kept.inspect_err(|error| tracing::warn!(%error, "cannot store the profile"))
            .ok();
        Ok(())
    }

    fn key(&self, platform: &Platform) -> Result<serde_json::Value, Refusal> {
        let key = Key {
            platform,
            root: &self.request.root,
            guest: &self.request.guest,
            parameters: &self.request.parameters,
            cuts: &self.request.cuts,
            augmentation: self.request.view.map(|view| view.augmentation),
            pixels: Normalization::from_spec(&self.spec),
            precision: self.precision,
        };
        serde_json::to_value(key).map_err(Refusal::host)
    }

    /// Measures on the host's lanes.
    pub(super) async fn measure(&self, caller: &Caller, prepared: Prepared) -> Result<Profile, Refusal> {
        let started = Instant::now();
        let ModelAnalysis { rows, cuts } = prepared.analysis;
        let decoders = caller.decoders();
        let subject = MeasuredModel {
            model: self.view.sha256.clone(),
            input: self.view.input.clone(),
            pixels: Some(Normalization::from_spec(&self.spec)),
            precision: self.precision,
            cuts,
        };
        let reader = SampleReader {
            store: &self.store,
            decoders: &decoders,
            spec: self.spec,
            view: self.request.view,
            limits: &caller.config().limits,
            room: Arc::new(caller.memory(Kind::Decode)),
        };
        let samples = reader.read(&self.request.samples).await?;
        let bytes = samples.bytes.clone();
        let pixels = samples.pixels.clone();
        let input = decoders
            .run(move || encoded_pixels(&bytes, &pixels))
            .await
            .map_err(Refusal::host)??;
        let rules = MeasureOptions {
            batch: rows,
            padded: caller.config().device.padded_rows().is_some(),
            lanes: caller.config().lanes,
            charge: caller.blocking_charge(),
            ..MeasureOptions::default()
        };
        let executor: Arc<dyn GraphExecutor> = Arc::clone(&caller.tenant().executor) as _;
        let measured = measure(&subject, &samples.bytes, &executor, &rules).await?;
        let reading = self.reading_cost(caller, &executor, &samples, &measured.cuts);
        Ok(Profile {
            platform: Platform {
                rows,
                ..caller.machine().platform()
            },
            read_seconds_per_sample: samples.read_seconds,
            reads_at_once: READS_AT_ONCE,
            read_busy_seconds_per_sample: reading.await?,
            decode_seconds_per_sample: samples.decode_seconds,
            input,
            cuts: measured.cuts,
            measured_in_seconds: started.elapsed().as_secs_f64(),
            measured_at: now(),
            disturbed: false,
        })
    }

    /// Analyzes the model and waits for memory. Both can wait for other requests of the tenant, so they are done
    /// before the right to measure is requested.
    pub(super) async fn prepare(&self, caller: &Caller) -> Result<Prepared, Refusal> {
        Ok(Prepared {
            analysis: self.analyze_model(caller).await?,
            _memory: self.reserve(caller).await?,
        })
    }

    /// Reserves memory for the samples as bytes and floats, and for batches of both during the measurement.
    async fn reserve(&self, caller: &Caller) -> Result<Reserved, Refusal> {
        let sample: usize = self.spec.sample_shape().iter().product();
        let copies = 2 * (1 + size_of::<f32>());
        let bytes = sample
            .saturating_mul(copies)
            .saturating_mul(self.request.samples.len());
        let room = caller.memory(Kind::Grant);
        room.reserve(bytes as u64, caller.config().limits.stall).await
    }

    /// Returns the slowdown of computing per read sample, in wall-clock seconds with all lanes busy.
    async fn reading_cost(
        &self,
        caller: &Caller,
        executor: &Arc<dyn GraphExecutor>,
        samples: &Samples,
        cuts: &[CutProfile],
    ) -> Result<f64, Refusal> {
        let config = caller.config();
        let beside = ReadingCost {
            executor,
            stage: Stage {
                model: self.view.sha256.clone(),
                from: self.view.input.clone(),
                to: self.request.cuts.last().cloned().unwrap_or_default(),
                pixels: Some(Normalization::from_spec(&self.spec)),
                precision: self.precision,
            },
            rows: &samples.bytes,
            padded_rows: config.device.padded_rows(),
            lanes: config.lanes,
            seconds_per_sample: cuts.last().map_or(1.0, |cut| cut.busy_seconds_per_sample),
            read_seconds: samples.read_seconds,
        };
        let samples = &self.request.samples;
        beside
            .measure(&self.store, samples, config.limits.object_bytes)
            .await
    }

    /// Analyzes the model without executing it.
    async fn analyze_model(&self, caller: &Caller) -> Result<ModelAnalysis, Refusal> {
        let UploadRef { name, sha256 } = &self.request.model;
        let takes = match caller.find_model(name, Some(sha256)).0 {
            FindResult::Version(model) => model.bytes.saturating_mul(2),
            FindResult::Missing | FindResult::OtherVersion(_) => 0,
        };
        let stall = caller.config().limits.stall;
        let held = caller.memory(Kind::Grant).reserve(takes, stall).await?;
        let bytes = caller.library().models.bytes_of(&self.view.sha256).await?;
        let cuts = self.request.cuts.clone();
        let most = caller.machine().profile_rows;
        let device = caller.config().device;
        caller
            .run_blocking(held, move |stop| {
                let model = Model::from_bytes(bytes)?;
                stop.check()?;
                let network = model.network()?;
                stop.check()?;
                for name in &cuts {
                    let dtype = network.cut(name)?.dtype;
                    if dtype != DType::F32 {
                        return Err(Refusal::request(format!(
                            "activations at '{name}' are {dtype}, but only f32 is supported; omit this cut"
                        )));
                    }
                }
                let cuts = measured_cuts(&model, &cuts)?;
                stop.check()?;
                Ok(ModelAnalysis {
                    rows: match device {
                        Device::Cpu => efficient_rows(&model, most)?,
                        Device::Cuda(_) => most,
                    },
                    cuts,
                })
            })
            .await
    }
}

/// Checks that the cuts exist in the model, are in execution order, and are served unchanged by the guest.
fn check_cuts(cuts: &[String], model: &ModelView, description: &Description) -> Result<(), Refusal> {
    if cuts.is_empty() || cuts.len() > MAX_CUTS {
        return Err(Refusal::request(format!(
            "the request has {} cuts, but 1 to {MAX_CUTS} are allowed",
            cuts.len()
        )));
    }
    let mut before = None;
    for name in cuts {
        let position = model.cuts.iter().position(|cut| cut.name == *name);
        if position.is_none() {
            return Err(Refusal::request(format!("unknown cut '{name}' of the model")));
        }
        if position <= before {
            return Err(Refusal::request(format!(
                "the cut '{name}' is out of execution order or a duplicate"
            )));
        }
        before = position;
        let served = description.cuts.iter().find(|served| served.name == *name);
        if served.is_none_or(|served| served.activation != Activation::Faithful) {
            return Err(Refusal::request(format!(
                "guest {} does not serve unchanged activations at the cut '{name}'; omit this cut",
                description.name
            )));
        }
    }
    Ok(())
}
