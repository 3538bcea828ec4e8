//! Decides whether the frozen layers are worth sending.

use super::context::{LinkAndTrainer, Setup};
use crate::TrainerError;
use crate::upload::Upload;
use frostline_plan::{Planner, Slowdown, Survey};
use frostline_wire::Split;

impl Setup<'_> {
    /// Measures the link and this machine, and returns a plan without `layers` if they are not worth sending. The
    /// result contains the first layers if the plan decodes and preprocesses on the host, because the stock guest
    /// needs a model to describe its pixels.
    ///
    /// Requires an open split and the stock guest, because its description is known in advance. Returns
    /// `None`, so that the layers are sent, if all hosts have them or a measurement fails.
    ///
    /// # Errors
    /// Returns an error if the hosts cannot be asked for the layers, or no split fits the memory.
    pub(super) async fn plan_without_layers(
        &mut self,
        layers: &Upload,
    ) -> Result<Option<(Planner, Option<Upload>)>, TrainerError> {
        if layers.is_on(&self.measuring).await? {
            return Ok(None);
        }
        // The measurement for the plan fails in the same way and reports the error.
        let Ok(link) = self.measure_link().await else {
            return Ok(None);
        };
        let splits = self.worthwhile(self.fitting(&self.stock_offer(None)?)?)?;
        let Ok(trainer) = self.measure_trainer(&splits, &layers.sha256).await else {
            return Ok(None);
        };
        self.early_measurements = Some(LinkAndTrainer {
            link,
            trainer: trainer.clone(),
        });
        let survey = Survey {
            host: trainer.as_host(),
            trainer,
            object_bytes: self.data.object_bytes as f64,
            hosts: 1,
            neighbors: 0,
            slowdown: Slowdown::default(),
        };
        let planner = self.planner(survey, splits, link, self.job.shared_cores);
        // The smallest valid model.
        let first = self.network.first_cut().unwrap_or(&self.job.freeze);
        let first = self.layers_up_to(first).await?;
        let planner = planner.without_layers(layers.bytes.len() as u64, first.bytes.len() as u64);
        Ok(planner.map(|planner| {
            let mut splits = planner.splits.iter();
            let needs_first = splits.any(|usable| usable.split == Split::Input);
            (planner, needs_first.then_some(first))
        }))
    }
}
