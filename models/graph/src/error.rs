use crate::Inadmissible;
use std::path::PathBuf;

/// What lies behind an error: another error, or a text.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a network cannot be read, cut, changed or written.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// A file could not be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file could not be written; nothing half-written is left behind.
    #[error("cannot write {path}: {source}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The bytes are not an ONNX model.
    #[error("not an ONNX model ({why}); export the network as .onnx, for example with torch.onnx.export")]
    NotOnnx {
        /// What is missing or broken.
        #[source]
        why: Cause,
    },
    /// The model breaks a rule of the ONNX format.
    #[error("the ONNX model is malformed: {why}")]
    Malformed {
        /// The rule, and the node or tensor that breaks it.
        why: String,
    },
    /// A stranger's model holds what is not taken from strangers.
    #[error(transparent)]
    Inadmissible(#[from] Inadmissible),
    /// A weight lies outside the file, where it may not be read.
    #[error("weight `{tensor}` is kept outside the model at `{location}`: {why}")]
    ExternalData {
        /// The initializer.
        tensor: String,
        /// The place it claims.
        location: String,
        /// Why it is not read, and what to do.
        #[source]
        why: Cause,
    },
    /// The network does not take exactly one input.
    #[error(
        "the network takes {count} inputs ({names}), but frostline feeds exactly one, a batch of images; export it \
         with the others fixed as constants"
    )]
    Inputs {
        /// How many real inputs, initializers not counted.
        count: usize,
        /// Their names.
        names: String,
    },
    /// The network does not give exactly one output.
    #[error(
        "the network gives {count} outputs ({names}), but frostline trains exactly one; export it with one output"
    )]
    Outputs {
        /// How many.
        count: usize,
        /// Their names.
        names: String,
    },
    /// The input's dimensions are missing or not fixed.
    #[error(
        "input `{input}` has no fixed size per sample ({why}); export the network for one image size, or give it as in --image-size 224"
    )]
    InputShape {
        /// The input.
        input: String,
        /// What is wrong with its shape.
        why: String,
    },
    /// What the network gives has no shape that can be inferred.
    #[error(
        "cannot infer the shape of the output `{output}`; export the network with no open axis but the batch"
    )]
    OutputShape {
        /// The output.
        output: String,
    },
    /// The network only takes batches of one size.
    #[error("the network is fixed to a batch of {batch}: {why}; export it with a dynamic first axis")]
    FixedBatch {
        /// The size it is fixed to.
        batch: u64,
        /// Where, by name.
        why: String,
    },
    /// A node's inputs do not fit its operator.
    #[error("node `{node}` ({operator}) does not fit its inputs: {why}")]
    Shape {
        /// The node's name, or its first output's.
        node: String,
        /// Its operator.
        operator: String,
        /// The mismatch.
        why: String,
    },
    /// No cut has this name.
    #[error("the network has no cut `{name}`; {near}")]
    UnknownCut {
        /// The name asked for.
        name: String,
        /// Similar names, and the whole list when it is short.
        near: String,
    },
    /// Several cuts are called so.
    #[error("`{name}` may be any of several cuts: {candidates}; name one of them")]
    AmbiguousCut {
        /// The name asked for.
        name: String,
        /// What they are called.
        candidates: String,
    },
    /// The two ends of a part are in the wrong order.
    #[error("cut `{to}` precedes cut `{from}`; swap them")]
    Order {
        /// Where the part was to begin.
        from: String,
        /// Where it was to end.
        to: String,
    },
    /// The freeze cut leaves no head to train.
    #[error(
        "freeze cut `{cut}` lies behind the classifier head `{head}`, so nothing is left to train; the last cut before it is {last}"
    )]
    FreezeAfterHead {
        /// The cut asked for.
        cut: String,
        /// The head's node.
        head: String,
        /// The last cut that leaves the head trainable.
        last: String,
    },
    /// No classifier head was found.
    #[error("no classifier head to replace: {why}")]
    Head {
        /// What was looked for and what was found.
        #[source]
        why: Cause,
    },
    /// Weights do not belong to the model.
    #[error("weight `{name}` does not fit the model: {why}")]
    Weight {
        /// The initializer's name.
        name: String,
        /// What does not fit.
        #[source]
        why: Cause,
    },
    /// Over the format's limit.
    #[error(
        "the model takes {bytes} bytes, but one ONNX file holds at most {limit}; write it to a path instead, with its weights beside it"
    )]
    TooLarge {
        /// Encoded size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}
