use crate::session::extract_output;
use crate::{Device, EngineError, Interrupt, Session, TensorSlot, values};
use frostline_tensor::Tensor;
use ort::session::{IoBinding, SessionOutputs};
use ort::value::{DynValue, ValueType};

/// Tensor that each step reads and replaces, such as a weight.
#[derive(Debug, Clone, PartialEq)]
pub struct ResidentSlot {
    /// The input that reads the tensor.
    pub input: String,
    /// The output that becomes the next step's input.
    pub output: String,
    /// The value for the first step.
    pub initial: Tensor,
}

/// Tensors that stay in ONNX Runtime, on the session's device, between calls to [`Session::step`].
///
/// Any session whose inputs and outputs have the slots' names can continue with the state. For example, a
/// graph for the short last batch of an epoch uses it without a copy. Slots may be missing in a session.
/// Missing inputs are not passed, and slots without an output keep the current value.
#[derive(Debug)]
pub struct ResidentState {
    slots: Vec<Slot>,
    /// True if a step failed while writing in place, so that only some tensors may be updated.
    partially_updated: bool,
}

#[derive(Debug)]
struct Slot {
    input: String,
    output: String,
    value: DynValue,
}

impl ResidentState {
    /// Creates a state from these tensors, which are copied to memory that steps can overwrite.
    ///
    /// # Errors
    /// Returns the errors of [`library_version`](crate::library_version) if the library cannot be loaded,
    /// [`EngineError::InputCount`] if the name of an input or output occurs twice, and
    /// [`EngineError::OutOfMemory`] or [`EngineError::Internal`] if a tensor cannot be copied.
    pub fn new(slots: impl IntoIterator<Item = ResidentSlot>) -> Result<Self, EngineError> {
        crate::library::environment()?;
        let mut state = Self {
            slots: Vec::new(),
            partially_updated: false,
        };
        for slot in slots {
            if state
                .slots
                .iter()
                .any(|other| other.input == slot.input || other.output == slot.output)
            {
                return Err(EngineError::InputCount {
                    name: slot.input,
                    times: 2,
                });
            }
            state.slots.push(Slot {
                value: values::copy_to_value(&slot.initial)
                    .map_err(EngineError::internal("allocate the state"))?,
                input: slot.input,
                output: slot.output,
            });
        }
        Ok(state)
    }

    /// Copies the tensor that the next step reads as the input `name`.
    ///
    /// # Errors
    /// Returns [`EngineError::UnknownInput`] if no slot has this input, [`EngineError::Internal`] if the
    /// device cannot be read, and [`EngineError::Run`] if a step that writes in place has failed.
    pub fn tensor(&self, name: &str) -> Result<Tensor, EngineError> {
        self.check_whole()?;
        let slot = self.slots.iter().find(|slot| slot.input == name);
        let slot = slot.ok_or_else(|| EngineError::UnknownInput {
            name: name.to_owned(),
            known: self.inputs().join(", "),
        })?;
        values::extract(&slot.input, &slot.value)
    }

    /// Copies all tensors together with the input names in creation order.
    #[cfg(test)]
    pub(crate) fn tensors(&self) -> Result<Vec<(String, Tensor)>, EngineError> {
        self.check_whole()?;
        self.slots
            .iter()
            .map(|slot| Ok((slot.input.clone(), values::extract(&slot.input, &slot.value)?)))
            .collect()
    }

    fn check_whole(&self) -> Result<(), EngineError> {
        match self.partially_updated {
            false => Ok(()),
            true => Err(EngineError::Run {
                reason:
                    "an earlier step failed before all weights were updated; start again from a checkpoint"
                        .to_owned(),
            }),
        }
    }

    fn inputs(&self) -> Vec<&str> {
        self.slots.iter().map(|slot| slot.input.as_str()).collect()
    }

    /// Removes the state's new values from a step's outputs.
    fn successors(&self, outputs: &mut SessionOutputs<'_>) -> Result<Vec<Option<DynValue>>, EngineError> {
        self.slots
            .iter()
            .map(|slot| {
                let Some(value) = outputs.remove(&slot.output) else {
                    return Ok(None);
                };
                if same_type(&value, &slot.value) {
                    return Ok(Some(value));
                }
                Err(EngineError::OutputType {
                    name: slot.output.clone(),
                    actual: value.dtype().to_string(),
                })
            })
            .collect()
    }

    fn replace(&mut self, values: Vec<Option<DynValue>>) {
        for (slot, value) in self.slots.iter_mut().zip(values) {
            if let Some(value) = value {
                slot.value = value;
            }
        }
    }
}

fn has(session: &[TensorSlot], name: &str) -> bool {
    session.iter().any(|slot| slot.name == name)
}

fn same_type(left: &DynValue, right: &DynValue) -> bool {
    match (left.dtype(), right.dtype()) {
        (ValueType::Tensor { ty: a, shape: x, .. }, ValueType::Tensor { ty: b, shape: y, .. }) => {
            a == b && x == y
        }
        _ => false,
    }
}

impl Session {
    /// Makes steps on the CPU overwrite the tensors that these outputs replace. All operators that read such
    /// a tensor must run before the output is written. On other devices, steps allocate new memory.
    pub fn write_in_place(&mut self, outputs: impl IntoIterator<Item = String>) {
        if self.device == Device::Cpu {
            self.in_place = outputs.into_iter().collect();
        }
    }

    /// Runs the network on `state` and `inputs`, replaces the state by the slots' outputs, and returns the
    /// outputs `wanted` in this order. `interrupt` ends the step early.
    ///
    /// The state does not change if the step fails, except that the state is lost if the session [writes in
    /// place](Session::write_in_place) and the execution fails.
    ///
    /// # Errors
    /// Returns the errors of [`Session::run`], and [`EngineError::Run`] if an earlier step that writes in
    /// place has failed. Returns [`EngineError::UnknownOutput`] if `wanted` contains an unknown name, and
    /// [`EngineError::OutputType`] if the type or shape of a state output differs from its input, and
    /// [`EngineError::Interrupted`] if `interrupt` is triggered.
    pub fn step(
        &mut self,
        state: &mut ResidentState,
        inputs: &[(&str, &Tensor)],
        wanted: &[&str],
        interrupt: &Interrupt,
    ) -> Result<Vec<Tensor>, EngineError> {
        state.check_whole()?;
        let mut resident = state.inputs();
        resident.retain(|name| has(self.inputs(), name));
        self.check_inputs(inputs, &resident)?;
        wanted.iter().try_for_each(|name| self.output(name).map(drop))?;
        if let Some(cause) = interrupt.cause() {
            return Err(cause.into());
        }
        let binding = self
            .bind_step(state, inputs, wanted)
            .map_err(EngineError::internal("bind a step"))?;
        let options = self.run_options(false)?;
        let ran = self.run_binding(&binding, options, interrupt, |outputs| {
            take_outputs(state, outputs, wanted)
        });
        drop(binding);
        match ran {
            Ok((tensors, successors)) => {
                state.replace(successors);
                Ok(tensors)
            }
            Err(error) => {
                state.partially_updated = !self.in_place.is_empty();
                Err(error)
            }
        }
    }

    /// Binds the state in the device's memory. Without bindings, every output would be copied to the CPU.
    fn bind_step(
        &self,
        state: &mut ResidentState,
        inputs: &[(&str, &Tensor)],
        wanted: &[&str],
    ) -> ort::Result<IoBinding> {
        let mut binding = self.inner.create_binding()?;
        for (name, tensor) in inputs {
            binding.bind_input(*name, &values::copy_to_value(tensor)?)?;
        }
        let resident = self.device.memory()?;
        for slot in &mut state.slots {
            if has(self.inputs(), &slot.input) {
                binding.bind_input(slot.input.as_str(), &slot.value)?;
            }
            if !has(self.outputs(), &slot.output) {
                continue;
            }
            if self.in_place.contains(&slot.output) {
                binding.bind_output(slot.output.as_str(), &mut slot.value)?;
            } else {
                binding.bind_output_to_device(slot.output.as_str(), &resident)?;
            }
        }
        let cpu = Device::Cpu.memory()?;
        for name in wanted
            .iter()
            .filter(|name| !state.slots.iter().any(|slot| slot.output == **name))
        {
            binding.bind_output_to_device(*name, &cpu)?;
        }
        Ok(binding)
    }
}

fn take_outputs(
    state: &ResidentState,
    outputs: &mut SessionOutputs<'_>,
    wanted: &[&str],
) -> Result<(Vec<Tensor>, Vec<Option<DynValue>>), EngineError> {
    let tensors = wanted
        .iter()
        .map(|name| extract_output(outputs, name))
        .collect::<Result<_, _>>()?;
    Ok((tensors, state.successors(outputs)?))
}
