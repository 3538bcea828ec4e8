use std::fmt::Display;

/// Reason for refusing a model from an untrusted source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Inadmissible {
    /// The number of parts exceeds a limit.
    #[error("{place} has {count} {what}, but at most {limit} are allowed")]
    Count {
        /// Name of the model, node or weight.
        place: String,
        /// Kind of the counted parts.
        what: &'static str,
        /// Number found, or reached when counting stopped.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// The decoded model exceeds the limit on memory, not counting the weights.
    #[error(
        "without its weights, the model needs more than {limit} bytes in memory; export it again without debug \
         information, with its weights as raw data"
    )]
    Description {
        /// The limit.
        limit: usize,
    },
    /// The file uses a feature of the format that classifiers do not need.
    #[error("the model contains {what}; {instead}")]
    Holds {
        /// Description of the feature.
        what: &'static str,
        /// Alternative for the user.
        instead: &'static str,
    },
    /// The version of ONNX's operators is not supported.
    #[error(
        "the model uses version {version} of ONNX's operators, but only versions {least} to {most} are supported; export it \
         with opset_version={most} or lower"
    )]
    Opset {
        /// Version declared by the model; 0 if it is missing.
        version: i64,
        /// Oldest supported version.
        least: i64,
        /// Newest supported version.
        most: i64,
    },
    /// The node branches or loops, so the amount of work is unknown before execution.
    #[error(
        "node `{node}` ({operator}) contains a graph, but control flow is not supported; export the network for one image \
         size, with its loops unrolled and its branches resolved"
    )]
    ControlFlow {
        /// Name of the node.
        node: String,
        /// Operator of the node.
        operator: String,
    },
    /// The operator does not belong to ONNX's standard domain.
    #[error(
        "node `{node}` uses `{operator}` of the domain `{domain}`; only ONNX's own operators are supported; export the network \
         without engine-specific optimizations and custom operators"
    )]
    Domain {
        /// Name of the node.
        node: String,
        /// Operator of the node.
        operator: String,
        /// Domain of the operator.
        domain: String,
    },
    /// The standard operator is not supported.
    #[error(
        "node `{node}` uses the operator `{operator}`, which is not supported; replace it by \
         supported operators, or cut the network before it"
    )]
    Operator {
        /// Name of the node.
        node: String,
        /// Operator of the node.
        operator: String,
    },
    /// The operator does not exist in the model's operator set version.
    #[error(
        "node `{node}` uses `{operator}`, which does not exist in version {version} of ONNX's operators ({since}); export the \
         network again with one version throughout"
    )]
    NotInOpset {
        /// Name of the node.
        node: String,
        /// Operator of the node.
        operator: String,
        /// The model's version.
        version: i64,
        /// Version that added or removed the operator.
        since: String,
    },
    /// The kind or the value of an attribute is not supported.
    #[error("attribute `{attribute}` of node `{node}` {why}; export the network again")]
    Attribute {
        /// Name of the node.
        node: String,
        /// Name of the attribute.
        attribute: String,
        /// Description of the problem.
        why: &'static str,
    },
    /// The length or the characters of a name are invalid.
    #[error("the name `{start}` {why}; choose a different name")]
    Name {
        /// Beginning of the name.
        start: String,
        /// Description of the problem.
        why: String,
    },
    /// Two parts, such as weights or inputs, have the same name.
    #[error("duplicate name `{name}` for two {what}; export the network again")]
    DuplicateName {
        /// Kind of the two parts.
        what: &'static str,
        /// The common name.
        name: String,
    },
    /// An input, output or weight is not a tensor of numbers.
    #[error("`{name}` is {what}; only tensors of numbers and booleans are supported")]
    ElementType {
        /// Name of the tensor.
        name: String,
        /// Description of the unsupported type.
        what: String,
    },
    /// The claimed size does not match the data.
    #[error("weight `{tensor}` has an invalid size: {why}; export the network again")]
    WeightSize {
        /// Name of the tensor or attribute.
        tensor: String,
        /// Claimed size and actual size.
        why: String,
    },
    /// The data of a weight is not part of the file.
    #[error(
        "weight `{tensor}` is stored outside the model, at `{location}`, but an upload must not refer to other files; \
         save the model with its weights inside"
    )]
    ExternalData {
        /// Name of the tensor or attribute.
        tensor: String,
        /// Location given in the model.
        location: String,
    },
    /// A node computes with a tensor that has no elements.
    #[error(
        "node `{node}` ({operator}) computes with `{tensor}`, which has an axis of size 0; remove the node, or export the network for its \
         intended image size"
    )]
    EmptyAxis {
        /// Name of the node.
        node: String,
        /// Operator of the node.
        operator: String,
        /// Name of the tensor.
        tensor: String,
    },
    /// The data determines the size of the output.
    #[error(
        "the output size of node `{node}` ({operator}) depends on the data, so it cannot be bounded before execution; export the \
         network for one image size, with its shapes as constants"
    )]
    UnknownSize {
        /// Name of the node.
        node: String,
        /// Operator of the node.
        operator: String,
    },
    /// A shape depends on the batch in a way that two batch sizes do not determine.
    #[error(
        "node `{node}` ({operator}) {why}, so its size cannot be bounded for every batch; export the network with only its \
         first axis dynamic"
    )]
    NonlinearGrowth {
        /// Name of the node.
        node: String,
        /// Operator of the node.
        operator: String,
        /// Description of the dependency on the batch.
        why: &'static str,
    },
    /// The output of a node exceeds the limit per value.
    #[error(
        "node `{node}` ({operator}) produces {bytes} bytes per sample, but at most {limit} are allowed; export the network for \
         smaller images, or cut it before this node"
    )]
    ValueSize {
        /// Name of the node.
        node: String,
        /// Operator of the node.
        operator: String,
        /// Bytes per sample.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Computing with weights alone would take too long.
    #[error(
        "up to node `{node}` ({operator}), computing with weights alone requires more than {limit} multiply-adds; export the \
         network with its constants folded"
    )]
    ConstantWork {
        /// Name of the node.
        node: String,
        /// Operator of the node.
        operator: String,
        /// The limit.
        limit: u64,
    },
    /// Executing the model would take too long.
    #[error(
        "up to node `{node}` ({operator}), the work per sample exceeds {limit} multiply-adds or the equivalent in time; export the \
         network for smaller images, or cut it before this node"
    )]
    RowWork {
        /// Name of the node.
        node: String,
        /// Operator of the node.
        operator: String,
        /// The limit.
        limit: u64,
    },
    /// The cuts exceed the limit on memory.
    #[error(
        "the names and shapes of the model's {cuts} cuts use {bytes} bytes, but at most {limit} are allowed; export it with \
         shorter names"
    )]
    CutBytes {
        /// Number of cuts.
        cuts: usize,
        /// Bytes used by the names and shapes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The values exceed a limit in total.
    #[error(
        "the network's values use {bytes} bytes {what} per sample, but at most {limit} are allowed; export it for smaller \
         images"
    )]
    Footprint {
        /// `at the same time` or `in total`.
        what: &'static str,
        /// Bytes per sample.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
}

impl Inadmissible {
    /// Returns [`Self::Count`] if `count` exceeds `limit`.
    pub(super) fn check_count(
        place: impl Display,
        what: &'static str,
        count: usize,
        limit: usize,
    ) -> Result<(), Self> {
        if count <= limit {
            return Ok(());
        }
        Err(Self::Count {
            place: place.to_string(),
            what,
            count,
            limit,
        })
    }
}

/// Maximum length of an untrusted name in errors, in characters.
const SHOWN: usize = 80;

/// Returns the beginning of the name for use in errors and logs, and replaces control characters.
pub(super) fn shown(name: &str) -> String {
    name.chars()
        .take(SHOWN)
        .map(|letter| {
            if letter.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                letter
            }
        })
        .collect()
}
