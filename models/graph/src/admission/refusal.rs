/// Why a stranger's model is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Inadmissible {
    /// More of something than one model may have.
    #[error("{place} has {count} {what}; at most {limit} are allowed")]
    Count {
        /// The model, or a node or tensor in it.
        place: String,
        /// What is counted.
        what: &'static str,
        /// How many there are, or were when counting stopped.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// The file would take far more memory than its weights do.
    #[error(
        "without its weights the model takes more than {limit} bytes in memory; export it again without debug \
         information, with its weights as raw data"
    )]
    Description {
        /// The limit.
        limit: usize,
    },
    /// A part of the format that no classifier needs.
    #[error("the model holds {what}; {instead}")]
    Holds {
        /// The part.
        what: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// A version of ONNX's operators outside the range that is understood.
    #[error(
        "the model is written for version {version} of ONNX's operators, versions {least} to {most} are supported; export it \
         with opset_version={most} or lower"
    )]
    Opset {
        /// The version it names; 0 for none.
        version: i64,
        /// The oldest.
        least: i64,
        /// The newest.
        most: i64,
    },
    /// Branches or loops: how much they compute cannot be known before they run.
    #[error(
        "node `{node}` ({operator}) holds a graph of its own: control flow is not taken; export the network for one image \
         size, with its loops unrolled and its branches decided"
    )]
    ControlFlow {
        /// The node.
        node: String,
        /// Its operator.
        operator: String,
    },
    /// An operator that is not ONNX's own.
    #[error(
        "node `{node}` uses `{operator}` of the domain `{domain}`; only ONNX's own operators are taken: export the network \
         without an engine's optimizations and custom operators"
    )]
    Domain {
        /// The node.
        node: String,
        /// Its operator.
        operator: String,
        /// Its domain.
        domain: String,
    },
    /// An operator of ONNX's own that is not on the list.
    #[error(
        "node `{node}` uses the operator `{operator}`, which is not on the list of operators that are taken; express it with \
         others, or cut the network before it"
    )]
    Operator {
        /// The node.
        node: String,
        /// Its operator.
        operator: String,
    },
    /// An operator that the model's version of the operators does not have.
    #[error(
        "node `{node}` uses `{operator}`, which version {version} of ONNX's operators does not have ({since}); export the \
         network again with one version throughout"
    )]
    NotInOpset {
        /// The node.
        node: String,
        /// Its operator.
        operator: String,
        /// The model's version.
        version: i64,
        /// From where to where there is one.
        since: String,
    },
    /// An attribute of a kind that no operator on the list has.
    #[error("attribute `{attribute}` of node `{node}` {why}; export the network again")]
    Attribute {
        /// The node.
        node: String,
        /// The attribute.
        attribute: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A name that is too long, missing, or not printable.
    #[error("the name `{start}` {why}; rename it")]
    Name {
        /// How it begins.
        start: String,
        /// What is wrong with it.
        why: String,
    },
    /// Two weights or two inputs of one name.
    #[error("two {what} are called `{name}`; export the network again")]
    Twice {
        /// Weights or inputs.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// An input, output or weight that is no tensor of numbers.
    #[error("`{name}` is {what}; only tensors of numbers and truth values are taken")]
    ElementType {
        /// The input, output or tensor.
        name: String,
        /// What it is instead.
        what: String,
    },
    /// A weight that is not as large as it says.
    #[error("weight `{tensor}` has an invalid size: {why}; export the network again")]
    WeightSize {
        /// The tensor, or the attribute that holds it.
        tensor: String,
        /// What it claims and what is there.
        why: String,
    },
    /// A weight kept in another file.
    #[error(
        "weight `{tensor}` is kept outside the model, at `{location}`; an upload is one file and no other is opened for it: \
         save the model with its weights inside"
    )]
    ExternalData {
        /// The tensor, or the attribute that holds it.
        tensor: String,
        /// Where it says its data lies.
        location: String,
    },
    /// A tensor without elements where numbers are computed.
    #[error(
        "node `{node}` ({operator}) computes with `{tensor}`, which has an axis of size 0; remove the node, or export the network for the \
         image size it was made for"
    )]
    Empty {
        /// The node.
        node: String,
        /// Its operator.
        operator: String,
        /// The tensor.
        tensor: String,
    },
    /// A value whose size is known only from the data.
    #[error(
        "how much node `{node}` ({operator}) makes depends on the data, so it cannot be bounded before it runs; export the \
         network for one image size, with its shapes as constants"
    )]
    UnknownSize {
        /// The node.
        node: String,
        /// Its operator.
        operator: String,
    },
    /// Shapes that depend on the batch in a way that two batches do not tell for all others.
    #[error(
        "node `{node}` ({operator}) {why}, so its size cannot be bounded for every batch; export the network with only its \
         first axis dynamic"
    )]
    Batch {
        /// The node.
        node: String,
        /// Its operator.
        operator: String,
        /// What it does with the batch.
        why: &'static str,
    },
    /// One value is too large.
    #[error(
        "node `{node}` ({operator}) makes {bytes} bytes for one sample; at most {limit} are allowed: export the network for \
         smaller images, or cut it before this node"
    )]
    ValueSize {
        /// The node.
        node: String,
        /// Its operator.
        operator: String,
        /// Bytes for one sample.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Opening the model would take too long.
    #[error(
        "node `{node}` ({operator}) brings what is computed from weights alone to more than {limit} multiply-adds; export the \
         network with its constants folded"
    )]
    ConstantWork {
        /// The node.
        node: String,
        /// Its operator.
        operator: String,
        /// The limit.
        limit: u64,
    },
    /// A row would keep a processor too long.
    #[error(
        "node `{node}` ({operator}) brings the work of one row to more than {limit} multiply-adds, or what takes as long; export the \
         network for smaller images, or cut it before this node"
    )]
    RowWork {
        /// The node.
        node: String,
        /// Its operator.
        operator: String,
        /// The limit.
        limit: u64,
    },
    /// What is kept of its cuts is too large.
    #[error(
        "the names and shapes of the model's {cuts} cuts take {bytes} bytes; at most {limit} are kept of a model: export it with \
         shorter names"
    )]
    CutBytes {
        /// How many there are.
        cuts: usize,
        /// What they take.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// All values together are too large.
    #[error(
        "the network's values take {bytes} bytes {what} for one sample; at most {limit} are allowed: export it for smaller \
         images"
    )]
    Footprint {
        /// Alive at once, or in all.
        what: &'static str,
        /// Bytes for one sample.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
}

/// The longest part of a stranger's name that an error repeats, in characters.
const SHOWN: usize = 80;

/// The beginning of a name, for an error or a log: printable.
pub(super) fn shown(name: &str) -> String {
    let printable = |letter: char| {
        if letter.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            letter
        }
    };
    name.chars().take(SHOWN).map(printable).collect()
}
