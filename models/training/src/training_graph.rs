use crate::early::select_early;
use crate::mode::{Dropout, moving_statistics};
use crate::operands::Operands;
use crate::settings::StepSettings;
use crate::source::Source;
use crate::state::{SlotKind, StateBuilder, StateSlot, describe};
use crate::tape::{Form, Tape, Value};
use crate::update::{Next, Part, Scalars};
use crate::{Mask, StepMemory, TrainingError, rules};
use frostline_graph::Model;
use frostline_graph::onnx::{NodeProto, TensorProto, ValueInfo};
use frostline_graph::tensors::from_proto;

const INPUT: &str = "activations";
const TARGETS: &str = "targets";
const LOSS: &str = "loss";
const LOGITS: &str = "logits";

/// One training step of a suffix as a plain ONNX model for one batch size: forward pass, loss, backward pass, and the
/// optimizer's update.
///
/// A last, short batch gets a graph of its own: the state slots do not depend on the batch size.
#[derive(Debug, Clone)]
pub struct TrainingGraph {
    /// The step. Inputs: `input`, `targets`, the masks, and, where it updates, the scalars; outputs: `loss` and `logits`. With them, the inputs of the
    /// slots that it reads, and the outputs of those that it replaces.
    pub model: Model,
    /// The input that takes the suffix's input, `[batch, ..]`.
    pub input: String,
    /// The input that takes the targets: where the loss [takes classes](crate::Loss::takes_classes) `i64[batch]`, each at least 0 and
    /// below the number of outputs (one outside that range adds nothing to the loss); else floats `[batch, outputs]`.
    pub targets: String,
    /// The inputs that take what dropouts leave.
    pub masks: Vec<Mask>,
    /// The inputs that take scalars.
    pub scalars: Scalars,
    /// The output with the mean loss of the batch before the update, a scalar.
    pub loss: String,
    /// The output with the logits before the update, `[batch, outputs]`.
    pub logits: String,
    /// What lives from step to step: every weight of the suffix, and what the optimizer remembers.
    pub state: Vec<StateSlot>,
    /// The outputs that may be written over the inputs of their slots: whatever reads the input has run by then.
    pub in_place: Vec<String>,
}

impl TrainingGraph {
    /// Differentiates `suffix` for batches of exactly `batch` rows, as `settings` say. Where several batches make an update, the batch's
    /// gradient is added to theirs, and [`Self::update`] is the update.
    ///
    /// # Errors
    /// [`TrainingError::NoRule`] and [`TrainingError::Unsupported`] name the operator and the node that cannot be trained
    /// through; [`TrainingError::Suffix`] says why the suffix as a whole cannot be trained; [`TrainingError::Setting`] names
    /// a setting out of range.
    pub fn build(
        suffix: &Model,
        batch: usize,
        settings: impl Into<StepSettings>,
    ) -> Result<Self, TrainingError> {
        Self::write(suffix, batch, &settings.into(), Part::Step, KnownShapes::Backward)
    }

    /// What a step of [`Self::build`] takes on a CPU beside `waiting` rows of the batch, without opening a session; `None` where its shapes
    /// cannot be followed.
    pub(crate) fn memory(
        suffix: &Model,
        rows: usize,
        waiting: usize,
        settings: &StepSettings,
    ) -> Result<Option<StepMemory>, TrainingError> {
        let step = Self::write(suffix, rows, settings, Part::Step, KnownShapes::All)?;
        let update = settings
            .accumulates
            .then(|| Self::write(suffix, 1, settings, Part::Update, KnownShapes::All));
        Ok(StepMemory::of_graphs(
            &step,
            update.transpose()?.as_ref(),
            rows,
            waiting,
        ))
    }

    /// The update where several batches [make one](StepSettings::accumulates): it takes no batch, and its state is that of the graphs from
    /// [`Self::build`] with the same `settings`. It divides by what the batches before it count, so there has to be one.
    ///
    /// # Errors
    /// As [`Self::build`].
    pub fn update(suffix: &Model, settings: &StepSettings) -> Result<Self, TrainingError> {
        Self::write(suffix, 1, settings, Part::Update, KnownShapes::Backward)
    }

    fn write(
        suffix: &Model,
        batch: usize,
        settings: &StepSettings,
        part: Part,
        known: KnownShapes,
    ) -> Result<Self, TrainingError> {
        settings.check()?;
        if batch == 0 {
            return Err(TrainingError::suffix("a batch needs at least one row"));
        }
        let early = select_early(suffix, &settings.dropout)?;
        let suffix = early.as_ref().unwrap_or(suffix);
        let mut source = Source::from_suffix(suffix, batch, settings.batch_norm)?;
        source.winograd.clone_from(&settings.winograd);
        settings.loss.fits(source.classes)?;
        let mut writer = Writer::new(&source, &settings.dropout, known)?;
        let logits = writer.forward()?;
        writer.step(&logits, settings, part)
    }
}

/// Which shapes of a step whoever reads its model can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KnownShapes {
    /// For sizes; not for running.
    All,
    /// Those of the backward pass, but for what large tensors convolutions make in between.
    Backward,
}

pub(crate) struct Parameter<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: Value,
    /// How its state slot holds it.
    pub(crate) form: Form,
    /// The input of its state slot.
    pub(crate) slot: String,
    /// The shape of its state slot.
    pub(crate) slot_dims: Vec<usize>,
}

/// Writes the graph of a step, node after node of the suffix.
pub(crate) struct Writer<'a> {
    source: &'a Source<'a>,
    tape: Tape,
    state: StateBuilder,
    operands: Operands<'a>,
    parameters: Vec<Parameter<'a>>,
    dropouts: &'a [Dropout],
    masks: Vec<Mask>,
}

impl<'a> Writer<'a> {
    /// A writer that knows no weight yet.
    fn bare(source: &'a Source<'a>) -> Self {
        let mut writer = Self {
            source,
            tape: Tape::new(source.float),
            state: StateBuilder::default(),
            operands: Operands::new(source),
            parameters: Vec::new(),
            dropouts: &[],
            masks: Vec::new(),
        };
        let input = Value::new(&source.input_dims, Form::Standard, INPUT.into(), false);
        writer.operands.insert(source.input, input);
        writer
    }

    /// A writer that knows of weights only their shapes: what it writes is not for running.
    pub(crate) fn of_shapes(source: &'a Source<'a>) -> Self {
        let mut writer = Self::bare(source);
        for weight in source.suffix.parameters() {
            writer.assume_value(&weight.name);
        }
        writer
    }

    /// Takes what `node` gives for granted, where it could not be written.
    pub(crate) fn assume(&mut self, node: &'a NodeProto) {
        for name in &node.output {
            self.assume_value(name);
        }
    }

    fn assume_value(&mut self, name: &'a str) {
        let known = self.source.shapes.get(name);
        if let Some(known) = known.filter(|known| known.data_type == self.source.float.data_type()) {
            let value = Value::new(&known.dims, Form::Standard, name.to_owned(), true);
            self.operands.insert(name, value);
        }
    }

    fn new(
        source: &'a Source<'a>,
        dropouts: &'a [Dropout],
        known: KnownShapes,
    ) -> Result<Self, TrainingError> {
        let mut writer = Self::bare(source);
        writer.dropouts = dropouts;
        if known == KnownShapes::Backward {
            let input = writer.tape.emit.loosened(INPUT, &source.input_dims);
            let input = Value::new(&source.input_dims, Form::Standard, input, false);
            writer.operands.insert(source.input, input);
        }
        for tensor in source.parameters() {
            writer.add_parameter(tensor)?;
        }
        for name in moving_statistics(source.suffix, source.batch_norm)? {
            writer.add_statistic(name)?;
        }
        if writer.parameters.is_empty() {
            return Err(TrainingError::suffix(
                "it has no weights; choose an earlier freeze cut",
            ));
        }
        Ok(writer)
    }

    fn add_parameter(&mut self, proto: &'a TensorProto) -> Result<(), TrainingError> {
        let name = proto.name.as_str();
        let initial = from_proto(proto)?;
        if initial.dtype() != self.source.dtype() {
            let reason = format!(
                "weight '{name}' is {}, but its input is {}",
                initial.dtype(),
                self.source.dtype()
            );
            return Err(TrainingError::suffix(reason));
        }
        let dims = initial.shape().dims().to_vec();
        let convolved = dims.len() > 2 && self.source.is_kernel(name);
        let form = match convolved {
            true if self.source.winograd.contains(name) => Form::Taps,
            true => Form::Rows,
            false => Form::Standard,
        };
        let misshapen = |source| TrainingError::Weight {
            weight: name.into(),
            source,
        };
        let (slot, slot_dims) = self.state.weight(name, initial, form).map_err(misshapen)?;
        let tensor = match (form, dims.as_slice()) {
            (Form::Rows, [outer, channels, taps @ ..]) => {
                let rows = outer * taps.iter().product::<usize>();
                self.tape.emit.reshape(&slot, &[rows, *channels])
            }
            _ => slot.clone(),
        };
        let value = Value::new(&dims, form, tensor, true);
        self.operands.insert(name, value.clone());
        self.parameters.push(Parameter {
            name,
            value,
            form,
            slot,
            slot_dims,
        });
        Ok(())
    }

    fn add_statistic(&mut self, name: &str) -> Result<(), TrainingError> {
        let stored = self.source.constants.get(name);
        let stored =
            stored.ok_or_else(|| TrainingError::suffix(format!("the statistic '{name}' is computed")))?;
        self.state.statistic(name, from_proto(stored)?);
        Ok(())
    }

    /// Emits the forward pass and returns the logits.
    fn forward(&mut self) -> Result<Value, TrainingError> {
        self.drop_out(self.source.input);
        for node in self.source.suffix.nodes() {
            if node.standard_operator() == Some("Softmax") && node.output_name(0) == Some(self.source.output)
            {
                return Err(TrainingError::suffix(format!(
                    "it ends in a Softmax (node '{}'), so its output is probabilities, not logits; replace its head",
                    node.label()
                )));
            }
            self.node(node)?;
        }
        let mut dropouts = self.dropouts.iter();
        if let Some(left) = dropouts.find(|dropout| self.operands.get(&dropout.tensor).is_none()) {
            let reason = format!("it has no tensor '{}' at which to drop elements", left.tensor);
            return Err(TrainingError::suffix(reason));
        }
        self.operands.get(self.source.output).ok_or_else(|| {
            TrainingError::suffix(format!(
                "its output '{}' does not depend on its input",
                self.source.output
            ))
        })
    }

    /// Emits a node, unless what it gives is known before anything runs. Only where a gradient flows does it take a rule.
    pub(crate) fn node(&mut self, node: &'a NodeProto) -> Result<(), TrainingError> {
        let call = self.operands.call(&mut self.tape, node);
        let flows = call.is_differentiable() && !call.gives_others();
        if !flows && node.output.iter().all(|name| self.source.is_known(name)) {
            return Ok(());
        }
        if !flows && (call.gives_others() || !call.reads_floats() || !rules::exists(&call)) {
            self.operands.copy(&mut self.tape, &call)?;
            node.output.iter().for_each(|name| self.drop_out(name));
            return Ok(());
        }
        let output = node.output_name(0).unwrap_or_default();
        if self.source.shapes.dims(output).is_none() {
            return Err(call.no_rule());
        }
        let outputs = rules::forward(&mut self.tape, &call)?;
        for (name, output) in node.output.iter().zip(outputs) {
            self.operands.insert(name, output);
            self.drop_out(name);
        }
        Ok(())
    }

    /// Replaces the value called `name` by what the dropouts there leave of it.
    fn drop_out(&mut self, name: &'a str) {
        let there = |dropout: &&Dropout| dropout.tensor == name && dropout.ratio > 0.0;
        for dropout in self.dropouts.iter().filter(there) {
            if let Some(value) = self.operands.get(name) {
                let mask = Mask {
                    input: format!("mask/{}", self.masks.len()),
                    rows: self.source.batch,
                    dims: rules::mask_dims(&self.tape, &value),
                    float: self.source.float,
                    dropout: dropout.clone(),
                };
                let left = rules::dropout(&mut self.tape, &value, mask.input.clone());
                self.operands.insert(name, left);
                self.masks.push(mask);
            }
        }
    }

    /// Emits loss, backward pass and what becomes of the state, and puts the model together.
    fn step(
        mut self,
        logits: &Value,
        settings: &StepSettings,
        part: Part,
    ) -> Result<TrainingGraph, TrainingError> {
        let tensor = self.tape.standard(logits);
        self.tape.emit.set_strict(&tensor);
        let emit = &mut self.tape.emit;
        let loss = settings.loss.emit(emit, self.source, &tensor, TARGETS);
        let gradient = match settings.accumulates {
            true => loss.gradient,
            false => emit.div(&loss.gradient, &loss.count),
        };
        emit.rename(&tensor, LOGITS);
        emit.rename(&loss.loss, LOSS);
        self.tape.accumulate_tensor(logits, Form::Standard, gradient);
        self.tape.backward();
        let next = Next {
            tape: &mut self.tape,
            state: &mut self.state,
            parameters: &self.parameters,
            settings,
            part,
        };
        next.emit(&loss.count, &loss.loss);
        let (inputs, outputs) = self.ends(settings, part);
        let model = Model::from_proto(self.tape.emit.finish(
            self.source.suffix.opset(),
            inputs,
            outputs,
            self.operands.into_stored(),
        ))?;
        Ok(TrainingGraph {
            in_place: self.state.in_place(model.nodes()),
            model,
            input: INPUT.into(),
            targets: TARGETS.into(),
            masks: self.masks,
            scalars: Scalars::from_settings(settings),
            loss: LOSS.into(),
            logits: LOGITS.into(),
            state: self.state.slots,
        })
    }

    /// Inputs and outputs; of the inputs, those stay that something reads.
    fn ends(&self, settings: &StepSettings, part: Part) -> (Vec<ValueInfo>, Vec<ValueInfo>) {
        let dtype = self.source.dtype();
        let (kind, dims) = settings.loss.targets(self.source);
        let mut inputs = vec![
            describe(INPUT, dtype, &self.source.input_dims),
            describe(TARGETS, kind, &dims),
        ];
        inputs.extend(
            self.masks
                .iter()
                .map(|mask| describe(&mask.input, dtype, &mask.dims)),
        );
        let scalars = Scalars::from_settings(settings);
        inputs.extend(scalars.names().map(|name| describe(name, dtype, &[])));
        let mut outputs = match part {
            Part::Update => Vec::new(),
            Part::Step => vec![
                describe(LOSS, dtype, &[]),
                describe(LOGITS, dtype, &[self.source.batch, self.source.classes]),
            ],
        };
        let gathers = settings.accumulates && part == Part::Step;
        for (slot, [input, output]) in self.state.described() {
            inputs.push(input);
            let replaced = match slot.kind {
                SlotKind::Statistic => part == Part::Step,
                SlotKind::Gathered | SlotKind::Count => true,
                _ => !gathers,
            };
            outputs.extend(replaced.then_some(output));
        }
        (inputs, outputs)
    }
}
