//! The guests and models that a tenant may use.

use super::Caller;
use crate::refusal::Refusal;
use crate::state::{Facts, FindResult, ModelFacts, OwnedUploads, SHARED, StoredVersion};
use frostline_sandbox::{Allowance, CutView, Guest, ModelView};
use frostline_wire::{Description, Pin};
use std::sync::Arc;

impl Caller {
    /// Its guests.
    pub(crate) fn guests(&self) -> OwnedUploads<'_, ()> {
        self.library().guests.owned_by(&self.tenant().name)
    }

    /// Its models.
    pub(crate) fn models(&self) -> OwnedUploads<'_, ModelFacts> {
        self.library().models.owned_by(&self.tenant().name)
    }

    /// The models that all tenants may use.
    pub(crate) fn shared_models(&self) -> OwnedUploads<'_, ModelFacts> {
        self.library().models.owned_by(SHARED)
    }

    /// What it means by a model's name, and whether that is a shared one. Its own models come first.
    pub(crate) fn find_model(&self, name: &str, sha256: Option<&str>) -> (FindResult<ModelFacts>, bool) {
        match (
            self.models().find(name, sha256),
            self.shared_models().find(name, sha256),
        ) {
            (FindResult::Missing, shared)
            | (FindResult::OtherVersion(_), shared @ FindResult::Version(_)) => (shared, true),
            (own, _) => (own, false),
        }
    }

    /// Refuses a guest that an admin disabled.
    ///
    /// # Errors
    /// [`Refusal::GuestDisabled`].
    pub(crate) fn check_guest_enabled(&self, guest: &str) -> Result<(), Refusal> {
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

    /// The version of a pin, if there is such a guest and it may run.
    ///
    /// # Errors
    /// [`Refusal`], naming it.
    pub(crate) fn find_guest(&self, pin: &Pin) -> Result<Arc<StoredVersion<()>>, Refusal> {
        let stored = resolve_pin(self.guests().find(&pin.name, Some(&pin.sha256)), "guest", pin)?;
        tracing::Span::current().record("guest", &pin.name);
        self.check_guest_enabled(&pin.name)?;
        Ok(stored)
    }

    /// The guest of a pin, ready to run; for whoever has a permit.
    pub(crate) async fn guest(&self, pin: &Pin, allowance: &Arc<Allowance>) -> Result<Guest, Refusal> {
        let version = self.find_guest(pin)?;
        self.library()
            .guest(&self.tenant().name, &version, allowance)
            .await
    }

    /// The model of a pin, as guests see it.
    pub(crate) fn model(&self, pin: &Pin) -> Result<Arc<ModelView>, Refusal> {
        let (found, _) = self.find_model(&pin.name, Some(&pin.sha256));
        let stored = resolve_pin(found, "model", pin)?;
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
fn resolve_pin<F: Facts>(
    found: FindResult<F>,
    what: &str,
    pin: &Pin,
) -> Result<Arc<StoredVersion<F>>, Refusal> {
    let Pin { name, sha256 } = pin;
    match found {
        FindResult::Version(stored) => Ok(stored),
        FindResult::Missing => Err(Refusal::not_found(format!(
            "unknown {what} {name:?}; upload it with PUT /v1/{what}s/{name}"
        ))),
        FindResult::OtherVersion(newest) => Err(Refusal::OtherVersion {
            message: format!(
                "the {what} {name:?} on this host has the SHA-256 {}, not {sha256}; upload yours again, or use that version",
                newest.sha256
            ),
        }),
    }
}
