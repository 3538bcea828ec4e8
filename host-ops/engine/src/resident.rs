use crate::binding::device_memory;
use crate::session::extract_output;
use crate::{Device, EngineError, Interrupt, Session, TensorSlot, values};
use frostline_tensor::Tensor;
use ort::session::{IoBinding, SessionOutputs};
use ort::value::{DynValue, ValueType};

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
    /// Whether a step ended when it had written a part of it in place.
    torn: bool,
}

#[derive(Debug)]
struct Slot {
    input: String,
    output: String,
    value: DynValue,
}

impl ResidentState {
    /// A state of these tensors, copied one after another to memory that steps can write to.
    ///
    /// # Errors
    /// The library's, see [`library_version`](crate::library_version); [`EngineError::InputCount`] for a name that occurs twice.
    pub fn new(slots: impl IntoIterator<Item = ResidentSlot>) -> Result<Self, EngineError> {
        crate::library::environment()?;
        let mut state = Self {
            slots: Vec::new(),
            torn: false,
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
                value: values::place(&slot.initial).map_err(EngineError::internal("keep a state"))?,
                input: slot.input,
                output: slot.output,
            });
        }
        Ok(state)
    }

    /// The tensor that the next step would take as input `name` (copied).
    ///
    /// # Errors
    /// [`EngineError::UnknownInput`] when no slot has that input; [`EngineError::Run`] after a step in place that failed.
    pub fn tensor(&self, name: &str) -> Result<Tensor, EngineError> {
        self.check_whole()?;
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
    /// [`EngineError::Internal`] when a device cannot be read; [`EngineError::Run`] after a step in place that failed.
    pub fn tensors(&self) -> Result<Vec<(String, Tensor)>, EngineError> {
        self.check_whole()?;
        let read = |slot: &Slot| Ok((slot.input.clone(), values::extract(&slot.input, &slot.value)?));
        self.slots.iter().map(read).collect()
    }

    fn check_whole(&self) -> Result<(), EngineError> {
        match self.torn {
            false => Ok(()),
            true => Err(EngineError::Run {
                reason:
                    "an earlier step ended before it had updated all weights; start again from a checkpoint"
                        .to_owned(),
            }),
        }
    }

    fn inputs(&self) -> Vec<&str> {
        self.slots.iter().map(|slot| slot.input.as_str()).collect()
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
    /// Has steps on the CPU write these outputs over the tensors of the state that they replace. All that read such a tensor must run before
    /// the output is written. On other devices, steps write to memory of their own.
    pub fn write_in_place(&mut self, outputs: impl IntoIterator<Item = String>) {
        if self.device == Device::Cpu {
            self.in_place = outputs.into_iter().collect();
        }
    }

    /// Runs the network on `state` and `inputs`, replaces the state by the outputs named for it, and returns the outputs
    /// `wanted`, in that order. When it fails, the state is as it was; what [is written in place](Session::write_in_place) is lost where the run itself fails.
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
        let ran = self.run_binding(&binding, interrupt, |outputs| {
            take_outputs(state, outputs, wanted)
        });
        drop(binding);
        match ran {
            Ok((tensors, successors)) => {
                state.replace(successors);
                Ok(tensors)
            }
            Err(error) => {
                state.torn = !self.in_place.is_empty();
                Err(error)
            }
        }
    }

    /// Has the state read and written where it lies: a plain run would copy every output to the CPU.
    fn bind_step(
        &self,
        state: &mut ResidentState,
        inputs: &[(&str, &Tensor)],
        wanted: &[&str],
    ) -> ort::Result<IoBinding> {
        let mut binding = self.inner.create_binding()?;
        for (name, tensor) in inputs {
            let value = values::own((*tensor).clone()).map_err(ort::Error::wrap)?;
            binding.bind_input(*name, &value)?;
        }
        let resident = device_memory(self.device)?;
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
        let cpu = device_memory(Device::Cpu)?;
        let plain = |name: &&&str| !state.slots.iter().any(|slot| slot.output == **name);
        for name in wanted.iter().filter(plain) {
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
