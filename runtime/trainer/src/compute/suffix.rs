use super::forward::has_bf16;
use super::state::SuffixState;
use super::step::{Rows, Step, not_trained, resident, training};
use super::{Dedicated, Forward};
use crate::TrainerError;
use crate::evaluation::Targets;
use crate::recipe::StepTerms;
use crate::standard::{LinearHead, Moments, Standard};
use frostline_engine::{Device, Interrupt, ResidentState, SessionOptions};
use frostline_graph::Model;
use frostline_graph::tensors::in_single_precision;
use frostline_quantization::for_precision;
use frostline_rows::{BatchRows, PendingRows};
use frostline_tensor::{Data, Precision, Tensor, all_finite};
use frostline_training::{CpuSteps, StateSlot, StepSettings, TrainingError, TrainingGraph};
use frostline_wire::Split;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Maximum number of cached step sessions. Batches need sessions for a micro-batch and for the remainder.
/// Skipped samples add other sizes. Rebuilding a graph needs less than a second.
const SESSIONS: usize = 4;

/// Maximum number of cached middles. A job that changes the split sometimes returns to an earlier one. Each
/// middle holds weights.
pub(crate) const KEPT_MIDDLES: usize = 3;

/// The trainable layers after the freeze cut, with the middle before them if the split is earlier.
pub(crate) struct Suffix {
    whole: Model,
    model: Model,
    freeze: String,
    linear: Option<LinearHead>,
    moments: Moments,
    /// Standardization of features, once known.
    pub(super) standard: Option<Standard>,
    /// Standardization of numeric targets.
    numbers: Option<Standard>,
    pub(super) settings: StepSettings,
    outputs: usize,
    options: SessionOptions,
    precision: Precision,
    interrupt: Interrupt,
    batch: usize,
    /// Maximum number of rows in a step.
    micro_batch: usize,
    kept_middles: usize,
    /// Middles by split, least recently used first. The freeze cut needs no middle.
    middles: Vec<(Split, Option<Forward>)>,
    pub(super) state: ResidentState,
    pub(super) slots: Vec<StateSlot>,
    /// Step sessions, least recently used first.
    sessions: Vec<Step>,
    /// The weight update for accumulated gradients, opened on first use.
    update: Option<Step>,
    /// The forward pass with the current weights, opened on first use.
    inference: Option<Forward>,
}

/// Components and settings of a suffix.
#[derive(Clone)]
pub(crate) struct SuffixParts {
    /// The whole network with the new head.
    pub(crate) whole: Model,
    /// The layers from the freeze cut to the logits.
    pub(crate) suffix: Model,
    /// Name of the freeze cut.
    pub(crate) freeze: String,
    /// The linear classifier, if features are standardized.
    pub(crate) linear: Option<LinearHead>,
    pub(crate) settings: StepSettings,
    /// Number of outputs per row.
    pub(crate) outputs: usize,
    /// Standardization of numeric targets, if the targets are numeric.
    pub(crate) numbers: Option<Standard>,
    /// Number of rows in a full batch.
    pub(crate) batch: usize,
    /// Maximum number of cached middles; at least 1.
    pub(crate) middles: usize,
    pub(crate) options: SessionOptions,
    /// Precision of the middle. Trained layers are always computed in full precision.
    pub(crate) precision: Precision,
    /// The state to resume from; `None` starts from the weights in `suffix`.
    pub(crate) state: Option<Arc<SuffixState>>,
}

impl Suffix {
    pub(crate) fn open(parts: SuffixParts, interrupt: &Interrupt) -> Result<Self, TrainerError> {
        Self::restore(parts, HashMap::new(), interrupt)
    }

    /// Switches to a larger suffix with more trainable layers. Weights that were trained before keep the
    /// optimizer state.
    pub(crate) fn unfreeze(&mut self, parts: SuffixParts) -> Result<(), TrainerError> {
        let mut remembered = HashMap::new();
        for slot in &self.slots {
            let tensor = slot.to_weight(&self.state.tensor(&slot.input).map_err(training)?);
            let tensor = tensor.map_err(|source| not_trained(&self.freeze, source))?;
            remembered.insert(slot.input.clone(), tensor);
        }
        self.sessions.clear();
        self.middles.clear();
        self.inference = None;
        *self = Self::restore(parts, remembered, &self.interrupt.clone())?;
        Ok(())
    }

    /// Opens a suffix with initial values from `remembered`, keyed by slot input.
    fn restore(
        parts: SuffixParts,
        remembered: HashMap<String, Tensor>,
        interrupt: &Interrupt,
    ) -> Result<Self, TrainerError> {
        let SuffixParts {
            whole,
            suffix: model,
            freeze,
            linear,
            settings,
            outputs,
            numbers,
            batch,
            middles,
            options,
            precision,
            state: from,
        } = parts;
        let steps = steps(&model, batch, settings, options.device);
        let (settings, micro_batch) = steps.map_err(|source| not_trained(&freeze, source))?;
        let built = TrainingGraph::build(&model, micro_batch, &settings);
        let mut graph = built.map_err(|source| not_trained(&freeze, source))?;
        set_initial_values(&mut graph, from.as_deref(), remembered)
            .map_err(|source| not_trained(&freeze, source))?;
        let state = ResidentState::new(resident(&mut graph.state)).map_err(training)?;
        let slots = std::mem::take(&mut graph.state);
        let sessions = vec![Step::open(micro_batch, graph, &options, interrupt)?];
        if has_bf16(&model)? {
            // Such layers are trained in f32. Without this, a missing operator would be found after an epoch.
            Forward::open(&model, batch, &options, interrupt, "opening the network")?;
        }
        Ok(Self {
            whole,
            model,
            freeze,
            linear,
            moments: Moments::default(),
            standard: from.as_ref().and_then(|from| from.standard.clone()),
            numbers,
            settings,
            outputs,
            options,
            precision,
            interrupt: interrupt.clone(),
            batch,
            micro_batch,
            kept_middles: middles,
            middles: Vec::new(),
            state,
            slots,
            sessions,
            update: None,
            inference: None,
        })
    }

    /// Opens a suffix on a dedicated thread. If `split` is set, the middle for it is opened as well.
    pub(crate) async fn start(
        parts: SuffixParts,
        split: Option<&Split>,
    ) -> Result<Dedicated<Self>, TrainerError> {
        let split = split.cloned();
        Dedicated::open(move |interrupt| {
            let mut suffix = Self::open(parts, interrupt)?;
            split.map_or(Ok(()), |split| suffix.prepare_middle(&split))?;
            Ok(suffix)
        })
        .await
    }

    /// Opens the middle of `split` in advance.
    pub(crate) fn prepare_middle(&mut self, split: &Split) -> Result<(), TrainerError> {
        self.middle(split).map(|_| ())
    }

    /// Trains one batch divided at `split` and returns the mean loss before the update.
    pub(crate) fn train(
        &mut self,
        split: &Split,
        rows: BatchRows,
        targets: Targets,
        terms: &StepTerms,
    ) -> Result<f32, TrainerError> {
        self.inference = None;
        let (activations, pending) = self.freeze_activations(split, rows)?;
        let loss = self.step(&activations, targets, terms)?;
        pending.cache(activations);
        self.update(terms)?;
        Ok(loss)
    }

    /// Trains on the activations of a batch at the freeze cut and returns the mean loss.
    fn step(
        &mut self,
        activations: &Tensor,
        targets: Targets,
        terms: &StepTerms,
    ) -> Result<f32, TrainerError> {
        let standard = self.standard.as_ref();
        let standardized = standard.map(|standard| standard.apply(activations));
        let standardized = standardized.transpose()?;
        let activations: &Tensor = standardized.as_ref().unwrap_or(activations);
        let mut targets = targets.tensor(&self.settings.loss, self.outputs)?;
        if let Some(numbers) = &self.numbers {
            targets = numbers.apply(&targets)?;
        }
        let mixed = terms
            .mix
            .as_ref()
            .map(|mix| mix.apply(activations, &targets))
            .transpose()?;
        let (activations, targets) = match &mixed {
            Some([activations, targets]) => (activations, targets),
            None => (activations, &targets),
        };
        let rows = Rows {
            activations,
            targets,
            offset: 0,
        };
        match targets.rows()? <= self.micro_batch {
            true => self.run(rows, terms),
            false => self.micro_batches(rows, terms),
        }
    }

    /// Runs one training step.
    fn run(&mut self, rows: Rows<'_>, terms: &StepTerms) -> Result<f32, TrainerError> {
        self.prepare(rows.targets.rows()?)?;
        let ended = TrainerError::Ended { part: "engine" };
        let Some(step) = self.sessions.last_mut() else {
            return Err(ended);
        };
        let loss = step.run(&mut self.state, Some(rows), terms, &self.interrupt)?;
        loss.ok_or(ended)
    }

    /// Runs a step for each micro-batch and returns the mean loss, weighted by sample weights.
    fn micro_batches(&mut self, batch: Rows<'_>, terms: &StepTerms) -> Result<f32, TrainerError> {
        let rows = batch.targets.rows()?;
        let first = self.pending_weight()?;
        let mut counted = first;
        let mut sum = 0.0;
        for before in (0..rows).step_by(self.micro_batch.max(1)) {
            let end = rows.min(before + self.micro_batch);
            let rows = Rows {
                activations: &batch.activations.slice_rows(before, end)?,
                targets: &batch.targets.slice_rows(before, end)?,
                offset: before,
            };
            let loss = self.run(rows, terms)?;
            let now = self.pending_weight()?;
            if now > counted {
                sum += f64::from(loss) * (now - counted);
            }
            counted = now;
        }
        Ok((sum / (counted - first)) as f32)
    }

    /// Returns the total weight of samples with a pending update.
    pub(super) fn pending_weight(&self) -> Result<f64, TrainerError> {
        if !self.settings.accumulates {
            return Ok(0.0);
        }
        let count = self.state.tensor(StateSlot::COUNT).map_err(training)?;
        let count = match count.data() {
            Data::F64(count) => count.first().copied(),
            _ => count
                .as_f32()
                .and_then(|count| count.first())
                .map(|count| f64::from(*count)),
        };
        Ok(count.unwrap_or_default())
    }

    /// Applies accumulated gradients if `terms` request an update and any sample contributed.
    pub(crate) fn update(&mut self, terms: &StepTerms) -> Result<(), TrainerError> {
        if !terms.updates || self.pending_weight()? == 0.0 {
            return Ok(());
        }
        self.inference = None;
        if self.update.is_none() {
            let graph = TrainingGraph::update(&self.model, &self.settings);
            let graph = graph.map_err(|source| not_trained(&self.freeze, source))?;
            self.update = Some(Step::open(0, graph, &self.options, &self.interrupt)?);
        }
        match &mut self.update {
            Some(update) => update
                .run(&mut self.state, None, terms, &self.interrupt)
                .map(drop),
            None => Ok(()),
        }
    }

    /// Adds a batch to the moments for standardization.
    pub(crate) fn add_moments(&mut self, split: &Split, rows: BatchRows) -> Result<(), TrainerError> {
        let (activations, pending) = self.freeze_activations(split, rows)?;
        self.moments.add(&activations);
        pending.cache(activations);
        Ok(())
    }

    /// Enables standardization of features with the moments added so far.
    pub(crate) fn standardize(&mut self) {
        self.inference = None;
        self.standard = Some(std::mem::take(&mut self.moments).standard());
    }

    /// Returns the outputs of the current weights, `[rows, outputs]`.
    pub(crate) fn predict(&mut self, split: &Split, rows: BatchRows) -> Result<Tensor, TrainerError> {
        let (activations, pending) = self.freeze_activations(split, rows)?;
        if self.inference.is_none() {
            let model = self.model.merge(&self.weights()?)?;
            self.inference = Some(Forward::open(
                &model,
                self.batch,
                &self.options,
                &self.interrupt,
                "validating",
            )?);
        }
        let present = self
            .inference
            .as_mut()
            .ok_or(TrainerError::Ended { part: "engine" })?;
        let outputs = present.run(&activations)?;
        pending.cache(activations);
        Ok(in_single_precision(outputs))
    }

    /// Returns the current weights by name, or moving averages if enabled. They apply to raw features and
    /// produce raw targets.
    pub(crate) fn weights(&self) -> Result<Vec<(String, Tensor)>, TrainerError> {
        // BatchNormalization statistics have no average.
        let averaged: HashSet<&String> = self
            .slots
            .iter()
            .filter_map(|slot| slot.average_of.as_ref())
            .collect();
        let weights = self.slots.iter().filter_map(|slot| {
            let own = slot.parameter.as_ref().filter(|name| !averaged.contains(name));
            let name = slot.average_of.as_ref().or(own)?;
            Some((slot, name.clone()))
        });
        let mut weights = weights
            .map(|(slot, name)| {
                let tensor = self.state.tensor(&slot.input).map_err(training)?;
                let weight = slot.to_weight(&tensor);
                Ok((name, weight.map_err(|source| not_trained(&self.freeze, source))?))
            })
            .collect::<Result<Vec<_>, TrainerError>>()?;
        if let (Some(linear), Some(standard)) = (&self.linear, &self.standard) {
            linear.fold(standard, &mut weights)?;
        }
        if let Some(numbers) = &self.numbers {
            numbers.restore_units(&self.model, &mut weights)?;
        }
        Ok(weights)
    }

    /// Returns activations at the freeze cut in `f32`, after running fetched ones through the middle if
    /// necessary.
    pub(crate) fn freeze_activations(
        &mut self,
        split: &Split,
        rows: BatchRows,
    ) -> Result<(Tensor, PendingRows), TrainerError> {
        rows.join(|fetched| {
            let Some(fetched) = fetched else { return Ok(None) };
            let activations = match self.middle(split)? {
                None => fetched,
                Some(middle) => {
                    let activations = middle.run(&fetched)?;
                    if self.exceeds_range(&activations) {
                        return Err(TrainerError::F16Range {
                            freeze: self.freeze.clone(),
                        });
                    }
                    activations
                }
            };
            // Steps and the cache use `f32`, also if the network carries half precision here.
            Ok(Some(in_single_precision(activations)))
        })
    }

    /// Returns true if the middle computes in f16 and its result is infinite or NaN.
    fn exceeds_range(&self, activations: &Tensor) -> bool {
        self.precision == Precision::F16 && !activations.as_f32().is_none_or(all_finite)
    }

    /// Returns the layers from `split` to the freeze cut, or `None` if both are the same cut.
    fn middle(&mut self, split: &Split) -> Result<Option<&mut Forward>, TrainerError> {
        let found = self.middles.iter().position(|(known, _)| known == split);
        let entry = match found {
            Some(index) => self.middles.remove(index),
            None => {
                let options = SessionOptions {
                    precision: self.precision,
                    ..self.options.clone()
                };
                let doing = "running the middle layers";
                let layers = middle(&self.whole, split, &self.freeze)?;
                let layers = layers
                    .map(|layers| for_precision(layers, self.precision))
                    .transpose()?;
                (
                    split.clone(),
                    layers
                        .map(|model| Forward::open(&model, self.batch, &options, &self.interrupt, doing))
                        .transpose()?,
                )
            }
        };
        if self.middles.len() >= self.kept_middles {
            self.middles.remove(0);
        }
        self.middles.push(entry);
        Ok(self.middles.last_mut().and_then(|(_, middle)| middle.as_mut()))
    }

    /// Moves the step for `rows` rows to the end of the session list, opening it if necessary.
    fn prepare(&mut self, rows: usize) -> Result<(), TrainerError> {
        if let Some(found) = self.sessions.iter().position(|step| step.rows == rows) {
            let step = self.sessions.remove(found);
            self.sessions.push(step);
            return Ok(());
        }
        let graph = TrainingGraph::build(&self.model, rows, &self.settings);
        let graph = graph.map_err(|source| not_trained(&self.freeze, source))?;
        let step = Step::open(rows, graph, &self.options, &self.interrupt)?;
        if self.sessions.len() >= SESSIONS {
            self.sessions.remove(0);
        }
        self.sessions.push(step);
        Ok(())
    }
}

/// Returns the step settings and the number of rows per step for `device`.
fn steps(
    suffix: &Model,
    batch: usize,
    settings: StepSettings,
    device: Device,
) -> Result<(StepSettings, usize), TrainingError> {
    if device != Device::Cpu {
        return Ok((settings, batch));
    }
    let steps = CpuSteps::of_batch(suffix, batch, &settings)?;
    Ok((steps.settings, steps.rows))
}

/// Sets the initial values of the state to those of a checkpoint, or else to those in `remembered`, keyed by slot
/// input.
fn set_initial_values(
    graph: &mut TrainingGraph,
    checkpoint: Option<&SuffixState>,
    mut remembered: HashMap<String, Tensor>,
) -> Result<(), TrainingError> {
    for slot in &mut graph.state {
        match (checkpoint, remembered.remove(&slot.input)) {
            (Some(state), _) => state.restore(slot)?,
            (None, Some(tensor)) => slot.to_slot(&tensor).map(|held| slot.initial = held)?,
            (None, None) => {}
        }
    }
    Ok(())
}

/// Extracts the layers between `split` and the freeze cut. Returns `None` if both are the same cut.
fn middle(whole: &Model, split: &Split, freeze: &str) -> Result<Option<Model>, TrainerError> {
    match split {
        Split::None | Split::Input if whole.input_name()? == freeze => Ok(None),
        Split::None | Split::Input => Ok(Some(whole.slice(None, Some(freeze))?)),
        Split::Cut(name) if name == freeze => Ok(None),
        Split::Cut(name) => Ok(Some(whole.slice(Some(name), Some(freeze))?)),
    }
}

#[cfg(test)]
mod tests;
