use crate::dedicated::Dedicated;
use crate::error::ComputeError;
use crate::forward::{Forward, has_bf16};
use crate::standard::{LinearHead, Moments, Standard};
use crate::state::SuffixState;
use crate::step::{StepRows, StepSession, StepTerms, resident};
use crate::targets::Targets;
use frostline_engine::{Device, Interrupt, ResidentState, SessionOptions};
use frostline_graph::Model;
use frostline_graph::tensors::in_single_precision;
use frostline_quantization::for_precision;
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
pub const KEPT_MIDDLES: usize = 3;

/// The trainable layers after the freeze cut, with the middle before them if the split is earlier.
pub struct Suffix {
    /// The state is taken when the suffix is opened.
    parts: SuffixParts,
    interrupt: Interrupt,
    moments: Moments,
    /// Standardization of features, once known.
    standard: Option<Standard>,
    /// Maximum number of rows in a step.
    micro_batch: usize,
    /// Middles by split, least recently used first. The freeze cut needs no middle.
    middles: Vec<(Split, Option<Forward>)>,
    state: ResidentState,
    slots: Vec<StateSlot>,
    /// Step sessions, least recently used first.
    sessions: Vec<StepSession>,
    /// The weight update for accumulated gradients, opened on first use.
    update: Option<StepSession>,
    /// The forward pass with the current weights, opened on first use.
    inference: Option<Forward>,
}

/// Components and settings of a suffix.
#[derive(Clone)]
pub struct SuffixParts {
    /// The whole network with the new head.
    pub whole: Model,
    /// The layers from the freeze cut to the logits.
    pub suffix: Model,
    /// Name of the freeze cut.
    pub freeze: String,
    /// The linear classifier, if features are standardized.
    pub linear: Option<LinearHead>,
    /// Settings of the training step. `dropout` names tensors of `suffix`.
    pub settings: StepSettings,
    /// Number of outputs per row.
    pub outputs: usize,
    /// Standardization of numeric targets, if the targets are numeric.
    pub numbers: Option<Standard>,
    /// Number of rows in a full batch.
    pub batch: usize,
    /// Maximum number of cached middles; at least 1.
    pub middles: usize,
    /// Device and threads.
    pub options: SessionOptions,
    /// Precision of the middle. Trained layers are always computed in full precision.
    pub precision: Precision,
    /// The state to resume from; `None` starts from the weights in `suffix`.
    pub state: Option<Arc<SuffixState>>,
}

impl Suffix {
    /// Opens the suffix and its training step. `interrupt` ends a computation early.
    ///
    /// # Errors
    /// Returns [`ComputeError::Training`] if the layers cannot be trained or do not match the state, and the errors
    /// of [`Forward::open`].
    pub fn open(parts: SuffixParts, interrupt: &Interrupt) -> Result<Self, ComputeError> {
        Self::restore(parts, HashMap::new(), interrupt)
    }

    /// Switches to a larger suffix with more trainable layers. Weights that were trained before keep the
    /// optimizer state.
    ///
    /// # Errors
    /// Returns the errors of [`Suffix::open`].
    pub fn unfreeze(&mut self, parts: SuffixParts) -> Result<(), ComputeError> {
        let slots = self.slots.iter();
        let remembered = slots
            .map(|slot| Ok((slot.input.clone(), self.weight(slot)?)))
            .collect::<Result<_, ComputeError>>()?;
        self.sessions.clear();
        self.middles.clear();
        self.inference = None;
        *self = Self::restore(parts, remembered, &self.interrupt.clone())?;
        Ok(())
    }

    /// Opens a suffix with initial values from `remembered`, keyed by slot input.
    fn restore(
        mut parts: SuffixParts,
        remembered: HashMap<String, Tensor>,
        interrupt: &Interrupt,
    ) -> Result<Self, ComputeError> {
        let from = parts.state.take();
        let built = build(&mut parts, from.as_deref(), remembered);
        let (mut graph, micro_batch) = built.map_err(ComputeError::not_trained(&parts.freeze))?;
        let state = ResidentState::new(resident(&mut graph.state)).map_err(ComputeError::training)?;
        let slots = std::mem::take(&mut graph.state);
        let sessions = vec![StepSession::open(micro_batch, graph, &parts.options, interrupt)?];
        if has_bf16(&parts.suffix)? {
            // Such layers are trained in f32. Without this, a missing operator would be found after an epoch.
            let doing = "opening the network";
            Forward::open(&parts.suffix, parts.batch, &parts.options, interrupt, doing)?;
        }
        Ok(Self {
            parts,
            interrupt: interrupt.clone(),
            moments: Moments::default(),
            standard: from.and_then(|from| from.standard.clone()),
            micro_batch,
            middles: Vec::new(),
            state,
            slots,
            sessions,
            update: None,
            inference: None,
        })
    }

    /// Opens a suffix on a dedicated thread. If `split` is set, the middle for it is opened as well.
    ///
    /// # Errors
    /// Returns the errors of [`Suffix::open`], [`Suffix::prepare_middle`] and [`Dedicated::open`].
    pub async fn start(parts: SuffixParts, split: Option<&Split>) -> Result<Dedicated<Self>, ComputeError> {
        let split = split.cloned();
        Dedicated::open(move |interrupt| {
            let mut suffix = Self::open(parts, interrupt)?;
            split.map_or(Ok(()), |split| suffix.prepare_middle(&split))?;
            Ok(suffix)
        })
        .await
    }

    /// Opens the middle of `split` in advance.
    ///
    /// # Errors
    /// Returns [`ComputeError::Graph`] if the network has no layers from `split` to the freeze cut, and the errors
    /// of [`Forward::open`].
    pub fn prepare_middle(&mut self, split: &Split) -> Result<(), ComputeError> {
        self.middle(split).map(|_| ())
    }

    /// Trains on the activations of a batch at the freeze cut, `[rows, ..]`, and returns the mean loss before the
    /// update.
    ///
    /// # Errors
    /// Returns [`ComputeError::Training`] if the layers cannot be trained with this number of rows,
    /// [`ComputeError::CutMix`] if the activations cannot be mixed, and [`ComputeError::Engine`] if the engine
    /// fails.
    pub fn train(
        &mut self,
        activations: &Tensor,
        targets: Targets,
        terms: &StepTerms,
    ) -> Result<f32, ComputeError> {
        self.inference = None;
        let loss = self.step(activations, targets, terms)?;
        self.update(terms)?;
        Ok(loss)
    }

    /// Runs the training steps of a batch and returns the mean loss.
    fn step(
        &mut self,
        activations: &Tensor,
        targets: Targets,
        terms: &StepTerms,
    ) -> Result<f32, ComputeError> {
        let standard = self.standard.as_ref();
        let standardized = standard.map(|standard| standard.apply(activations));
        let standardized = standardized.transpose()?;
        let activations: &Tensor = standardized.as_ref().unwrap_or(activations);
        let mut targets = targets.tensor(&self.parts.settings.loss, self.parts.outputs)?;
        if let Some(numbers) = &self.parts.numbers {
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
        let rows = StepRows {
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
    fn run(&mut self, rows: StepRows<'_>, terms: &StepTerms) -> Result<f32, ComputeError> {
        let count = rows.targets.rows()?;
        let parts = &self.parts;
        let interrupt = &self.interrupt;
        let found = self.sessions.iter().position(|step| step.rows == count);
        let step = most_recent(&mut self.sessions, SESSIONS, found, || {
            let graph = TrainingGraph::build(&parts.suffix, count, &parts.settings);
            let graph = graph.map_err(ComputeError::not_trained(&parts.freeze))?;
            StepSession::open(count, graph, &parts.options, interrupt)
        })?;
        let loss = step.run(&mut self.state, Some(rows), terms, &self.interrupt)?;
        loss.ok_or(ComputeError::Ended { part: "engine" })
    }

    /// Runs a step for each micro-batch and returns the mean loss, weighted by sample weights.
    fn micro_batches(&mut self, batch: StepRows<'_>, terms: &StepTerms) -> Result<f32, ComputeError> {
        let rows = batch.targets.rows()?;
        let first = self.pending_weight()?;
        let mut counted = first;
        let mut sum = 0.0;
        for before in (0..rows).step_by(self.micro_batch.max(1)) {
            let end = rows.min(before + self.micro_batch);
            let rows = StepRows {
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
    fn pending_weight(&self) -> Result<f64, ComputeError> {
        if !self.parts.settings.accumulates {
            return Ok(0.0);
        }
        let count = self.tensor(StateSlot::COUNT)?;
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
    ///
    /// # Errors
    /// Returns the errors of [`Suffix::train`].
    pub fn update(&mut self, terms: &StepTerms) -> Result<(), ComputeError> {
        if !terms.updates || self.pending_weight()? == 0.0 {
            return Ok(());
        }
        self.inference = None;
        let update = match &mut self.update {
            Some(update) => update,
            None => {
                let graph = TrainingGraph::update(&self.parts.suffix, &self.parts.settings);
                let graph = graph.map_err(ComputeError::not_trained(&self.parts.freeze))?;
                let update = StepSession::open(0, graph, &self.parts.options, &self.interrupt)?;
                self.update.insert(update)
            }
        };
        update
            .run(&mut self.state, None, terms, &self.interrupt)
            .map(drop)
    }

    /// Adds the activations of a batch at the freeze cut to the moments for standardization.
    pub fn add_moments(&mut self, activations: &Tensor) {
        self.moments.add(activations);
    }

    /// Enables standardization of features with the moments added so far.
    pub fn standardize(&mut self) {
        self.inference = None;
        self.standard = Some(std::mem::take(&mut self.moments).standard());
    }

    /// Returns the outputs of the current weights, `[rows, outputs]`, for activations at the freeze cut.
    ///
    /// # Errors
    /// Returns the errors of [`Suffix::weights`], [`Forward::open`] and [`Forward::run`].
    pub fn predict(&mut self, activations: &Tensor) -> Result<Tensor, ComputeError> {
        let inference = match &mut self.inference {
            Some(inference) => inference,
            None => {
                let model = self.parts.suffix.merge(&self.weights()?)?;
                let SuffixParts { batch, options, .. } = &self.parts;
                let opened = Forward::open(&model, *batch, options, &self.interrupt, "validating")?;
                self.inference.insert(opened)
            }
        };
        Ok(in_single_precision(inference.run(activations)?))
    }

    /// Returns the current weights by name, or moving averages if enabled. They apply to raw features and
    /// produce raw targets.
    ///
    /// # Errors
    /// Returns [`ComputeError::Engine`] or [`ComputeError::Training`] if the state cannot be read.
    pub fn weights(&self) -> Result<Vec<(String, Tensor)>, ComputeError> {
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
            .map(|(slot, name)| Ok((name, self.weight(slot)?)))
            .collect::<Result<Vec<_>, ComputeError>>()?;
        if let (Some(linear), Some(standard)) = (&self.parts.linear, &self.standard) {
            linear.fold(standard, &mut weights)?;
        }
        if let Some(numbers) = &self.parts.numbers {
            numbers.restore_units(&self.parts.suffix, &mut weights)?;
        }
        Ok(weights)
    }

    /// Copies the state for the next step.
    ///
    /// # Errors
    /// Returns [`ComputeError::Engine`] if the state cannot be read.
    pub fn state(&self) -> Result<SuffixState, ComputeError> {
        let updated = self.pending_weight()? == 0.0;
        let slots = self.slots.iter().filter(|slot| !(updated && slot.is_pending()));
        Ok(SuffixState {
            slots: slots
                .map(|slot| Ok((slot.input.clone(), self.tensor(&slot.input)?)))
                .collect::<Result<_, ComputeError>>()?,
            standard: self.standard.clone(),
        })
    }

    /// Copies the tensor of the slot with this input.
    fn tensor(&self, input: &str) -> Result<Tensor, ComputeError> {
        self.state.tensor(input).map_err(ComputeError::training)
    }

    /// Copies the tensor of `slot` in the form of a weight.
    fn weight(&self, slot: &StateSlot) -> Result<Tensor, ComputeError> {
        let weight = slot.to_weight(&self.tensor(&slot.input)?);
        weight.map_err(ComputeError::not_trained(&self.parts.freeze))
    }

    /// Returns the activations at the freeze cut in `f32` for `rows` at `split`, `[rows, ..]`.
    ///
    /// # Errors
    /// Returns [`ComputeError::F16Range`] if the middle computes in f16 and its result is infinite or NaN, and the
    /// errors of [`Suffix::prepare_middle`] and [`Forward::run`].
    pub fn activations(&mut self, split: &Split, rows: Tensor) -> Result<Tensor, ComputeError> {
        let activations = match self.middle(split)? {
            None => rows,
            Some(middle) => {
                let activations = middle.run(&rows)?;
                if self.exceeds_range(&activations) {
                    return Err(ComputeError::F16Range {
                        freeze: self.parts.freeze.clone(),
                    });
                }
                activations
            }
        };
        // Steps and the cache use `f32`, also if the network carries half precision here.
        Ok(in_single_precision(activations))
    }

    /// Returns true if the middle computes in f16 and its result is infinite or NaN.
    fn exceeds_range(&self, activations: &Tensor) -> bool {
        self.parts.precision == Precision::F16 && !activations.as_f32().is_none_or(all_finite)
    }

    /// Returns the layers from `split` to the freeze cut, or `None` if both are the same cut.
    fn middle(&mut self, split: &Split) -> Result<Option<&mut Forward>, ComputeError> {
        let parts = &self.parts;
        let interrupt = &self.interrupt;
        let found = self.middles.iter().position(|(known, _)| known == split);
        let (_, middle) = most_recent(&mut self.middles, parts.middles, found, || {
            let Some(layers) = middle(&parts.whole, split, &parts.freeze)? else {
                return Ok((split.clone(), None));
            };
            let options = SessionOptions {
                precision: parts.precision,
                ..parts.options.clone()
            };
            let layers = for_precision(layers, parts.precision)?;
            let doing = "running the middle layers";
            let opened = Forward::open(&layers, parts.batch, &options, interrupt, doing)?;
            Ok((split.clone(), Some(opened)))
        })?;
        Ok(middle.as_mut())
    }
}

/// Moves the entry at the index `found` to the end of a list, or adds the result of `open`. A list has up to `most`
/// entries. The first entry, which was not used for the longest time, is removed to make room.
fn most_recent<T>(
    list: &mut Vec<T>,
    most: usize,
    found: Option<usize>,
    open: impl FnOnce() -> Result<T, ComputeError>,
) -> Result<&mut T, ComputeError> {
    let entry = match found {
        Some(index) => list.remove(index),
        None => open()?,
    };
    if list.len() >= most {
        list.remove(0);
    }
    list.push(entry);
    list.last_mut().ok_or(ComputeError::Ended { part: "engine" })
}

/// Builds the training step with the initial values of a checkpoint, or else of `remembered`, keyed by slot input.
/// On a CPU, this adjusts the settings to micro-batches. Returns the step with the number of rows.
fn build(
    parts: &mut SuffixParts,
    checkpoint: Option<&SuffixState>,
    mut remembered: HashMap<String, Tensor>,
) -> Result<(TrainingGraph, usize), TrainingError> {
    let mut rows = parts.batch;
    if parts.options.device == Device::Cpu {
        let steps = CpuSteps::of_batch(&parts.suffix, parts.batch, &parts.settings)?;
        (parts.settings, rows) = (steps.settings, steps.rows);
    }
    let mut graph = TrainingGraph::build(&parts.suffix, rows, &parts.settings)?;
    for slot in &mut graph.state {
        match (checkpoint, remembered.remove(&slot.input)) {
            (Some(state), _) => state.restore(slot)?,
            (None, Some(tensor)) => slot.to_slot(&tensor).map(|held| slot.initial = held)?,
            (None, None) => {}
        }
    }
    Ok((graph, rows))
}

/// Extracts the layers between `split` and the freeze cut. Returns `None` if both are the same cut.
fn middle(whole: &Model, split: &Split, freeze: &str) -> Result<Option<Model>, ComputeError> {
    match split {
        Split::None | Split::Input if whole.input_name()? == freeze => Ok(None),
        Split::None | Split::Input => Ok(Some(whole.slice(None, Some(freeze))?)),
        Split::Cut(name) if name == freeze => Ok(None),
        Split::Cut(name) => Ok(Some(whole.slice(Some(name), Some(freeze))?)),
    }
}

#[cfg(test)]
mod tests;
