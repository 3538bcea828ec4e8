//! From a request as sent to a profile.

use super::reading::Beside;
use super::samples::{Reader, Samples, samples};
use crate::caller::Caller;
use crate::config::Limits;
use crate::extraction::{READS_AT_ONCE, check_samples, check_view};
use crate::refusal::Refusal;
use crate::state::FindResult;
use frostline_batching::{Kind, Reserved};
use frostline_engine::Device;
use frostline_graph::Model;
use frostline_objects::Store;
use frostline_profile::{MeasuredModel, Rules, efficient_rows, encoded_pixels, measure, memory, now};
use frostline_sandbox::ModelView;
use frostline_tensor::{DType, GraphExecutor, PixelSpec, Precision, Stage};
use frostline_wire::{
    Activation, Augmentation, CutProfile, Description, Linear, Pin, Pixels, Platform, Profile,
    ProfileRequest, Split,
};
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::spawn_blocking;

/// Samples of one profile: a grant or two; more say nothing new about sizes and decoding.
const SAMPLES: usize = 32;

/// Cuts of one profile: more than the deepest usual network has blocks; each takes two runs of a part of the network.
const CUTS: usize = 64;

/// Whose profile of which model: the images of one tenant show in its figures, and are of no other's concern.
pub(super) fn subject(caller: &Caller, sha256: &str) -> String {
    format!("{}/{sha256}", caller.tenant().name)
}

/// A profile that can be measured.
pub(super) struct Task {
    request: ProfileRequest,
    view: Arc<ModelView>,
    store: Arc<Store>,
    spec: PixelSpec,
    /// How exactly this host computes it.
    precision: Precision,
}

/// What a stored profile depends on beside the model.
#[derive(Serialize)]
struct Key<'a> {
    platform: &'a Platform,
    root: &'a str,
    guest: &'a Pin,
    parameters: &'a str,
    cuts: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    augmentation: Option<Augmentation>,
    #[serde(skip_serializing_if = "Precision::is_full")]
    precision: Precision,
}

/// What is known of a model before it runs.
struct Counted {
    /// Of the runs that are measured.
    rows: usize,
    /// The cuts with the memory it takes to get there.
    cuts: Vec<(String, Linear)>,
}

impl Task {
    /// Holds a request against what this host has, grants and allows.
    pub(super) async fn check(caller: &Caller, request: ProfileRequest) -> Result<Self, Refusal> {
        let limits = Limits {
            samples: SAMPLES,
            ..caller.config().limits
        };
        check_samples(&request.samples, &limits)?;
        check_view(request.view.as_ref(), &Split::Input)?;
        let store = caller.store(&request.root, Kind::Read)?;
        let view = caller.model(&request.model)?;
        caller.find_guest(&request.guest)?;
        let permit = caller.description_permit().await?;
        let allowance = caller.allowance();
        let guest = caller.guest(&request.guest, &allowance).await?;
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

    /// What was measured for the same before, if it still holds.
    pub(super) async fn stored(&self, caller: &Caller) -> Result<Option<Profile>, Refusal> {
        let machine = caller.machine();
        let (folder, subject) = (machine.profiles.clone(), subject(caller, &self.view.sha256));
        let key = self.key(&machine.platform())?;
        Ok(spawn_blocking(move || folder.get(&subject, &key)).await?)
    }

    /// Keeps a profile. One that cannot be kept is measured again next time.
    pub(super) async fn store(&self, caller: &Caller, profile: &Profile) -> Result<(), Refusal> {
        let (folder, subject) = (
            caller.machine().profiles.clone(),
            subject(caller, &self.view.sha256),
        );
        let (key, profile) = (self.key(&caller.machine().platform())?, profile.clone());
        let kept = spawn_blocking(move || folder.put(&subject, &key, &profile)).await?;
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
            precision: self.precision,
        };
        serde_json::to_value(key).map_err(Refusal::host)
    }

    /// Measures on the host's lanes.
    pub(super) async fn measure(&self, caller: &Caller) -> Result<Profile, Refusal> {
        let started = Instant::now();
        let Counted { rows, cuts } = self.counted(caller).await?;
        let subject = MeasuredModel {
            model: self.view.sha256.clone(),
            input: self.view.input.clone(),
            precision: self.precision,
            cuts,
        };
        let _memory = self.reserve(caller).await?;
        let reader = Reader {
            store: &self.store,
            decoders: &caller.machine().decoders.for_tenant(&caller.tenant().name),
            spec: self.spec,
            view: self.request.view,
            limits: &caller.config().limits,
            room: &caller.memory(Kind::Decode),
        };
        let samples = samples(reader, &self.request.samples).await?;
        let (bytes, pixels) = (samples.bytes.clone(), samples.pixels.clone());
        let input = spawn_blocking(move || encoded_pixels(&bytes, &pixels)).await??;
        let rules = Rules {
            batch: rows,
            lanes: caller.config().lanes,
            ..Rules::default()
        };
        let executor: Arc<dyn GraphExecutor> = Arc::clone(&caller.tenant().executor) as _;
        let measured = measure(&subject, &samples.pixels, &executor, &rules).await?;
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

    /// Memory for its samples: as bytes, as numbers, and as batches of both made to measure with.
    async fn reserve(&self, caller: &Caller) -> Result<Reserved, Refusal> {
        let sample: usize = self.spec.sample_shape().iter().product();
        let copies = 2 * (1 + size_of::<f32>());
        let bytes = sample
            .saturating_mul(copies)
            .saturating_mul(self.request.samples.len());
        let room = caller.memory(Kind::Grant);
        room.reserve(bytes as u64, caller.config().limits.stall).await
    }

    /// Seconds of the whole machine that reading a sample takes from computing.
    async fn reading_cost(
        &self,
        caller: &Caller,
        executor: &Arc<dyn GraphExecutor>,
        samples: &Samples,
        cuts: &[CutProfile],
    ) -> Result<f64, Refusal> {
        let config = caller.config();
        let beside = Beside {
            executor,
            stage: Stage {
                model: self.view.sha256.clone(),
                from: self.view.input.clone(),
                to: self.request.cuts.last().cloned().unwrap_or_default(),
                pixels: None,
                precision: self.precision,
            },
            rows: &samples.pixels,
            lanes: config.lanes,
            seconds_per_sample: cuts.last().map_or(1.0, |cut| cut.busy_seconds_per_sample),
            read_seconds: samples.read_seconds,
        };
        let samples = &self.request.samples;
        beside
            .cost(&self.store, samples, config.limits.object_bytes)
            .await
    }

    /// What the model says of itself.
    async fn counted(&self, caller: &Caller) -> Result<Counted, Refusal> {
        let Pin { name, sha256 } = &self.request.model;
        let takes = match caller.find_model(name, Some(sha256)).0 {
            FindResult::Version(model) => model.bytes.saturating_mul(2),
            FindResult::Missing | FindResult::OtherVersion(_) => 0,
        };
        let stall = caller.config().limits.stall;
        let _memory = caller.memory(Kind::Grant).reserve(takes, stall).await?;
        let bytes = caller.library().models.bytes_of(&self.view.sha256).await?;
        let cuts = self.request.cuts.clone();
        let (most, device) = (caller.machine().rows, caller.config().device);
        let count = move || {
            let model = Model::from_bytes(bytes)?;
            let network = model.network()?;
            for name in &cuts {
                let dtype = network.cut(name)?.dtype;
                if dtype != DType::F32 {
                    return Err(Refusal::request(format!(
                        "activations at '{name}' are {dtype}, but only f32 is supported; omit this cut"
                    )));
                }
            }
            let memory = memory(&model, &cuts)?;
            Ok(Counted {
                rows: match device {
                    Device::Cpu => efficient_rows(&model, most)?,
                    Device::Cuda(_) => most,
                },
                cuts: cuts.into_iter().zip(memory).collect(),
            })
        };
        spawn_blocking(count).await?
    }
}

/// The cuts must be the model's, in its order, and served as they are.
fn check_cuts(cuts: &[String], model: &ModelView, description: &Description) -> Result<(), Refusal> {
    if cuts.is_empty() || cuts.len() > CUTS {
        return Err(Refusal::request(format!(
            "the request has {} cuts, allowed are 1 to {CUTS}",
            cuts.len()
        )));
    }
    let mut before = None;
    for name in cuts {
        let position = model.cuts.iter().position(|cut| cut.name == *name);
        if position.is_none() {
            return Err(Refusal::request(format!("the model has no cut '{name}'")));
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
                "guest {} does not serve the model's own activations at the cut '{name}'; omit it",
                description.name
            )));
        }
    }
    Ok(())
}
