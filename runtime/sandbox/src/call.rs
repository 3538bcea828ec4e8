use crate::allowance::Allowance;
use crate::error::SandboxError;
use frostline_tensor::{GraphExecutor, ObjectReader, SampleFailure, SampleLoader, Shape, Tensor};
use frostline_wire::{Activation, Description, ServedCut};
use std::sync::Arc;

/// What a guest sees of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelView {
    /// SHA-256 of the model's bytes, lower-case hex; names it in every [`Stage`](frostline_tensor::Stage).
    pub sha256: String,
    /// The input tensor's name.
    pub input: String,
    /// Shape of one input sample.
    pub input_shape: Vec<usize>,
    /// The cuts, in the order of execution.
    pub cuts: Vec<CutView>,
}

/// One cut of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutView {
    /// The tensor that carries everything across.
    pub name: String,
    /// Shape of one sample.
    pub shape: Vec<usize>,
}

impl ModelView {
    /// The cut of this name, and its place in the order of execution.
    pub(crate) fn cut(&self, name: &str) -> Option<(usize, &CutView)> {
        self.cuts.iter().enumerate().find(|(_, cut)| cut.name == name)
    }

    /// Shape of one sample of `tensor`: the input or a cut.
    pub(crate) fn row(&self, tensor: &str) -> Option<Shape> {
        if tensor == self.input {
            return Some(Shape::new(self.input_shape.clone()));
        }
        self.cut(tensor).map(|(_, cut)| Shape::new(cut.shape.clone()))
    }
}

/// The parameters of an extraction's guest calls, checked once against the guest's description.
#[derive(Debug, Clone)]
pub struct Call {
    pub(crate) model: Arc<ModelView>,
    pub(crate) split: String,
    pub(crate) parameters: String,
    pub(crate) row: Shape,
}

impl Call {
    /// Activations of `model` at the cut `split`, by a guest that described itself as `description` when given the same
    /// `parameters`.
    ///
    /// # Errors
    /// [`SandboxError::NotServed`] when the model has no such cut or the description leaves it out.
    pub fn new(
        model: Arc<ModelView>,
        description: &Description,
        split: &str,
        parameters: &str,
    ) -> Result<Self, SandboxError> {
        let served = description.cuts.iter().find(|cut| cut.name == split);
        let row = served
            .and_then(|cut| activation_row(&model, cut))
            .ok_or_else(|| SandboxError::NotServed {
                guest: description.name.clone(),
                split: split.to_owned(),
                reason: why_not_served(&model, description, split),
            })?;
        Ok(Self {
            model,
            split: split.to_owned(),
            parameters: parameters.to_owned(),
            row,
        })
    }

    /// Shape of one activation.
    pub fn row(&self) -> &Shape {
        &self.row
    }
}

/// Shape of one activation of `served`, whether the model's own or the guest's.
pub(crate) fn activation_row(model: &ModelView, served: &ServedCut) -> Option<Shape> {
    let (_, cut) = model.cut(&served.name)?;
    Some(match &served.activation {
        Activation::Faithful => Shape::new(cut.shape.clone()),
        Activation::Own(shape) => Shape::new(shape.clone()),
    })
}

fn why_not_served(model: &ModelView, description: &Description, split: &str) -> String {
    if model.cut(split).is_none() {
        return "the model has no such cut".to_owned();
    }
    let served: Vec<&str> = description.cuts.iter().map(|cut| cut.name.as_str()).collect();
    match served.as_slice() {
        [] => "it serves no cut of this model".to_owned(),
        served => format!("it serves {}", served.join(", ")),
    }
}

/// What a call may use: host operations bound to one tenant's data root, and the extraction's allowance.
#[derive(Clone)]
pub struct CallContext {
    /// Runs the stages of the extraction's model.
    pub executor: Arc<dyn GraphExecutor>,
    /// Reads, decodes and preprocesses samples.
    pub loader: Arc<dyn SampleLoader>,
    /// Loads augmented samples; `None` where the extraction requests no augmentation.
    pub augmented: Option<Arc<dyn SampleLoader>>,
    /// Reads objects.
    pub objects: Arc<dyn ObjectReader>,
    /// Shared by all calls of one extraction.
    pub allowance: Arc<Allowance>,
    /// For log lines.
    pub labels: Labels,
    /// Called with each line: the level in lower case, and at most 1,024 bytes without control characters.
    pub on_log_line: Option<OnLogLine>,
}

/// Callback for the lines that a guest logs: level and text. It says whether a line may go into this process's log too, at the level debug.
pub type OnLogLine = Arc<dyn Fn(&'static str, &str) -> bool + Send + Sync>;

/// Labels of every line the guest logs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    /// The tenant's name.
    pub tenant: String,
    /// The guest's name on this host.
    pub guest: String,
    /// The extraction's id on this host.
    pub extraction: String,
}

/// The checked result of an `extract` call: every sample has a row or a failure.
#[derive(Debug, Clone, PartialEq)]
pub struct Extracted {
    /// `f32`, one row per successful sample, in request order.
    pub activations: Tensor,
    /// The failed samples, by ascending index.
    pub failed: Vec<SampleFailure>,
}

impl Extracted {
    /// Marks all failed samples as host-caused if `host_failed`, since only the guest knows which of them were.
    pub(crate) fn mark_host_caused(mut self, host_failed: bool) -> Self {
        for failure in &mut self.failed {
            failure.error.host_caused |= host_failed;
        }
        self
    }
}
