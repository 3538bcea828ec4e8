//! Guests and models that a tenant can use.

use super::Caller;
use crate::refusal::Refusal;
use frostline_sandbox::{Allowance, CutView, Guest, ModelView};
use frostline_state::{Facts, FindResult, ModelFacts, OwnedUploads, SHARED, StoredVersion};
use frostline_wire::{Description, TensorInfo, UploadRef};
use std::sync::Arc;

impl Caller {
    /// Guests of the tenant.
    pub(crate) fn guests(&self) -> OwnedUploads<'_, ()> {
        self.library().guests.owned_by(&self.tenant().name)
    }

    /// Models of the tenant.
    pub(crate) fn models(&self) -> OwnedUploads<'_, ModelFacts> {
        self.library().models.owned_by(&self.tenant().name)
    }

    /// Models shared with all tenants.
    pub(crate) fn shared_models(&self) -> OwnedUploads<'_, ModelFacts> {
        self.library().models.owned_by(SHARED)
    }

    /// Resolves a model name, and returns true if the result is a shared model. Models of the tenant take
    /// precedence over shared ones, unless only the shared model has the given SHA-256.
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
    /// Returns [`Refusal::GuestDisabled`] if the guest is disabled.
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

    /// Resolves a guest reference.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the guest is unknown, if its SHA-256 differs, or if it is disabled.
    pub(crate) fn find_guest(&self, pin: &UploadRef) -> Result<Arc<StoredVersion<()>>, Refusal> {
        let stored = resolve_pin(self.guests().find(&pin.name, Some(&pin.sha256)), "guest", pin)?;
        tracing::Span::current().record("guest", &pin.name);
        self.check_guest_enabled(&pin.name)?;
        Ok(stored)
    }

    /// Returns the referenced guest, compiled if necessary. The caller must hold a permit.
    pub(crate) async fn guest(&self, pin: &UploadRef, allowance: &Arc<Allowance>) -> Result<Guest, Refusal> {
        let version = self.find_guest(pin)?;
        self.library()
            .guest(&self.tenant().name, &version, allowance)
            .await
    }

    /// Resolves a model reference to the model as guests see it.
    pub(crate) fn model(&self, pin: &UploadRef) -> Result<Arc<ModelView>, Refusal> {
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
            joined_inputs: facts.joined_inputs.clone(),
            cuts: cuts.collect(),
        }))
    }

    /// Returns the tensors that a model concatenates at `cut`. The list is empty for a single tensor.
    pub(crate) fn cut_tensors(&self, pin: &UploadRef, cut: &str) -> Result<Vec<TensorInfo>, Refusal> {
        let (found, _) = self.find_model(&pin.name, Some(&pin.sha256));
        let stored = resolve_pin(found, "model", pin)?;
        let cut = stored.facts.cuts.iter().find(|known| known.name == cut);
        Ok(cut.map(|cut| cut.tensors.clone()).unwrap_or_default())
    }

    /// Calls the guest's `describe` for the model, or returns the cached description.
    pub(crate) async fn describe(
        &self,
        guest: &Guest,
        model: &Arc<ModelView>,
        parameters: &str,
        allowance: &Arc<Allowance>,
    ) -> Result<Arc<Description>, Refusal> {
        let tenant = &self.tenant().name;
        self.library()
            .describe(tenant, guest, model, parameters, allowance)
            .await
    }
}

/// Converts the result of resolving a reference.
fn resolve_pin<F: Facts>(
    found: FindResult<F>,
    what: &str,
    pin: &UploadRef,
) -> Result<Arc<StoredVersion<F>>, Refusal> {
    let UploadRef { name, sha256 } = pin;
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
