use super::available::available_memory;
use super::data::Outputs;
use super::step_memory::StepPlan;
use crate::event::first_few;
use crate::int8::QuantizedModel;
use crate::recipe::{balanced, factors, positive, step_settings};
use crate::{ClassWeights, Job, LossName, TrainerError, blocking, model_metadata};
use frostline_compute::{KEPT_MIDDLES, LinearHead, Standard, SuffixParts, session_options};
use frostline_engine::Device;
use frostline_graph::{Model, Network};
use frostline_job::{ExportPrefix, NewHead, PixelSource};
use frostline_quantization::WeightBits;
use frostline_tensor::{PixelSpec, Tensor};
use frostline_training::{Dropout, Loss, StepSettings};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// A job's network, divided at the freeze cut.
#[derive(Clone)]
pub(crate) struct DividedNetwork {
    pub(super) network: Network,
    /// The whole network with the new head, before quantization.
    pub(crate) headed: Model,
    /// The same network with the frozen layers in the job's precision, f32 or int8. In f32, it contains the joint cuts at
    /// which the frozen layers can be split.
    pub(crate) frozen: Model,
    /// Precision of the int8 weights, if the frozen layers are quantized.
    pub(crate) int8: Option<WeightBits>,
    suffix: Model,
    /// Settings for training steps of the suffix.
    settings: StepSettings,
    /// The suffix as a classifier of standardized features.
    linear: Option<LinearHead>,
    /// Standardization of the target numbers, if any.
    numbers: Option<Standard>,
    outputs: Outputs,
    /// Preprocessing and its source. `None` if the network takes other inputs than images.
    pub(super) pixels: Option<(PixelSpec, PixelSource)>,
    /// Operator that turned scores into probabilities before the head was replaced.
    pub(crate) probabilities: Option<String>,
    /// Parameters passed to the guest.
    pub(super) parameters: String,
}

impl DividedNetwork {
    /// Replaces the head by one with these outputs, and divides the network.
    pub(super) async fn build(job: &Job, outputs: &Outputs) -> Result<Self, TrainerError> {
        let job = job.clone();
        let outputs = outputs.clone();
        blocking(move || Self::divide(&job, &outputs)).await
    }

    /// Returns the preprocessing of images.
    ///
    /// # Errors
    /// Returns [`TrainerError::Pixels`] if the network takes other inputs.
    pub(super) fn recipe(&self) -> Result<PixelSpec, TrainerError> {
        let recipe = self.pixels.map(|(recipe, _)| recipe);
        recipe.ok_or_else(|| TrainerError::Pixels {
            reason: "only the guest can compute the input of the network; use a cut as the split".to_owned(),
        })
    }

    /// Names weights of the trained layers that are not trained, if there are any.
    pub(super) fn fixed_weights(&self) -> Option<String> {
        let fixed = self.suffix.fixed_weights();
        let names = first_few(fixed.iter().map(|weight| weight.name.as_str()), 4);
        (!names.is_empty()).then(|| format!("not trained, because they look like constants: {names}"))
    }

    fn divide(job: &Job, outputs: &Outputs) -> Result<Self, TrainerError> {
        let before = job.model.network()?;
        let pixels = model_metadata::pixels_of_job(&job.model, &before, &job.spec.pixels, &job.guest)?;
        let recipe = pixels.as_ref().map(|(recipe, _)| recipe);
        let headed = job
            .model
            .with_own_weights(job.earliest_freeze())?
            .replace_head_keeping(&outputs.copied_from, job.spec.recipe.seed)?;
        let suffix = headed.slice(Some(&job.freeze), None)?;
        let frozen = headed.with_splits(&job.freeze)?;
        let network = frozen.network()?;
        let row = network.frozen_row(&job.freeze)?.dims();
        let straight = Standard::applies_to(&suffix)?;
        let linear = job
            .spec
            .recipe
            .standardize
            .then(|| LinearHead::from_suffix(&suffix, row))
            .transpose()?;
        let numbers = outputs.numbers.clone();
        Ok(Self {
            linear,
            // A kept head already predicts numbers in the original scale.
            numbers: numbers.filter(|_| straight && job.spec.head != NewHead::Keep),
            network,
            settings: settings(job, &headed, &suffix, outputs)?,
            suffix,
            outputs: outputs.clone(),
            frozen,
            int8: None,
            headed,
            parameters: model_metadata::parameters(&job.guest, recipe)?,
            pixels,
            probabilities: match job.spec.recipe.loss {
                LossName::CrossEntropy => job.model.probabilities()?,
                LossName::Bce | LossName::Mse => None,
            },
        })
    }

    /// Replaces the frozen layers with their int8 version.
    pub(super) fn with_quantized(self, quantized: QuantizedModel) -> Result<Self, TrainerError> {
        Ok(Self {
            network: quantized.model.network()?,
            frozen: quantized.model,
            int8: Some(quantized.weights),
            ..self
        })
    }

    /// Merges the `weights` trained so far and divides the network at the job's freeze cut, which must be
    /// earlier than the current one.
    pub(super) async fn unfrozen(
        &self,
        job: &Job,
        weights: Vec<(String, Tensor)>,
    ) -> Result<Self, TrainerError> {
        let job = job.clone();
        let before = self.clone();
        blocking(move || {
            let headed = before.headed.merge(&weights)?;
            let frozen = before.frozen.merge(&weights)?;
            let suffix = headed.slice(Some(&job.freeze), None)?;
            let settings = StepSettings {
                step_counters: phases_of_added_weights(&job, &headed, &before)?,
                ..settings(&job, &headed, &suffix, &before.outputs)?
            };
            Ok(Self {
                settings,
                suffix,
                headed,
                frozen,
                ..before
            })
        })
        .await
    }

    /// The network to export.
    pub(crate) fn exported(&self, prefix: ExportPrefix) -> &Model {
        match prefix {
            ExportPrefix::F32 => &self.headed,
            ExportPrefix::Int8 => &self.frozen,
        }
    }

    /// Name of the first cut in execution order.
    pub(super) fn first_cut(&self) -> Option<&String> {
        self.network.cuts.first().map(|cut| &cut.name)
    }

    /// Returns true if `freeze` is the network's input, so that all layers are trained.
    pub(crate) fn nothing_is_frozen(&self, freeze: &str) -> bool {
        self.network.input.name == freeze
    }

    /// Refuses a job with a training step too large for this machine's memory, in the widest phase. Applies
    /// to CPUs with a known amount of available memory.
    ///
    /// # Errors
    /// Returns [`TrainerError::StepMemory`] if the step does not fit, [`TrainerError::Compute`] if the
    /// suffix cannot be trained, and [`TrainerError::Graph`] if the network cannot be cut.
    pub(super) async fn check_memory(&self, job: &Job, batch: usize) -> Result<(), TrainerError> {
        let available = available_memory(Path::new("/"));
        let (Some(available), Device::Cpu) = (available, job.device) else {
            return Ok(());
        };
        let job = job.clone();
        let network = self.clone();
        blocking(move || {
            let freeze = job.earliest_freeze();
            let plan = StepPlan {
                suffix: &network.headed.slice(Some(freeze), None)?,
                settings: &network.settings,
                freeze,
                batch,
                together: job.spec.recipe.gradient_accumulation_steps,
            };
            plan.check(available)
        })
        .await
    }

    /// The trained layers and the settings to train them in batches of `batch` samples.
    pub(super) fn suffix_parts(&self, job: &Job, batch: usize) -> SuffixParts {
        SuffixParts {
            whole: self.frozen.clone(),
            suffix: self.suffix.clone(),
            freeze: job.freeze.clone(),
            linear: self.linear.clone(),
            settings: self.settings.clone(),
            outputs: self.outputs.samples.len(),
            numbers: self.numbers.clone(),
            batch,
            middles: KEPT_MIDDLES,
            options: session_options(job.device, job.spec.threads),
            precision: job.device.precision(job.spec.terms.precision),
            state: None,
        }
    }
}

/// Step settings of the suffix, including those derived from the weights and the data.
fn settings(
    job: &Job,
    headed: &Model,
    suffix: &Model,
    outputs: &Outputs,
) -> Result<StepSettings, TrainerError> {
    let mut settings = step_settings(&job.spec.recipe);
    if job.spec.recipe.class_weights == ClassWeights::Balanced {
        match &mut settings.loss {
            Loss::CrossEntropy { class_weights, .. } => *class_weights = Some(balanced(&outputs.samples)),
            Loss::BinaryCrossEntropy { positive_weights } => {
                *positive_weights = Some(positive(&outputs.samples, outputs.train_samples));
            }
            Loss::MeanSquared => {}
        }
    }
    if job.spec.recipe.dropout > 0.0 {
        settings.dropout = dropouts(job, headed, suffix)?;
    }
    // Groups may name weights of any phase. The step applies only the rates of trained weights.
    let widest = headed.slice(Some(job.earliest_freeze()), None)?;
    let trained = widest.parameters();
    let names = trained.iter().map(|weight| weight.name.as_str());
    settings.rate_factors = factors(&job.spec.recipe.rates(), names, &headed.head_weights()?)?;
    Ok(settings)
}

/// Maps each weight added by unfreezing to the phase that added it, counted from 1.
fn phases_of_added_weights(
    job: &Job,
    headed: &Model,
    before: &DividedNetwork,
) -> Result<BTreeMap<String, u32>, TrainerError> {
    let mut joined = before.settings.step_counters.clone();
    let known = before.suffix.parameters();
    let known: HashSet<&str> = known.iter().map(|weight| weight.name.as_str()).collect();
    for (phase, cut) in (1..).zip(job.spec.unfreeze.0.values()) {
        let suffix = headed.slice(Some(cut), None)?;
        let new = suffix.parameters().into_iter().map(|weight| weight.name.clone());
        for weight in new.filter(|weight| !known.contains(weight.as_str())) {
            joined.entry(weight).or_insert(phase);
        }
        if *cut == job.freeze {
            break;
        }
    }
    Ok(joined)
}

/// Dropout before each trained layer of the classifier.
fn dropouts(job: &Job, headed: &Model, suffix: &Model) -> Result<Vec<Dropout>, TrainerError> {
    let made = suffix.nodes().iter().flat_map(|node| &node.output);
    let there: HashSet<&String> = made.chain(suffix.inputs().map(|input| &input.name)).collect();
    let mut tensors = headed.classifier_inputs()?;
    tensors.dedup();
    tensors.retain(|tensor| there.contains(tensor));
    let seeds = job.spec.recipe.seed..;
    let drawn = tensors.into_iter().zip(seeds).map(|(tensor, seed)| Dropout {
        tensor,
        ratio: job.spec.recipe.dropout,
        seed,
    });
    Ok(drawn.collect())
}
