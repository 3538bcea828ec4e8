//! Training of the model by earlier jobs. Images that a kept layer was trained on must not validate this job.

use crate::evaluation::{Divided, Division, ListedSamples};
use crate::{Event, Events, Job, SettingError, TrainerError, model_metadata};
use frostline_client::{Dataset, Task};
use frostline_graph::Model;
use frostline_job::NewHead;

/// Overlap between the validation images and an earlier training of the layers that the job keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlierTraining {
    /// No kept layer was trained on a validation image.
    Disjoint,
    /// Kept layers may have been trained on some validation images.
    MayOverlap,
}

impl EarlierTraining {
    /// Compares the validation samples of `dataset` with the samples of an earlier training. Only samples that
    /// the job selects are compared, not parts that came with the data. `data` contains the undivided samples
    /// of `dataset`.
    ///
    /// # Errors
    /// Returns [`TrainerError::Setting`] if a kept layer was trained on a validation sample, because the
    /// validation would mean nothing.
    pub(super) fn find(job: &Job, data: ListedSamples<'_>, dataset: &Dataset) -> Result<Self, TrainerError> {
        let Some(share) = job.spec.validation.filter(|_| keeps_trained_layers(job)) else {
            return Ok(Self::Disjoint);
        };
        let Some(before) = model_metadata::division(&job.model) else {
            return Ok(Self::MayOverlap);
        };
        let known = model_metadata::outputs(&job.model).map(|(_, names)| names);
        let only = known.filter(|_| dataset.task == Task::Classes);
        let Divided::Same { trained, .. } = before.reproduce_classes(data, only.as_deref()) else {
            return Ok(Self::MayOverlap);
        };
        let validated = dataset.validation.iter();
        let leaked = validated
            .filter(|(sample, _)| trained.contains(&sample.sample.key))
            .count();
        if leaked == 0 {
            return Ok(Self::Disjoint);
        }
        let count = dataset.validation.len();
        let must = format!(
            "the model was trained on {leaked} of the {count} validation images; use the division of that training"
        );
        let error = SettingError::new("validation", share.to_string(), must);
        Err(error.with_conflict(before.conflict()).into())
    }

    pub(super) fn report(self, events: &Events) {
        if self == Self::MayOverlap {
            let message = "the model was trained before, on data that cannot be compared with this data: validation may include images \
                           that it was trained on. Divide the data into train/ and validation/ to be sure";
            events(Event::Warning {
                message: message.to_owned(),
            });
        }
    }

    /// Returns the division to record in the tuned model. A job on data with parts keeps the division of the
    /// training before.
    pub(super) fn record(self, job: &Job, division: Option<Division>) -> Option<Division> {
        match (self, division) {
            (Self::MayOverlap, Some(division)) => Some(division.with_unknown_past()),
            (_, None) if keeps_trained_layers(job) => model_metadata::division(&job.model),
            (_, division) => division,
        }
    }
}

/// Returns true if the job keeps a layer that an earlier job trained. The head is kept on request only.
fn keeps_trained_layers(job: &Job) -> bool {
    let model = &job.model;
    let trained_after = model_metadata::trained_after(model);
    if trained_after.is_none() && model_metadata::division(model).is_none() {
        return false;
    }
    if job.spec.head == NewHead::Keep {
        return true;
    }
    // Version 0.2 did not record which layers were trained.
    let trained = trained_after.and_then(|cut| model.slice(Some(&cut), None).ok());
    let (Some(trained), Ok(head)) = (trained, model.head_weights()) else {
        return true;
    };
    trained
        .parameters()
        .iter()
        .any(|weight| !head.contains(&weight.name))
}

/// Returns the cut after which layers were trained by this job, or by an earlier job if this job keeps its layers.
pub(crate) fn trained_after(job: &Job) -> String {
    let weights = |model: &Model, cut: &str| {
        model
            .slice(Some(cut), None)
            .map_or(0, |rest| rest.parameters().len())
    };
    let own = job.earliest_freeze();
    let before = model_metadata::trained_after(&job.model).filter(|_| keeps_trained_layers(job));
    let earlier = before.filter(|before| weights(&job.model, before) > weights(&job.model, own));
    earlier.unwrap_or_else(|| own.to_owned())
}
