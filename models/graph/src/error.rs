use crate::Inadmissible;
use std::path::PathBuf;

/// Source of an error. It is a message or an error from a dependency.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Errors from reading, cutting, changing and writing networks.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// A file could not be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error reported by the operating system.
        source: std::io::Error,
    },
    /// A file could not be written. Incomplete files are removed.
    #[error("cannot write {path}: {source}", path = path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error reported by the operating system.
        source: std::io::Error,
    },
    /// The bytes are not an ONNX model.
    #[error("not an ONNX model: {why}")]
    NotOnnx {
        /// Reason the model is invalid, and a possible fix.
        #[source]
        why: Cause,
    },
    /// The model breaks a rule of the ONNX format.
    #[error("the ONNX model is malformed: {why}")]
    Malformed {
        /// The violated rule and the name of the node or tensor.
        why: String,
    },
    /// The model uses a newer version of the format or of the operators.
    #[error(
        "the network uses {what} {version}, but frostline supports up to {most}; export it with an older one"
    )]
    Version {
        /// The format or the operator set.
        what: &'static str,
        /// Version in the file.
        version: i64,
        /// Newest supported version.
        most: i64,
    },
    /// A model from an untrusted source was refused.
    #[error(transparent)]
    Inadmissible(#[from] Inadmissible),
    /// A weight is stored outside the file, at a location that must not be read.
    #[error("weight `{tensor}` is stored outside the model at `{location}`: {why}")]
    ExternalData {
        /// Name of the tensor: an initializer or a tensor in a node's attributes.
        tensor: String,
        /// Location given in the model.
        location: String,
        /// Reason for the refusal and a possible fix.
        #[source]
        why: Cause,
    },
    /// The number of inputs is not one.
    #[error(
        "the network has {count} inputs ({names}), but frostline feeds exactly one, a batch of images; export it \
         with the others fixed as constants"
    )]
    Inputs {
        /// Number of inputs, not counting initializers.
        count: usize,
        /// Names of the inputs.
        names: String,
    },
    /// The number of outputs is not one.
    #[error(
        "the network has {} outputs ({}), but frostline uses exactly one; select one of them", names.len(), names.join(", ")
    )]
    Outputs {
        /// Names of the outputs.
        names: Vec<String>,
    },
    /// The network does not have the selected output.
    #[error("output `{name}` does not exist; available outputs: {}", names.join(", "))]
    UnknownOutput {
        /// The requested name.
        name: String,
        /// Names of the outputs.
        names: Vec<String>,
    },
    /// The input's dimensions are missing or not fixed.
    #[error(
        "input `{input}` does not have a fixed size per sample ({why}); export the network with a fixed image size"
    )]
    InputShape {
        /// Name of the input.
        input: String,
        /// The missing or invalid part of the shape.
        why: String,
        /// Effect of the image size setting on this input.
        size: InputSize,
    },
    /// Failed to infer the shape of the output.
    #[error(
        "cannot infer the shape of the output `{output}`; export the network with all axes fixed except the batch"
    )]
    OutputShape {
        /// Name of the output.
        output: String,
    },
    /// The batch size of the network is fixed.
    #[error("the network is fixed to a batch of {batch}: {why}; export it with a dynamic first axis")]
    FixedBatch {
        /// The accepted batch size.
        batch: u64,
        /// The node, input or output that fixes the batch.
        why: String,
    },
    /// The inputs of a node do not match the operator.
    #[error("node `{node}` ({operator}) does not fit its inputs: {why}")]
    Shape {
        /// Name of the node, or of the first output if the node is unnamed.
        node: String,
        /// Operator of the node.
        operator: String,
        /// The mismatch.
        why: String,
    },
    /// The name does not match any cut.
    #[error("the network has no cut `{name}`; {near}")]
    UnknownCut {
        /// The requested name.
        name: String,
        /// Hint with similar names, and all cuts if there are few.
        near: String,
    },
    /// Several cuts match the name.
    #[error("`{name}` is ambiguous: use one of the cuts {candidates}")]
    AmbiguousCut {
        /// The requested name.
        name: String,
        /// Names of the matching cuts.
        candidates: String,
    },
    /// Tensors cannot be a cut together.
    #[error("no cut through {names}: {why}")]
    Joint {
        /// Names of the tensors, separated by commas.
        names: String,
        /// Reason, and the tensors to add if some are missing.
        why: String,
    },
    /// The inputs cannot be joined into one tensor.
    #[error("cannot join the inputs {names}: {why}")]
    JointInput {
        /// Names of the inputs, separated by commas.
        names: String,
        /// Reason and a possible fix.
        why: String,
    },
    /// The end of a slice does not come after the start.
    #[error("cut `{to}` precedes cut `{from}`; swap them")]
    Order {
        /// Start of the slice.
        from: String,
        /// End of the slice.
        to: String,
    },
    /// The freeze cut leaves no head to train.
    #[error(
        "freeze cut `{cut}` is not before the classifier head `{head}`, so no layers can be trained; the last cut before the head is {last}"
    )]
    FreezeAfterHead {
        /// The requested cut.
        cut: String,
        /// Name of the node with the head's weights.
        head: String,
        /// Quoted name of the last cut before the head, or `none`.
        last: String,
    },
    /// The classifier head was not found or cannot be replaced.
    #[error("no classifier head to replace: {why}")]
    Head {
        /// Expected form of the head, or the reason for which it cannot be replaced.
        #[source]
        why: Cause,
    },
    /// A weight is missing or invalid, or does not fit the model.
    #[error("weight `{name}` does not fit the model: {why}")]
    Weight {
        /// Name of the initializer.
        name: String,
        /// The mismatch or defect.
        #[source]
        why: Cause,
    },
    /// The model exceeds the size limit of an ONNX file.
    #[error(
        "the model has {bytes} bytes, but the limit for an ONNX file is {limit}; write it to a path to store the weights in a separate file"
    )]
    TooLarge {
        /// Encoded size, in bytes.
        bytes: usize,
        /// Maximum size of a file, in bytes.
        limit: usize,
    },
}

/// Effect of the image size setting on an input with an invalid shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputSize {
    /// The input is accepted with this image size, in pixels per side.
    Open(usize),
    /// The requested image size differs from a fixed axis. The input is accepted without the setting, unless
    /// another axis is open.
    Fixed,
    /// No image size fits.
    Unfit,
}
