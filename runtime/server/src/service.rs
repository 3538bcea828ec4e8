//! What the handlers of one host share.

use crate::extraction::{Admission, GrantDesk};
use crate::http::Refusal;
use crate::metrics::{Metrics, Present};
use crate::state::{Found, ModelFacts, Partials, Shelf, Stored};
use crate::token::TokenHash;
use crate::{HostConfig, Root};
use frostline_engine::{Lanes, TenantLanes};
use frostline_images::DecodePool;
use frostline_objects::Store;
use frostline_profile::Folder;
use frostline_sandbox::{CutView, Guest, ModelView, Sandbox};
use frostline_wire::{Description, Load, Pin, Place};
use quick_cache::sync::Cache;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The one tenant of this host.
pub(crate) const TENANT: &str = "default";

/// What a description depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct DescriptionKey {
    pub(crate) guest: String,
    pub(crate) model: String,
    pub(crate) parameters: String,
}

/// See the module.
pub(crate) struct Service {
    pub(crate) config: HostConfig,
    pub(crate) token: TokenHash,
    pub(crate) guests: Arc<Shelf<()>>,
    pub(crate) models: Arc<Shelf<ModelFacts>>,
    pub(crate) sandbox: Sandbox,
    pub(crate) lanes: Lanes,
    pub(crate) executor: Arc<TenantLanes>,
    pub(crate) decoders: DecodePool,
    pub(crate) stores: Cache<Root, Arc<Store>>,
    pub(crate) prepared: Cache<String, Guest>,
    pub(crate) descriptions: Cache<DescriptionKey, Arc<Description>>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) desk: Arc<GrantDesk>,
    /// What models take on this host.
    pub(crate) profiles: Folder,
    /// Held by whoever measures, so that two profiles do not measure each other.
    pub(crate) profiling: tokio::sync::Mutex<()>,
    /// Name and version of the engine's library.
    pub(crate) library: String,
    /// This machine, as profiles name it.
    pub(crate) machine: String,
    /// Uploads on their way, and what came of those that broke off.
    pub(crate) partials: Partials,
    /// Bytes of uploads being received, in the units of [`crate::http::upload_units`].
    pub(crate) uploads: Arc<Semaphore>,
    pub(crate) metrics: Arc<Metrics>,
    /// Everything that must be done before the host may go.
    pub(crate) work: TaskTracker,
    /// Ends what runs, wherever it is.
    pub(crate) end: CancellationToken,
}

impl Service {
    /// The store of a data root, if the tenant was granted it.
    pub(crate) fn granted_store(&self, root: &str) -> Result<Arc<Store>, Refusal> {
        let parsed =
            Root::parse(root).map_err(|why| Refusal::request(format!("data root {root:?}: {why}")))?;
        if !self.config.data.allows(&parsed) {
            return Err(Refusal::not_found(format!(
                "this host grants no data at {root:?}; whoever runs it lists data roots under 'data' in its configuration"
            )));
        }
        self.stores
            .get_or_insert_with(&parsed, || Ok(Arc::new(Store::open(parsed.as_str())?)))
    }

    /// The guest of a pin, ready to run.
    pub(crate) async fn guest(&self, pin: &Pin) -> Result<Guest, Refusal> {
        pinned(&self.guests, "guest", pin)?;
        let prepare = async {
            let bytes = self.guests.blob(&pin.sha256).await?;
            Ok(self.sandbox.prepare(bytes).await?)
        };
        self.prepared.get_or_insert_async(&pin.sha256, prepare).await
    }

    /// The model of a pin, as guests see it.
    pub(crate) fn model(&self, pin: &Pin) -> Result<Arc<ModelView>, Refusal> {
        let stored = pinned(&self.models, "model", pin)?;
        let facts = &stored.facts;
        let cuts = facts.cuts.iter().map(|cut| CutView {
            name: cut.name.clone(),
            shape: cut.shape.clone(),
        });
        Ok(Arc::new(ModelView {
            sha256: stored.sha256.clone(),
            input: facts.input.clone(),
            input_shape: facts.input_shape.clone(),
            cuts: cuts.collect(),
        }))
    }

    /// What the guest says it does for the model; asked once.
    pub(crate) async fn describe(
        &self,
        guest: &Guest,
        model: &Arc<ModelView>,
        parameters: &str,
    ) -> Result<Arc<Description>, Refusal> {
        if parameters.len() > self.config.limits.parameter_bytes {
            return Err(Refusal::TooLarge {
                what: "parameters".to_owned(),
                bytes: parameters.len() as u64,
                limit: self.config.limits.parameter_bytes as u64,
            });
        }
        let key = DescriptionKey {
            guest: guest.sha256().to_owned(),
            model: model.sha256.clone(),
            parameters: parameters.to_owned(),
        };
        let ask = async { Ok(Arc::new(guest.describe(model, parameters).await?)) };
        self.descriptions.get_or_insert_async(&key, ask).await
    }

    /// What profiles measured on this host depend on.
    pub(crate) fn place(&self) -> Place {
        let lanes = self.lanes.config();
        Place {
            machine: self.machine.clone(),
            device: lanes.device.to_string(),
            library: self.library.clone(),
            lanes: lanes.lanes,
            threads_per_lane: lanes.threads_per_lane,
            decode_threads: self.decoders.threads(),
        }
    }

    pub(crate) fn load(&self) -> Load {
        Load {
            queued: self.admission.queued() as u64,
            running: self.admission.running() as u64,
            lanes: self.lanes.config().lanes as u64,
            samples_per_second: self.metrics.meter.per_second(),
        }
    }

    pub(crate) fn present(&self) -> Present {
        let lanes = self.lanes.stats();
        Present {
            queued: self.admission.queued(),
            running: self.admission.running(),
            lane_queue: lanes.queued,
            lane_samples: lanes.samples_done,
        }
    }
}

/// The version a pin names.
pub(crate) fn pinned<F>(shelf: &Shelf<F>, what: &str, pin: &Pin) -> Result<Arc<Stored<F>>, Refusal>
where
    F: serde::Serialize + serde::de::DeserializeOwned + Clone + PartialEq + Send + Sync,
{
    let Pin { name, sha256 } = pin;
    match shelf.find(name, Some(sha256)) {
        Found::Version(stored) => Ok(stored),
        Found::Nothing => Err(Refusal::not_found(format!(
            "this host has no {what} {name:?}; upload it with PUT /v1/{what}s/{name}"
        ))),
        Found::Other(newest) => Err(Refusal::OtherVersion {
            message: format!(
                "the {what} {name:?} on this host has the SHA-256 {}, not {sha256}; upload yours again, or ask for that one",
                newest.sha256
            ),
        }),
    }
}
