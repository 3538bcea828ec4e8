//! Training of the model by earlier jobs. Images that a kept layer was trained on must not validate this job.

use super::trained_images::TrainedImages;
use crate::evaluation::{Divided, Division, ListedSamples};
use crate::event::warn;
use crate::{Events, Job, SettingError, TrainerError, model_metadata};
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
    /// Compares the validation samples of `dataset` with the samples of an earlier training. If the job divides
    /// the data, the earlier division is compared, and otherwise the files that came with the parts. `data`
    /// contains the undivided samples of `dataset`.
    ///
    /// # Errors
    /// Returns [`TrainerError::Setting`] if a kept layer was trained on a validation sample, because the
    /// validation would mean nothing.
    pub(super) fn find(job: &Job, data: ListedSamples<'_>, dataset: &Dataset) -> Result<Self, TrainerError> {
        if !keeps_trained_layers(job) {
            return Ok(Self::Disjoint);
        }
        let Some(share) = job.spec.validation else {
            check_parts(job, dataset)?;
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
            warn(events, message);
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

/// Returns an error if images moved from the training part to the validation part after an earlier training.
fn check_parts(job: &Job, dataset: &Dataset) -> Result<(), TrainerError> {
    let earlier = model_metadata::trained_images(&job.model).unwrap_or_default();
    let leaked = earlier.moved(&dataset.train, &dataset.validation);
    if leaked == 0 {
        return Ok(());
    }
    let must = format!(
        "the model was trained on at least {leaked} of the {} validation images, which are not in the training part any more; \
         validate on other images, or start from the model before that training",
        dataset.validation.len()
    );
    Err(SettingError::new("data", job.spec.data.clone(), must).into())
}

/// Returns the images that the layers of the tuned model were trained on, as far as known.
pub(super) fn trained_images(job: &Job, dataset: &Dataset) -> TrainedImages {
    let earlier = model_metadata::trained_images(&job.model).filter(|_| keeps_trained_layers(job));
    TrainedImages::from_samples(&dataset.train).and(&earlier.unwrap_or_default())
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
    let own = lasting_cut(&job.model, job.earliest_freeze());
    let before = model_metadata::trained_after(&job.model).filter(|_| keeps_trained_layers(job));
    let earlier = before.filter(|before| weights_after(&job.model, before) > weights_after(&job.model, &own));
    earlier.unwrap_or(own)
}

/// Counts the weights after `cut`.
fn weights_after(model: &Model, cut: &str) -> usize {
    model
        .slice(Some(cut), None)
        .map_or(0, |rest| rest.parameters().len())
}

/// Returns `cut`, or the last cut before it if it joins several tensors, because the tuned model has no such cut.
fn lasting_cut(model: &Model, cut: &str) -> String {
    let network = model.network().ok().filter(|_| cut.contains(','));
    let Some(network) = network else {
        return cut.to_owned();
    };
    let last = network.cuts.iter().take_while(|other| other.name != cut).last();
    last.map_or(network.input.name, |last| last.name.clone())
}
