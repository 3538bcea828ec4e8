//! Who asks, and what of this host is there for them: all that tenants' requests see.

use crate::config::{HostConfig, Root};
use crate::guest_lines::{Owner, since_1970};
use crate::library::Library;
use crate::machine::Machine;
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::scheduling::{Permit, Room, Scheduling, Tensors};
use crate::service::Service;
use crate::state::{Facts, Found, ModelFacts, Owned, SHARED, Stored};
use crate::tenants::{Pass, Tenant};
use frostline_batching::Kind;
use frostline_engine::TenantLanes;
use frostline_objects::Store;
use frostline_sandbox::{Allowance, CutView, Guest, ModelView, OnLine};
use frostline_tensor::{RunTerms, Terms};
use frostline_wire::{Description, Pin, QuotaKey};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How often what runs is held against what is known of its tenant: who ends it waits a second.
const CHECK: Duration = Duration::from_secs(1);

/// A tenant at this host.
#[derive(Clone)]
pub(crate) struct Caller {
    service: Arc<Service>,
    pass: Pass,
}

impl Caller {
    pub(crate) fn new(service: Arc<Service>, pass: Pass) -> Self {
        Self { service, pass }
    }

    pub(crate) fn tenant(&self) -> &Tenant {
        &self.pass.tenant
    }

    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.service
    }

    pub(crate) fn config(&self) -> &HostConfig {
        &self.service.config
    }

    pub(crate) fn library(&self) -> &Library {
        &self.service.library
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.service.machine
    }

    pub(crate) fn scheduling(&self) -> &Scheduling {
        &self.service.scheduling
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.service.operations.metrics
    }

    /// Ends when what runs for the tenant, by this guest if there is one, may not go on: the token was revoked or expired, the tenant
    /// disabled or removed, or the guest disabled.
    pub(crate) async fn dismissed(&self, guest: Option<&str>) -> Refusal {
        loop {
            tokio::time::sleep(CHECK).await;
            let stays = self.service.tenants.stays(&self.pass, frostline_profile::now());
            let runs = || guest.map_or(Ok(()), |guest| self.may_run(guest));
            if let Err(refusal) = stays.map_err(Refusal::from).and_then(|()| runs()) {
                tracing::info!(%refusal, "what ran was ended");
                return refusal;
            }
        }
    }

    /// Does `work` within the time that a request of the tenant's may take, and while the host runs.
    ///
    /// # Errors
    /// Its own, [`Refusal::Deadline`] and [`Refusal::Stopping`].
    pub(crate) async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let wall = self.tenant().allowed.wall();
        let seconds = wall.as_secs();
        tokio::select! {
            outcome = timeout(wall, work) => outcome.map_err(|_| Refusal::Deadline { seconds })?,
            () = self.scheduling().end.cancelled() => Err(Refusal::Stopping),
        }
    }

    /// Writes down what the tenant did.
    pub(crate) fn note(&self, what: &str, detail: impl Into<String>) {
        let name = &self.tenant().name;
        let audit = &self.service.operations.audit;
        audit.note(&format!("tenant {name}"), what, name, detail);
    }

    /// Its guests.
    pub(crate) fn guests(&self) -> Owned<'_, ()> {
        self.library().guests.of(&self.tenant().name)
    }

    /// Its models.
    pub(crate) fn models(&self) -> Owned<'_, ModelFacts> {
        self.library().models.of(&self.tenant().name)
    }

    /// The models that all tenants may use.
    pub(crate) fn shared_models(&self) -> Owned<'_, ModelFacts> {
        self.library().models.of(SHARED)
    }

    /// What it means by a model's name, and whether that is a shared one. Its own models come first.
    pub(crate) fn find_model(&self, name: &str, sha256: Option<&str>) -> (Found<ModelFacts>, bool) {
        match (
            self.models().find(name, sha256),
            self.shared_models().find(name, sha256),
        ) {
            (Found::Nothing, shared) | (Found::Other(_), shared @ Found::Version(_)) => (shared, true),
            (own, _) => (own, false),
        }
    }

    /// Refuses a guest that an admin disabled.
    ///
    /// # Errors
    /// [`Refusal::GuestDisabled`].
    pub(crate) fn may_run(&self, guest: &str) -> Result<(), Refusal> {
        if self.guests().disabled(guest) {
            return Err(self.guest_disabled(guest));
        }
        Ok(())
    }

    pub(crate) fn guest_disabled(&self, guest: &str) -> Refusal {
        Refusal::GuestDisabled {
            tenant: self.tenant().name.clone(),
            guest: guest.to_owned(),
        }
    }

    /// Holds `wanted` of something against what the tenant may use.
    ///
    /// # Errors
    /// [`Refusal::Quota`].
    pub(crate) fn within(&self, key: QuotaKey, wanted: u64) -> Result<(), Refusal> {
        let limit = self.tenant().allowed.get(key);
        if wanted <= limit {
            return Ok(());
        }
        Err(Refusal::Quota {
            tenant: self.tenant().name.clone(),
            key,
            wanted,
            limit,
        })
    }

    /// Whether `more` bytes may be stored beside what the tenant has.
    ///
    /// # Errors
    /// [`Refusal::Quota`].
    pub(crate) fn may_store(&self, more: u64) -> Result<(), Refusal> {
        let stored = self.guests().bytes().saturating_add(self.models().bytes());
        self.within(QuotaKey::StoredBytes, stored.saturating_add(more))
    }

    /// The host's memory of one kind, for the tenant.
    pub(crate) fn room(&self, kind: Kind) -> Room {
        Room::new(&self.scheduling().memory, &self.tenant().name, kind)
    }

    /// The store of a data root, if the tenant may read it. Its objects are read into memory of that kind.
    pub(crate) fn store(&self, root: &str, kind: Kind) -> Result<Arc<Store>, Refusal> {
        let parsed =
            Root::parse(root).map_err(|why| Refusal::request(format!("data root {root:?}: {why}")))?;
        if !self.tenant().data.allows(&parsed) {
            return Err(Refusal::not_found(format!(
                "this host grants no data at {root:?}; whoever runs it grants data roots, by 'data' in its configuration or by frostline admin"
            )));
        }
        let store = self.library().store(&parsed)?;
        Ok(Arc::new(store.reading_into(Arc::new(self.room(kind)))))
    }

    /// What one request of the tenant's may use of the sandbox. What it did use is counted as the tenant's once it is over.
    pub(crate) fn allowance(&self) -> Arc<Allowance> {
        self.allowance_of(&Tensors::new(self.room(Kind::Grant)))
    }

    /// The same, of the memory that `tensors` lends.
    pub(crate) fn allowance_of(&self, tensors: &Arc<Tensors>) -> Arc<Allowance> {
        let (metrics, tenant) = (Arc::clone(self.metrics()), self.tenant().name.clone());
        let limits = self.tenant().allowed.limits();
        Allowance::borrowing(limits, Arc::clone(tensors) as _, move |usage| {
            metrics.used(&tenant, &usage);
        })
    }

    /// What keeps the lines that `guest` logs in the extraction `id`, for the tenant to read.
    pub(crate) fn on_line(&self, guest: &str, id: &str) -> OnLine {
        let (lines, owner) = (Arc::clone(&self.service.operations.lines), self.owner());
        let (guest, id): (Arc<str>, Arc<str>) = (guest.into(), id.into());
        Arc::new(move |level, text| lines.keep(&owner, &guest, &id, level, text, since_1970()))
    }

    /// Whose lines it reads.
    pub(crate) fn owner(&self) -> Owner {
        let Tenant { name, created_at, .. } = self.tenant();
        Owner {
            tenant: name.clone(),
            created_at: *created_at,
        }
    }

    /// The lanes, for the extraction `id` on `terms`.
    pub(crate) fn lanes(&self, id: &str, terms: Terms) -> TenantLanes {
        let tenant = self.tenant();
        let extraction = id.into();
        tenant
            .executor
            .on_terms(tenant.allowed.weight(), RunTerms { extraction, terms })
    }

    /// Waits for the tenant's turn to ask guests something outside of an extraction.
    ///
    /// # Errors
    /// [`Refusal::Busy`] and [`Refusal::Stopping`].
    pub(crate) async fn asking(&self) -> Result<Permit, Refusal> {
        let Tenant { name, allowed, .. } = self.tenant();
        self.scheduling().ask(name, allowed.permits()).await
    }

    /// The version of a pin, if there is such a guest and it may run.
    ///
    /// # Errors
    /// [`Refusal`], naming it.
    pub(crate) fn may_use(&self, pin: &Pin) -> Result<Arc<Stored<()>>, Refusal> {
        let stored = pinned(self.guests().find(&pin.name, Some(&pin.sha256)), "guest", pin)?;
        tracing::Span::current().record("guest", &pin.name);
        self.may_run(&pin.name)?;
        Ok(stored)
    }

    /// The guest of a pin, ready to run; for whoever has a permit.
    pub(crate) async fn guest(&self, pin: &Pin, allowance: &Arc<Allowance>) -> Result<Guest, Refusal> {
        let version = self.may_use(pin)?;
        self.library()
            .guest(&self.tenant().name, &version, allowance)
            .await
    }

    /// The model of a pin, as guests see it.
    pub(crate) fn model(&self, pin: &Pin) -> Result<Arc<ModelView>, Refusal> {
        let (found, _) = self.find_model(&pin.name, Some(&pin.sha256));
        let stored = pinned(found, "model", pin)?;
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

    /// What the guest says it does for the model.
    pub(crate) async fn describe(
        &self,
        guest: &Guest,
        model: &Arc<ModelView>,
        parameters: &str,
        allowance: &Arc<Allowance>,
    ) -> Result<Arc<Description>, Refusal> {
        let limit = self.config().limits.parameter_bytes;
        if parameters.len() > limit {
            return Err(Refusal::TooLarge {
                what: "parameters".to_owned(),
                bytes: parameters.len() as u64,
                limit: limit as u64,
            });
        }
        let tenant = &self.tenant().name;
        self.library()
            .describe(tenant, guest, model, parameters, allowance)
            .await
    }
}

/// The version a pin names.
fn pinned<F: Facts>(found: Found<F>, what: &str, pin: &Pin) -> Result<Arc<Stored<F>>, Refusal> {
    let Pin { name, sha256 } = pin;
    match found {
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
