use crate::binding::device_memory;
use crate::session::{borrow_all, extract_output};
use crate::{Device, EngineError, Interrupt, Session, TensorSlot, values};
use frostline_tensor::Tensor;
use ort::session::{SessionInputValue, SessionOutputs};
use ort::value::{DynValue, ValueType};
use std::borrow::Cow;

/// One tensor that a step reads and replaces, such as a weight or its momentum.
#[derive(Debug, Clone, PartialEq)]
pub struct ResidentSlot {
    /// The input that takes it.
    pub input: String,
    /// The output that becomes the next step's input.
    pub output: String,
    /// What the first step takes.
    pub initial: Tensor,
}

/// Tensors that stay values of ONNX Runtime, on the session's device, from one [`Session::step`] to the next.
///
/// Any session whose inputs and outputs have the slots' names can go on with the state: a graph for the short last
/// batch of an epoch takes it over without a copy. A slot that a session does not read is not fed to it, and one that it does not
/// give stays.
#[derive(Debug)]
pub struct ResidentState {
    slots: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    input: String,
    output: String,
    value: DynValue,
}

impl ResidentState {
    /// A state of these tensors; their elements are moved, not copied.
    ///
    /// # Errors
    /// The library's, see [`library_version`](crate::library_version); [`EngineError::InputCount`] for a name that occurs twice.
    pub fn new(slots: impl IntoIterator<Item = ResidentSlot>) -> Result<Self, EngineError> {
        crate::library::environment()?;
        let mut state = Self { slots: Vec::new() };
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
            let value = values::own(slot.initial)?;
            state.slots.push(Slot {
                input: slot.input,
                output: slot.output,
                value,
            });
        }
        Ok(state)
    }

    /// The tensor that the next step would take as input `name` (copied).
    ///
    /// # Errors
    /// [`EngineError::UnknownInput`] when no slot has that input.
    pub fn tensor(&self, name: &str) -> Result<Tensor, EngineError> {
        let slot = self.slots.iter().find(|slot| slot.input == name);
        let slot = slot.ok_or_else(|| EngineError::UnknownInput {
            name: name.to_owned(),
            known: self.inputs().join(", "),
        })?;
        values::extract(&slot.input, &slot.value)
    }

    /// All tensors by the name of their input, in the order given at first (copied).
    ///
    /// # Errors
    /// [`EngineError::Internal`] when a device cannot be read.
    pub fn tensors(&self) -> Result<Vec<(String, Tensor)>, EngineError> {
        let read = |slot: &Slot| Ok((slot.input.clone(), values::extract(&slot.input, &slot.value)?));
        self.slots.iter().map(read).collect()
    }

    fn inputs(&self) -> Vec<&str> {
        self.slots.iter().map(|slot| slot.input.as_str()).collect()
    }

    fn views(&self, session: &[TensorSlot]) -> impl Iterator<Item = (Cow<'_, str>, SessionInputValue<'_>)> {
        self.slots
            .iter()
            .filter(|slot| has(session, &slot.input))
            .map(|slot| (Cow::Borrowed(slot.input.as_str()), (&slot.value).into()))
    }

    /// The values that replace the state's, taken out of a step's outputs.
    fn successors(&self, outputs: &mut SessionOutputs<'_>) -> Result<Vec<Option<DynValue>>, EngineError> {
        let successor = |slot: &Slot| {
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
        };
        self.slots.iter().map(successor).collect()
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
    /// Runs the network on `state` and `inputs`, replaces the state by the outputs named for it, and returns the outputs
    /// `wanted`, in that order. When it fails, the state is as it was.
    ///
    /// # Errors
    /// As [`Session::run`]; [`EngineError::UnknownOutput`] for a name of `wanted` that the model lacks;
    /// [`EngineError::OutputType`] for a state output whose type or shape differs from its input's.
    pub fn step(
        &mut self,
        state: &mut ResidentState,
        inputs: &[(&str, &Tensor)],
        wanted: &[&str],
    ) -> Result<Vec<Tensor>, EngineError> {
        self.step_until(state, inputs, wanted, &Interrupt::new())
    }

    /// [`Session::step`], ended early by `interrupt`.
    ///
    /// # Errors
    /// Also [`EngineError::Interrupted`].
    pub fn step_until(
        &mut self,
        state: &mut ResidentState,
        inputs: &[(&str, &Tensor)],
        wanted: &[&str],
        interrupt: &Interrupt,
    ) -> Result<Vec<Tensor>, EngineError> {
        let mut resident = state.inputs();
        resident.retain(|name| has(self.inputs(), name));
        self.check_inputs(inputs, &resident)?;
        wanted.iter().try_for_each(|name| self.output(name).map(drop))?;
        let (tensors, successors) = match self.device {
            Device::Cpu => self.step_in_place(state, inputs, wanted, interrupt)?,
            Device::Cuda(_) => self.step_on_device(state, inputs, wanted, interrupt)?,
        };
        state.replace(successors);
        Ok(tensors)
    }

    /// On the CPU, outputs of a plain run already lie where the next step wants them.
    fn step_in_place(
        &mut self,
        state: &ResidentState,
        inputs: &[(&str, &Tensor)],
        wanted: &[&str],
        interrupt: &Interrupt,
    ) -> Result<(Vec<Tensor>, Vec<Option<DynValue>>), EngineError> {
        let bound = borrow_all(inputs)?
            .into_iter()
            .chain(state.views(self.inputs()))
            .collect();
        self.run_values(bound, interrupt, |outputs| take(state, outputs, wanted))
    }

    /// Elsewhere a plain run would copy every output to the CPU: a binding keeps the state on the device.
    pub(crate) fn step_on_device(
        &mut self,
        state: &ResidentState,
        inputs: &[(&str, &Tensor)],
        wanted: &[&str],
        interrupt: &Interrupt,
    ) -> Result<(Vec<Tensor>, Vec<Option<DynValue>>), EngineError> {
        let binding = self
            .bind_step(state, inputs, wanted)
            .map_err(EngineError::internal("bind a step"))?;
        self.run_binding(&binding, interrupt, |outputs| take(state, outputs, wanted))
    }

    fn bind_step(
        &self,
        state: &ResidentState,
        inputs: &[(&str, &Tensor)],
        wanted: &[&str],
    ) -> ort::Result<ort::session::IoBinding> {
        let mut binding = self.inner.create_binding()?;
        for (name, tensor) in inputs {
            let value = values::own((*tensor).clone()).map_err(ort::Error::wrap)?;
            binding.bind_input(*name, &value)?;
        }
        let resident = device_memory(self.device)?;
        for slot in &state.slots {
            if has(self.inputs(), &slot.input) {
                binding.bind_input(slot.input.as_str(), &slot.value)?;
            }
            if has(self.outputs(), &slot.output) {
                binding.bind_output_to_device(slot.output.as_str(), &resident)?;
            }
        }
        let cpu = device_memory(Device::Cpu)?;
        let plain = |name: &&&str| !state.slots.iter().any(|slot| slot.output == **name);
        for name in wanted.iter().filter(plain) {
            binding.bind_output_to_device(*name, &cpu)?;
        }
        Ok(binding)
    }
}

fn take(
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
