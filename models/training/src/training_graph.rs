use crate::call::NodeCall;
use crate::early::select_early;
use crate::mode::{Dropout, moving_statistics};
use crate::operands::Operands;
use crate::parameter::Parameter;
use crate::settings::StepSettings;
use crate::source::SourceGraph;
use crate::state::{SlotKind, StateBuilder, StateSlot, describe};
use crate::tape::{Tape, TensorForm, Value};
use crate::update::{GraphKind, Scalars, StateUpdate};
use crate::{DropoutMask, TrainingError, rules};
use frostline_graph::Model;
use frostline_graph::onnx::data_type::{self, is_float};
use frostline_graph::onnx::{NodeProto, TensorProto, ValueInfo};
use frostline_graph::tensors::{from_proto, to_float};
use frostline_tensor::Tensor;

const INPUT: &str = "activations";
const TARGETS: &str = "targets";
const LOSS: &str = "loss";
const LOGITS: &str = "logits";

/// Training step as a plain ONNX model for a fixed batch size. The model contains forward pass, loss,
/// backward pass and optimizer update.
///
/// A short last batch needs a separate graph. It can use the same state, because state slots do not depend on
/// the batch size.
#[derive(Debug, Clone)]
pub struct TrainingGraph {
    /// Model of the step. The inputs are `input`, `targets`, the masks, the scalars if the step updates, and
    /// the inputs of the slots to read. The outputs are `loss`, `logits` and the outputs of the slots to
    /// replace.
    pub model: Model,
    /// Input for the activations that enter the suffix, `[batch, ..]`.
    pub input: String,
    /// Input for the targets: `i64[batch]` if the loss [takes classes](crate::Loss::takes_classes), and
    /// floats `[batch, outputs]` otherwise. Valid classes are 0 to the number of outputs minus 1. Other
    /// classes do not contribute to the loss.
    pub targets: String,
    /// Inputs for dropout masks.
    pub masks: Vec<DropoutMask>,
    /// Inputs for the learning rate and the decay of the average.
    pub scalars: Scalars,
    /// Output with the mean loss of the batch before the update, a scalar.
    pub loss: String,
    /// Output with the logits before the update, `[batch, outputs]`.
    pub logits: String,
    /// State between steps: all weights of the suffix and the optimizer state.
    pub state: Vec<StateSlot>,
    /// Outputs that may be written over the inputs of the same slot, because all readers of the input run
    /// earlier.
    pub in_place: Vec<String>,
}

impl TrainingGraph {
    /// Differentiates `suffix` for batches of exactly `batch` rows with these settings. If several batches
    /// make an update, the step only adds the gradient of the batch, and [`Self::update`] is the update.
    ///
    /// # Errors
    /// Returns [`TrainingError::NoRule`] or [`TrainingError::Unsupported`] with the operator and the node
    /// that cannot be trained, [`TrainingError::Suffix`] or [`TrainingError::Weight`] if the suffix cannot be
    /// trained for another reason, [`TrainingError::Setting`] if a setting is out of range, and
    /// [`TrainingError::Graph`] if the suffix is invalid.
    pub fn build(
        suffix: &Model,
        batch: usize,
        settings: impl Into<StepSettings>,
    ) -> Result<Self, TrainingError> {
        Self::write(
            suffix,
            batch,
            &settings.into(),
            GraphKind::Step,
            VisibleShapes::Backward,
        )
    }

    /// Writes the graph with `rows` rows and the shapes of all tensors, to compute sizes. It is not executed.
    pub(crate) fn with_all_shapes(
        suffix: &Model,
        rows: usize,
        settings: &StepSettings,
        part: GraphKind,
    ) -> Result<Self, TrainingError> {
        Self::write(suffix, rows, settings, part, VisibleShapes::All)
    }

    /// Builds the update for several batches ([`StepSettings::accumulates`]). The update has no batch input,
    /// and the same state as the graphs from [`Self::build`] with the same `settings`. It divides by the
    /// weight of the accumulated samples, so a batch must come first.
    ///
    /// # Errors
    /// Returns the errors of [`Self::build`].
    pub fn update(suffix: &Model, settings: &StepSettings) -> Result<Self, TrainingError> {
        Self::write(suffix, 1, settings, GraphKind::Update, VisibleShapes::Backward)
    }

    fn write(
        suffix: &Model,
        batch: usize,
        settings: &StepSettings,
        part: GraphKind,
        known: VisibleShapes,
    ) -> Result<Self, TrainingError> {
        settings.check()?;
        if batch == 0 {
            return Err(TrainingError::suffix("the batch size must be positive"));
        }
        let early = select_early(suffix, &settings.dropout)?;
        let suffix = early.as_ref().unwrap_or(suffix);
        let mut source = SourceGraph::from_suffix(suffix, batch, settings.batch_norm)?;
        source.winograd.clone_from(&settings.winograd);
        settings.loss.fits(source.classes)?;
        let mut writer = GraphWriter::new(&source, &settings.dropout, known)?;
        let logits = writer.forward()?;
        writer.step(&logits, settings, part)
    }
}

/// Shapes that shape inference on the model can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VisibleShapes {
    /// All shapes.
    All,
    /// Shapes of the backward pass, except for large temporary tensors of convolutions.
    Backward,
}

/// Writes the graph of a step node by node.
pub(crate) struct GraphWriter<'a> {
    source: &'a SourceGraph<'a>,
    tape: Tape,
    state: StateBuilder,
    operands: Operands<'a>,
    parameters: Vec<Parameter<'a>>,
    dropouts: &'a [Dropout],
    masks: Vec<DropoutMask>,
}

impl<'a> GraphWriter<'a> {
    /// Creates a writer without weights.
    fn bare(source: &'a SourceGraph<'a>) -> Self {
        let mut writer = Self {
            source,
            tape: Tape::new(source.float),
            state: StateBuilder::default(),
            operands: Operands::new(source),
            parameters: Vec::new(),
            dropouts: &[],
            masks: Vec::new(),
        };
        let input = Value::new(&source.input_dims, TensorForm::Standard, INPUT.into(), false);
        writer.operands.insert(source.input, input);
        writer
    }

    /// Creates a writer that only knows the shapes of weights. The resulting graph is not executable.
    pub(crate) fn of_shapes(source: &'a SourceGraph<'a>) -> Self {
        let mut writer = Self::bare(source);
        for weight in source.suffix.parameters() {
            writer.assume_value(&weight.name);
        }
        writer
    }

    /// Assumes that the outputs of `node` exist, although the node could not be written.
    pub(crate) fn assume(&mut self, node: &'a NodeProto) {
        for name in &node.output {
            self.assume_value(name);
        }
    }

    fn assume_value(&mut self, name: &'a str) {
        let known = self.source.shapes.get(name);
        if let Some(known) = known.filter(|known| is_float(known.data_type)) {
            let value = Value::new(&known.dims, TensorForm::Standard, name.to_owned(), true);
            self.operands.insert(name, value);
        }
    }

    fn new(
        source: &'a SourceGraph<'a>,
        dropouts: &'a [Dropout],
        known: VisibleShapes,
    ) -> Result<Self, TrainingError> {
        let mut writer = Self::bare(source);
        writer.dropouts = dropouts;
        if known == VisibleShapes::Backward {
            let input = writer.tape.emit.reshape_hidden(INPUT, &source.input_dims);
            let input = Value::new(&source.input_dims, TensorForm::Standard, input, false);
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
        let initial = self.initial(proto)?;
        let dims = initial.shape().dims().to_vec();
        let convolved = dims.len() > 2 && self.source.is_kernel(name);
        let form = match convolved {
            true if self.source.winograd.contains(name) => TensorForm::Taps,
            true => TensorForm::Rows,
            false => TensorForm::Standard,
        };
        let (slot, slot_dims) =
            self.state
                .weight(name, initial, form)
                .map_err(|source| TrainingError::Weight {
                    weight: name.into(),
                    source,
                })?;
        let tensor = match (form, dims.as_slice()) {
            (TensorForm::Rows, [outer, channels, taps @ ..]) => {
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

    /// Returns a stored tensor in the type in which the suffix is trained.
    fn initial(&self, proto: &TensorProto) -> Result<Tensor, TrainingError> {
        let stored = from_proto(proto)?;
        to_float(&stored, self.source.dtype()).ok_or_else(|| {
            TrainingError::suffix(format!(
                "'{}' is {}, not floating point",
                proto.name,
                stored.dtype()
            ))
        })
    }

    fn add_statistic(&mut self, name: &str) -> Result<(), TrainingError> {
        let stored = self.source.constants.get(name);
        let stored = stored.ok_or_else(|| {
            TrainingError::suffix(format!("the statistic '{name}' is computed, not stored"))
        })?;
        self.state.statistic(name, self.initial(stored)?);
        Ok(())
    }

    fn forward(&mut self) -> Result<Value, TrainingError> {
        self.drop_out(self.source.input);
        for node in self.source.suffix.nodes() {
            if node.standard_operator() == Some("Softmax") && node.output_name(0) == Some(self.source.output)
            {
                return Err(TrainingError::suffix(format!(
                    "it ends in a Softmax (node '{}') and returns probabilities instead of logits; replace its head",
                    node.label()
                )));
            }
            self.node(node)?;
        }
        let mut dropouts = self.dropouts.iter();
        if let Some(left) = dropouts.find(|dropout| self.operands.get(&dropout.tensor).is_none()) {
            let reason = format!("it has no tensor '{}' for dropout", left.tensor);
            return Err(TrainingError::suffix(reason));
        }
        self.operands.get(self.source.output).ok_or_else(|| {
            TrainingError::suffix(format!(
                "output '{}' does not depend on the input",
                self.source.output
            ))
        })
    }

    /// Emits a node, unless the outputs are known when the graph is written. A rule is only needed if a
    /// gradient flows through the node.
    pub(crate) fn node(&mut self, node: &'a NodeProto) -> Result<(), TrainingError> {
        let call = self.operands.call(&mut self.tape, node);
        if call.is_differentiable() && self.quantization(&call)? {
            return Ok(());
        }
        let flows = call.is_differentiable() && !rules::has_no_gradient(&call);
        if flows && call.has_other_type() {
            return Err(call.no_rule());
        }
        if !flows && node.output.iter().all(|name| self.source.is_known(name)) {
            return Ok(());
        }
        if !flows && (call.has_other_type() || !call.reads_floats() || !rules::exists(&call)) {
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

    /// Emits a node that quantizes values, dequantizes them or moves quantized elements. Returns false for
    /// all other nodes.
    fn quantization(&mut self, call: &NodeCall<'a>) -> Result<bool, TrainingError> {
        let node = call.node;
        let Some(output) = node.output_name(0) else {
            return Ok(false);
        };
        let held = node.input_name(0).and_then(|name| self.operands.scale(name));
        match (node.standard_operator(), held) {
            (Some(operator @ ("QuantizeLinear" | "DynamicQuantizeLinear")), None) => {
                let (value, outputs) = rules::quantized(&mut self.tape, call)?;
                let names = if operator == "QuantizeLinear" {
                    &node.input
                } else {
                    &node.output
                };
                self.operands.insert_quantized(output, value, scale_of(names));
                self.operands.insert_outputs(node, &outputs, 1);
            }
            (Some("DequantizeLinear"), Some(scale)) => {
                if scale != scale_of(&node.input) {
                    let reason = "its scale and zero point differ from the preceding quantization";
                    return Err(call.unsupported(reason));
                }
                if let Some(value) = call.optional(0) {
                    self.operands.insert(output, value);
                }
            }
            (_, Some(scale)) if call.node.rearranges() => {
                if let Some(value) = rules::forward(&mut self.tape, call)?.pop() {
                    self.operands.insert_quantized(output, value, scale);
                }
            }
            (_, Some(_)) => return Err(call.no_rule()),
            // Truth values, indices and shapes have no gradient, but other results represent numbers.
            (_, None)
                if node.input.iter().any(|name| self.operands.scale(name).is_some())
                    && !matches!(call.output_type(), Some(data_type::BOOL | data_type::INT64)) =>
            {
                return Err(call.no_rule());
            }
            (_, None) => return Ok(false),
        }
        self.drop_out(output);
        Ok(true)
    }

    fn drop_out(&mut self, name: &'a str) {
        for dropout in self
            .dropouts
            .iter()
            .filter(|dropout| dropout.tensor == name && dropout.ratio > 0.0)
        {
            if let Some(value) = self.operands.get(name) {
                let mask = DropoutMask {
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

    /// Emits loss, backward pass and state updates, and assembles the model.
    fn step(
        mut self,
        logits: &Value,
        settings: &StepSettings,
        part: GraphKind,
    ) -> Result<TrainingGraph, TrainingError> {
        let tensor = self.tape.standard(logits);
        self.tape.emit.show_shapes(&tensor);
        let emit = &mut self.tape.emit;
        let loss = settings.loss.emit(emit, self.source, &tensor, TARGETS);
        let gradient = match settings.accumulates {
            true => loss.gradient,
            false => emit.div(&loss.gradient, &loss.count),
        };
        emit.rename(&tensor, LOGITS);
        emit.rename(&loss.loss, LOSS);
        self.tape
            .accumulate_tensor(logits, TensorForm::Standard, gradient);
        self.tape.backward();
        let next = StateUpdate {
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

    /// Returns all possible inputs, and the outputs. Unused inputs are removed later.
    fn ends(&self, settings: &StepSettings, part: GraphKind) -> (Vec<ValueInfo>, Vec<ValueInfo>) {
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
            GraphKind::Update => Vec::new(),
            GraphKind::Step => vec![
                describe(LOSS, dtype, &[]),
                describe(LOGITS, dtype, &[self.source.batch, self.source.classes]),
            ],
        };
        let gathers = settings.accumulates && part == GraphKind::Step;
        for (slot, [input, output]) in self.state.described() {
            inputs.push(input);
            let replaced = match slot.kind {
                SlotKind::Statistic => part == GraphKind::Step,
                SlotKind::GradientSum | SlotKind::Count => true,
                _ => !gathers,
            };
            outputs.extend(replaced.then_some(output));
        }
        (inputs, outputs)
    }
}

/// Returns the names of scale and zero point among the inputs or outputs of a node.
fn scale_of(names: &[String]) -> [Option<&str>; 2] {
    [1, 2].map(|slot| names.get(slot).map(String::as_str))
}
