//! Whether the frozen layers are worth sending.

use super::context::{LinkAndTrainer, Setup};
use crate::TrainerError;
use crate::plan::{Layers, Plan, Planner, Slowdown, Survey, UsableSplit};
use crate::upload::Upload;
use frostline_wire::Split;

/// A plan for which the frozen layers stay on the trainer.
pub(super) struct WithoutLayers {
    pub(super) planner: Box<Planner>,
    /// What the host needs to decode and preprocess with the stock guest, where that is part of the plan: the first of the layers, since
    /// a guest describes pixels for a model.
    pub(super) first: Option<Upload>,
}

impl Setup<'_> {
    /// Measures the link and this machine, and makes the plan without `layers` where they are not worth sending. For a split that is left
    /// open and the stock guest, of which it is known what it answers. They are sent as well where something cannot be measured.
    ///
    /// # Errors
    /// [`TrainerError`].
    pub(super) async fn assess(&mut self, layers: &Upload) -> Result<Option<WithoutLayers>, TrainerError> {
        if layers.is_on(&self.measuring).await? {
            return Ok(None);
        }
        // What cannot be measured now is said by whoever measures next, for a plan.
        let Ok(link) = self.measure_link().await else {
            return Ok(None);
        };
        let splits = self.worthwhile(self.fitting(&self.stock_offer(None))?)?;
        let Ok(trainer) = self.measure_trainer(&splits, &layers.sha256).await else {
            return Ok(None);
        };
        let measured = self.measured.insert(LinkAndTrainer { link, trainer }).clone();
        self.without(layers, measured, splits).await
    }

    /// The plan without the frozen `layers`, if they are not worth sending.
    async fn without(
        &self,
        layers: &Upload,
        measured: LinkAndTrainer,
        mut splits: Vec<UsableSplit>,
    ) -> Result<Option<WithoutLayers>, TrainerError> {
        let survey = Survey {
            host: measured.trainer.as_host(),
            trainer: measured.trainer,
            object_bytes: self.data.object_bytes as f64,
            hosts: 1,
            neighbors: 0,
            slowdown: Slowdown::default(),
        };
        splits.retain(|usable| !matches!(usable.split, Split::Cut(_)));
        let mut planner = self.planner(survey, splits, measured.link, self.job.shared_cores);
        let first = self.first_layers().await?;
        let Some((split, kept)) = worth_keeping(&planner, layers, &first) else {
            return Ok(None);
        };
        planner.layers = kept;
        let decodes_there = split == Split::Input;
        if !decodes_there {
            planner.splits.retain(|usable| usable.split == split);
        }
        Ok(Some(WithoutLayers {
            planner: Box::new(planner),
            first: decodes_there.then_some(first),
        }))
    }

    /// The layers up to the first cut: the least that is a model.
    async fn first_layers(&self) -> Result<Upload, TrainerError> {
        self.layers_up_to(self.network.first_cut().unwrap_or(&self.job.freeze))
            .await
    }
}

/// The best split without the frozen layers, if these are not worth sending; the split `input` needs the `first` of them.
fn worth_keeping(planner: &Planner, layers: &Upload, first: &Upload) -> Option<(Split, Layers)> {
    let Planner {
        survey,
        workload,
        policy,
        ..
    } = planner;
    let mut candidates = survey.candidates(&planner.splits, workload);
    for candidate in candidates
        .iter_mut()
        .filter(|candidate| candidate.split == Split::Input)
    {
        candidate.stages.upload_seconds = first.bytes.len() as f64 / workload.link_bytes_per_second;
    }
    let best = Plan::choose(candidates, workload, policy)?.chosen;
    let kept = Layers::keep(layers.bytes.len() as u64, &best, workload)?;
    Some((best.candidate.split, kept))
}
