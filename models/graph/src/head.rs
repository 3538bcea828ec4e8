//! Finding the classifier head: the last layer that turns features into one score per class.

use crate::analysis::Analysis;
use crate::onnx::NodeProto;
use crate::operators::{self, HeadPart};
use crate::values::Dim;

/// What a head looks like, for messages.
pub(crate) const EXPECTED: &str = "expected the network to end in a Gemm, a MatMul with Add, or a 1x1 Conv with a pool, possibly \
                                   followed by reshapes and a Softmax";

/// The classifier head of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The node that multiplies by the weights.
    pub node: String,
    /// Its operator: `Gemm`, `MatMul` or `Conv`.
    pub operator: String,
    /// The tensor it reads.
    pub input: String,
    /// How many classes it scores.
    pub classes: usize,
    /// How many features each score is computed from.
    pub features: usize,
}

/// A head and where it is in the graph.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) head: Head,
    /// The place of the head's node.
    pub(crate) index: usize,
    /// How many axes of size 1 its weights have behind features and classes.
    pub(crate) kernel: usize,
    /// The `Add` behind a `MatMul`, and its slot of the bias.
    pub(crate) add: Option<(usize, usize)>,
    /// Places of the nodes behind the head, last first.
    pub(crate) tail: Vec<usize>,
}

/// Walks back from the output to the head.
pub(crate) fn find(analysis: &Analysis<'_>, output: &str) -> Option<Found> {
    let mut tail = Vec::new();
    let mut add = None;
    let mut name = output;
    loop {
        let (index, node) = analysis.producer(name)?;
        match operators::find(node)?.head {
            HeadPart::Layer | HeadPart::Product => return found(analysis, index, node, add, tail),
            HeadPart::Bias if add.is_none() => {
                let slot = (0..2).find(|&slot| {
                    node.input_name(slot)
                        .is_some_and(|name| !analysis.kinds.is_data(name))
                })?;
                add = Some((index, slot));
                name = node.input_name(1 - slot)?;
            }
            // Between a product and its bias nothing may stand.
            HeadPart::Tail if add.is_none() => {
                tail.push(index);
                name = node.input_name(0)?;
            }
            HeadPart::None | HeadPart::Bias | HeadPart::Tail => return None,
        }
    }
}

fn found(
    analysis: &Analysis<'_>,
    index: usize,
    node: &NodeProto,
    add: Option<(usize, usize)>,
    tail: Vec<usize>,
) -> Option<Found> {
    let (input, weight) = (node.input_name(0)?, node.input_name(1)?);
    if analysis.kinds.is_data(weight) || !analysis.kinds.is_data(input) {
        return None;
    }
    let dims = analysis.probes.dims(weight)?;
    let dims: Vec<usize> = dims.iter().map(Dim::fixed).collect::<Option<_>>()?;
    let (classes, features) = scores(node, &dims, add.is_some())?;
    let head = Head {
        node: node.label().to_owned(),
        operator: node.op_type.clone(),
        input: input.into(),
        classes,
        features,
    };
    Some(Found {
        head,
        index,
        kernel: dims.len().saturating_sub(2),
        add,
        tail,
    })
}

/// The classes and features of a layer with weights of `dims`; `None` when it cannot be a head.
fn scores(node: &NodeProto, dims: &[usize], added_bias: bool) -> Option<(usize, usize)> {
    let setting = |name, default| node.int(name).unwrap_or(default);
    match (node.op_type.as_str(), dims) {
        ("MatMul", &[features, classes]) => Some((classes, features)),
        _ if added_bias => None,
        ("Gemm", _) if setting("transA", 0) != 0 => None,
        ("Gemm", &[features, classes]) if setting("transB", 0) == 0 => Some((classes, features)),
        ("Gemm", &[classes, features]) => Some((classes, features)),
        ("Conv", &[classes, features, ref kernel @ ..])
            if kernel.iter().all(|&size| size == 1) && setting("group", 1) == 1 =>
        {
            Some((classes, features))
        }
        _ => None,
    }
}
