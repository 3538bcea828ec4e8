use crate::TrainingError;
use crate::emitter::Float;
use crate::mode::{BatchNorm, read_by_batch_norm};
use frostline_graph::onnx::TensorProto;
use frostline_graph::tensors::integers;
use frostline_graph::{Links, Model, Shapes, read_names};
use frostline_tensor::DType;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Suffix with inferred shapes and properties, before differentiation.
pub(crate) struct SourceGraph<'a> {
    pub(crate) suffix: &'a Model,
    pub(crate) shapes: Shapes,
    /// Stored tensors by name: initializers, the tensors of Constant nodes, and copies of both by Identity
    /// and by casts between floating-point types.
    pub(crate) constants: HashMap<&'a str, &'a TensorProto>,
    pub(crate) input: &'a str,
    pub(crate) input_dims: Vec<usize>,
    pub(crate) output: &'a str,
    pub(crate) batch: usize,
    pub(crate) classes: usize,
    /// Type in which the suffix is trained. Values of all floating-point types have this type in the step.
    pub(crate) float: Float,
    pub(crate) batch_norm: BatchNorm,
    /// Weights of convolutions to compute with Winograd's algorithm, if applicable.
    pub(crate) winograd: BTreeSet<String>,
}

impl<'a> SourceGraph<'a> {
    pub(crate) fn from_suffix(
        suffix: &'a Model,
        batch: usize,
        batch_norm: BatchNorm,
    ) -> Result<Self, TrainingError> {
        let mut inputs = suffix.inputs().map(|input| input.name.as_str());
        let (Some(input), None, [output]) = (inputs.next(), inputs.next(), suffix.outputs()) else {
            return Err(TrainingError::suffix("expected exactly one input and one output"));
        };
        let shapes = suffix.shapes(batch)?;
        let entry = shapes.get(input).ok_or_else(|| unknown_shape(input))?;
        let float = Float::from_code(entry.data_type).ok_or_else(|| {
            TrainingError::suffix(format!(
                "input '{input}' is not floating point; choose a freeze cut at which values are"
            ))
        })?;
        let output = output.name.as_str();
        let dims = shapes.dims(output).ok_or_else(|| unknown_shape(output))?;
        let &[rows, classes] = dims else {
            let reason = format!("output '{output}' has shape {dims:?}; expected [batch, classes]");
            return Err(TrainingError::suffix(reason));
        };
        if rows != batch || classes == 0 || entry.dims.first() != Some(&batch) {
            let reason = format!(
                "the shapes '{input}' {:?} and '{output}' {dims:?} do not match the batch size {batch}",
                entry.dims
            );
            return Err(TrainingError::suffix(reason));
        }
        Ok(Self {
            suffix,
            shapes,
            constants: suffix.constants_of_any_float(),
            input,
            input_dims: entry.dims,
            output,
            batch,
            classes,
            float,
            batch_norm,
            winograd: BTreeSet::new(),
        })
    }

    /// Returns the weights to train, in order of first use.
    pub(crate) fn parameters(&self) -> Vec<&'a TensorProto> {
        let mut parameters = self.suffix.parameters();
        if self.batch_norm == BatchNorm::Frozen {
            let affine: HashSet<&str> = read_by_batch_norm(self.suffix, 1..3).collect();
            parameters.retain(|weight| !affine.contains(weight.name.as_str()));
        }
        parameters
    }

    /// Returns true if an ungrouped Conv reads `name` as the weight.
    pub(crate) fn is_kernel(&self, name: &str) -> bool {
        let mut nodes = self.suffix.nodes().iter();
        nodes.any(|node| {
            let reads = node.standard_operator() == Some("Conv") && node.input_name(1) == Some(name);
            reads && node.int("group").unwrap_or(1) == 1
        })
    }

    /// Returns true if the elements of the value `name` are known when the graph is written.
    pub(crate) fn is_known(&self, name: &str) -> bool {
        let shapes = &self.shapes;
        self.constants.contains_key(name) || shapes.integers(name).is_some() || shapes.numbers(name).is_some()
    }

    /// Returns the stored integers of the constant `name`, or `None` if it is not stored or does not contain
    /// integers.
    pub(crate) fn stored_integers(&self, name: &str) -> Option<Vec<i64>> {
        integers(self.constants.get(name)?)
    }

    pub(crate) fn dtype(&self) -> DType {
        self.float.dtype()
    }

    /// Returns true if the value `name` is computed from weights only, not from the input.
    pub(crate) fn is_derived(&self, name: &str) -> bool {
        let links = Links::of_model(self.suffix);
        let nodes = links.upstream([name], read_names);
        let mut nodes = nodes.into_iter().filter_map(|index| links.node(index));
        name != self.input && nodes.all(|node| node.input.iter().all(|input| input != self.input))
    }
}

fn unknown_shape(name: &str) -> TrainingError {
    TrainingError::suffix(format!("shape inference failed for '{name}'"))
}
