//! Validates jobs before any connection, upload or measurement.

use crate::recipe::{batch_norm, step_settings};
use crate::training::{export, unfreeze};
use crate::{Job, Policy, SettingError, TrainerError, blocking, model_metadata, whole_file};
use frostline_client::LabelTable;
use frostline_compute::{ComputeError, LinearHead, most_rows};
use frostline_graph::Network;
use frostline_plan::resolve_cut;
use frostline_training::Trainability;
use frostline_wire::Split;
use std::path::Path;

impl Job {
    /// Validates the job independently of hosts and data, and replaces the module names of cuts by tensor
    /// names. [`crate::train()`] and [`crate::plan()`] call this method first.
    ///
    /// # Errors
    /// Returns an error if the job is invalid:
    ///
    /// - [`TrainerError::Setting`], [`TrainerError::InvalidRecipe`] or [`TrainerError::Terms`] for an invalid
    ///   setting, including a path for the model that the job reads from
    /// - [`TrainerError::Output`] if the model cannot be written to the requested path
    /// - [`TrainerError::Graph`] or [`TrainerError::Plan`] if the network does not have a requested cut
    /// - [`TrainerError::Unfreezing`] for an invalid later freeze cut
    /// - [`TrainerError::Compute`] or [`TrainerError::Untrainable`] if the layers after the freeze cut cannot
    ///   be trained; the latter contains the earliest freeze cut that works
    /// - [`TrainerError::SplitAfterFreeze`] if the split is after the freeze cut
    /// - [`ComputeError::Standardize`] if features cannot be standardized
    /// - [`TrainerError::Pixels`] if the preprocessing recipe does not fit the model
    pub async fn checked(self) -> Result<Self, TrainerError> {
        blocking(move || self.settled()).await
    }

    fn settled(mut self) -> Result<Self, TrainerError> {
        self.spec.check()?;
        let step = step_settings(&self.spec.recipe).check();
        step.map_err(|source| TrainerError::InvalidRecipe { source })?;
        self.terms().check()?;
        if let Some(out) = &self.spec.out {
            self.check_overwriting(out)?;
            export::check_target(out)?;
        }
        SettingError::require(
            self.spec.out.is_some() || self.run.is_some(),
            "the tuned model's file",
            &"missing",
            "pass the path, or a run folder",
        )?;
        // Use the maximum of this machine's own forward passes.
        if self.spec.reproducible && self.spec.terms.fixed_batch.is_none() {
            self.spec.terms.fixed_batch = Some(most_rows(self.device));
        }
        let network = self.model.network()?;
        if self.freeze != network.input.name {
            self.freeze.clone_from(&network.named(&self.freeze)?.name);
        }
        network.frozen_row(&self.freeze)?;
        let with_splits = self.model.with_splits(&self.freeze)?.network()?;
        self.spec.split = resolve_cut(&self.spec.split, &with_splits)?;
        for candidate in self.spec.candidates.iter_mut().flatten() {
            if let Split::Cut(name) = candidate {
                name.clone_from(&with_splits.named(name)?.name);
            }
        }
        let unfreeze = &self.spec.unfreeze;
        let epochs = self.spec.recipe.epochs;
        self.spec.unfreeze = unfreeze::resolve_cuts(unfreeze, &network, &self.freeze, epochs)?;
        if let Policy::Fixed(Split::Cut(split)) = &self.spec.split {
            check_order(&with_splits, split, self.earliest_freeze())?;
        }
        model_metadata::pixels_of_job(&self.model, &network, &self.spec.pixels, &self.guest)?;
        for phase in self.phases() {
            self.check_trainable(&network, &phase.freeze)?;
            network.frozen_row(&phase.freeze)?;
        }
        if self.spec.recipe.standardize {
            self.check_linear(&network)?;
        }
        Ok(self)
    }

    /// Returns an error if a model in `out` would overwrite a file that the job reads. An interrupted job
    /// could then not be resumed.
    fn check_overwriting(&self, out: &Path) -> Result<(), SettingError> {
        let spec = &self.spec;
        let table = Path::new(&spec.data).join(LabelTable::KEY);
        for (what, file) in [
            ("network", spec.model.as_deref()),
            ("table of labels", spec.labels.as_deref().or(Some(&table))),
            ("guest", spec.guest.as_deref()),
            ("token", spec.hosts.token_file.as_deref()),
        ] {
            let is_read = file.is_some_and(|file| whole_file::is_same(file, out));
            SettingError::require(
                !is_read,
                "the tuned model's file",
                &out.display(),
                &format!("cannot overwrite the {what} of the job; choose a different path"),
            )?;
        }
        Ok(())
    }

    /// Returns an error if the suffix is not just a linear classifier.
    fn check_linear(&self, network: &Network) -> Result<(), TrainerError> {
        if !self.spec.unfreeze.0.is_empty() {
            let why = "cannot combine with unfreeze; disable either setting".to_owned();
            return Err(ComputeError::Standardize { why }.into());
        }
        let row = network.frozen_row(&self.freeze)?.dims();
        let model = self.model.with_own_weights(&self.freeze)?;
        let suffix = model.slice(Some(&self.freeze), None)?;
        LinearHead::from_suffix(&suffix.replace_head(2, 0)?, row)?;
        Ok(())
    }

    /// Returns an error if a layer after the freeze cut cannot be trained.
    fn check_trainable(&self, network: &Network, freeze: &str) -> Result<(), TrainerError> {
        let model = self.model.with_own_weights(self.earliest_freeze())?;
        let suffix = model.slice(Some(freeze), None)?;
        let trainability = batch_norm(&self.spec.recipe)
            .check(&suffix)
            .and_then(|()| Trainability::analyze(&self.model))
            .map_err(ComputeError::not_trained(freeze))?;
        let Some(obstacle) = trainability.obstacle(freeze) else {
            return Ok(());
        };
        let title = network.cut(freeze).map_or(freeze, |cut| network.title(cut));
        let earliest = trainability.earliest(network);
        Err(TrainerError::Untrainable {
            freeze: title.to_owned(),
            why: obstacle.to_string(),
            earliest: earliest.map(|cut| network.title(cut).to_owned()),
        })
    }
}

/// Returns an error if the split is after the freeze cut.
fn check_order(network: &Network, split: &str, freeze: &str) -> Result<(), TrainerError> {
    let last = network.cuts.iter().position(|cut| cut.name == freeze);
    let frozen = last
        .and_then(|last| network.cuts.get(..=last))
        .unwrap_or_default();
    if frozen.iter().any(|cut| cut.name == split) {
        return Ok(());
    }
    Err(TrainerError::after_freeze(network, split, freeze, frozen))
}
