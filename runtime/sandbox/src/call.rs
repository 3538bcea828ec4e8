use crate::allowance::Allowance;
use crate::error::SandboxError;
use frostline_tensor::{DType, GraphExecutor, ObjectReader, SampleFailure, SampleLoader, Shape, Tensor};
use frostline_wire::{Activation, Description, ServedCut, TensorInfo};
use std::borrow::Cow;
use std::sync::Arc;

/// View of a model for guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelView {
    /// SHA-256 of the model's bytes in lower-case hexadecimal. Identifies the model in every
    /// [`Stage`](frostline_tensor::Stage).
    pub sha256: String,
    /// The input tensor's name.
    pub input: String,
    /// Shape of one input sample.
    pub input_shape: Vec<usize>,
    /// Input tensors that the host joins into `input`. Empty for a model with one `f32` input.
    pub joined_inputs: Vec<TensorInfo>,
    /// Cuts in execution order.
    pub cuts: Vec<CutView>,
}

/// Cut of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutView {
    /// Name of the tensor at the cut.
    pub name: String,
    /// Shape of one sample.
    pub shape: Vec<usize>,
}

impl CutView {
    pub(crate) fn info(&self) -> TensorInfo {
        TensorInfo {
            name: self.name.clone(),
            dtype: DType::F32,
            shape: self.shape.clone(),
        }
    }
}

impl ModelView {
    /// Returns the input tensors for guests.
    pub(crate) fn inputs(&self) -> Cow<'_, [TensorInfo]> {
        if !self.joined_inputs.is_empty() {
            return Cow::Borrowed(&self.joined_inputs);
        }
        Cow::Owned(vec![TensorInfo {
            name: self.input.clone(),
            dtype: DType::F32,
            shape: self.input_shape.clone(),
        }])
    }

    /// Returns true if `given`, which a guest passes as the inputs of the stage from `from`, are joined into the
    /// model's input.
    pub(crate) fn joins<T>(&self, from: &str, given: &[(String, T)]) -> bool {
        !self.joined_inputs.is_empty()
            && from == self.input
            && !given.iter().any(|(name, _)| *name == self.input)
    }

    /// Returns the cut with this name and its position in execution order.
    pub(crate) fn cut(&self, name: &str) -> Option<(usize, &CutView)> {
        self.cuts.iter().enumerate().find(|(_, cut)| cut.name == name)
    }

    /// Returns the sample shape of `tensor`, which must be the input or a cut.
    pub(crate) fn sample_shape(&self, tensor: &str) -> Option<Shape> {
        if tensor == self.input {
            return Some(Shape::new(self.input_shape.clone()));
        }
        self.cut(tensor).map(|(_, cut)| Shape::new(cut.shape.clone()))
    }
}

/// Parameters of guest calls. Checked against the guest's description.
#[derive(Debug, Clone)]
pub struct Call {
    pub(crate) model: Arc<ModelView>,
    pub(crate) split: String,
    pub(crate) parameters: String,
    pub(crate) row: Shape,
    /// Tensors that the guest returns for a sample.
    pub(crate) tensors: Vec<TensorInfo>,
}

impl Call {
    /// Requests activations of `model` at the cut `split`. `description` is the result of
    /// [`Guest::describe`](crate::Guest::describe) for the same `parameters`.
    ///
    /// # Errors
    /// Returns [`SandboxError::NotServed`] if the model has no such cut or the guest does not serve it.
    pub fn new(
        model: Arc<ModelView>,
        description: &Description,
        split: &str,
        parameters: &str,
    ) -> Result<Self, SandboxError> {
        let served = description.cuts.iter().find(|cut| cut.name == split);
        let tensors = served.and_then(|cut| tensors_at(&model, cut)).unwrap_or_default();
        let row = TensorInfo::row_shape(&tensors).ok_or_else(|| SandboxError::NotServed {
            guest: description.name.clone(),
            split: split.to_owned(),
            reason: why_not_served(&model, description, split),
        })?;
        Ok(Self {
            model,
            split: split.to_owned(),
            parameters: parameters.to_owned(),
            row,
            tensors,
        })
    }

    /// Shape of one activation.
    pub fn row(&self) -> &Shape {
        &self.row
    }
}

/// Returns the tensors of a sample at `served`, as defined by the model or the guest.
fn tensors_at(model: &ModelView, served: &ServedCut) -> Option<Vec<TensorInfo>> {
    let (_, cut) = model.cut(&served.name)?;
    Some(match &served.activation {
        Activation::Faithful => vec![cut.info()],
        Activation::Custom(tensors) => tensors.clone(),
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

/// Host operations and allowance of a call. The operations are bound to the tenant's data root.
#[derive(Clone)]
pub struct CallContext {
    /// Runs the stages of the extraction's model.
    pub executor: Arc<dyn GraphExecutor>,
    /// Reads, decodes and preprocesses samples.
    pub loader: Arc<dyn SampleLoader>,
    /// Loads augmented samples. `None` if the extraction requests no augmentation.
    pub augmented: Option<Arc<dyn SampleLoader>>,
    /// Reads objects.
    pub objects: Arc<dyn ObjectReader>,
    /// Shared by all calls of one extraction.
    pub allowance: Arc<Allowance>,
    /// Labels for log lines.
    pub labels: Labels,
    /// Callback for log lines.
    pub on_log_line: Option<OnLogLine>,
}

/// Callback for the log lines of a guest. Receives the level in lower case and up to 1,024 bytes of text
/// without control characters. Returns true if the host may also write the line to its own log, at level
/// debug.
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

/// Validated result of an `extract` call. Contains either an activation or a failure for each sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Extracted {
    /// `f32` activations of the successful samples in request order.
    pub activations: Tensor,
    /// Failed samples by ascending index.
    pub failed: Vec<SampleFailure>,
}
