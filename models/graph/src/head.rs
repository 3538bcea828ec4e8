//! Finds the classifier head, which is the layer that computes a score for every class.

use crate::analysis::Analysis;
use crate::onnx::NodeProto;
use crate::operators::{self, HeadPart};
use crate::values::Dim;
use std::collections::HashSet;

/// Description of a supported head, for error messages.
pub(crate) const EXPECTED: &str = "expected the network to end in a Gemm, a MatMul with Add, or a 1x1 Conv with a pool, possibly \
                                   followed by reshapes and a Softmax, or in the sum or mean of two such layers";

/// Classifier head of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Node that multiplies by the weights.
    pub node: String,
    /// Operator of the node: `Gemm`, `MatMul` or `Conv`.
    pub operator: String,
    /// Tensor that the node reads.
    pub input: String,
    /// Number of classes.
    pub classes: usize,
    /// Number of features from which a score is computed.
    pub features: usize,
}

/// Head and position in the graph.
#[derive(Debug, Clone)]
pub(crate) struct FoundHead {
    /// Layers in the order of the nodes. Distilled networks have two layers and add the scores; others have
    /// one.
    pub(crate) layers: Vec<HeadLayer>,
    /// Indices of the nodes after the head, in reverse order.
    pub(crate) tail: Vec<usize>,
}

/// Layer of a head.
#[derive(Debug, Clone)]
pub(crate) struct HeadLayer {
    pub(crate) head: Head,
    /// Index of the node.
    pub(crate) index: usize,
    /// Number of axes of size 1 that the weights have after features and classes.
    pub(crate) kernel: usize,
    /// Index of the `Add` after a `MatMul`, and the input slot of the bias.
    pub(crate) add: Option<(usize, usize)>,
}

impl FoundHead {
    pub(crate) fn first(&self) -> Option<&HeadLayer> {
        self.layers.first()
    }
}

/// Searches backward from the output for the head.
pub(crate) fn find(analysis: &Analysis<'_>, output: &str) -> Option<FoundHead> {
    let mut name = output;
    let mut scaled = false;
    // The mean of two heads is a sum followed by a division.
    while let Some((_, node)) = analysis.links.producer(name) {
        match node.standard_operator() {
            Some("Div" | "Mul") => (name, scaled) = (single(analysis, node)?, true),
            Some("Add") if single(analysis, node).is_none() => return sum(analysis, node),
            _ => break,
        }
    }
    if scaled { None } else { walk(analysis, output) }
}

/// Returns the data input of a node if the other input is a constant.
fn single<'a>(analysis: &Analysis<'_>, node: &'a NodeProto) -> Option<&'a str> {
    let left = node.input_name(0)?;
    let right = node.input_name(1)?;
    match (analysis.kinds.is_data(left), analysis.kinds.is_data(right)) {
        (true, false) => Some(left),
        (false, true) => Some(right),
        _ => None,
    }
}

/// Returns the two heads with the same number of classes whose scores `node` adds.
fn sum(analysis: &Analysis<'_>, node: &NodeProto) -> Option<FoundHead> {
    let mut layers: Vec<HeadLayer> = Vec::new();
    for slot in 0..2 {
        let head = walk(analysis, node.input_name(slot)?).filter(|found| found.tail.is_empty());
        layers.extend(head?.layers);
    }
    layers.sort_by_key(|layer| layer.index);
    let mut classes = layers.iter().map(|layer| layer.head.classes);
    let first = classes.next();
    let alike = classes.all(|classes| Some(classes) == first);
    let tail = Vec::new();
    alike.then_some(FoundHead { layers, tail })
}

fn walk(analysis: &Analysis<'_>, output: &str) -> Option<FoundHead> {
    let mut tail = Vec::new();
    let mut add = None;
    let mut name = output;
    loop {
        let (index, node) = analysis.links.producer(name)?;
        match operators::find(node)?.head {
            HeadPart::Layer | HeadPart::Product => {
                let layers = vec![layer(analysis, index, node, add)?];
                return Some(FoundHead { layers, tail });
            }
            HeadPart::Bias if add.is_none() => {
                let slot = (0..2).find(|&slot| {
                    node.input_name(slot)
                        .is_some_and(|name| !analysis.kinds.is_data(name))
                })?;
                add = Some((index, slot));
                name = node.input_name(1 - slot)?;
            }
            // Other nodes between a product and the bias are not supported.
            HeadPart::Tail if add.is_none() => {
                tail.push(index);
                name = node.input_name(0)?;
            }
            HeadPart::None | HeadPart::Bias | HeadPart::Tail => return None,
        }
    }
}

fn layer(
    analysis: &Analysis<'_>,
    index: usize,
    node: &NodeProto,
    add: Option<(usize, usize)>,
) -> Option<HeadLayer> {
    let input = node.input_name(0)?;
    let weight = node.input_name(1)?;
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
    Some(HeadLayer {
        head,
        index,
        kernel: dims.len().saturating_sub(2),
        add,
    })
}

/// Returns the values to which torchvision's and timm's classifiers apply dropout, in reverse order. These
/// are the inputs of the head's layers and of the linear layers before the head if only activations are in
/// between.
pub(crate) fn inputs(analysis: &Analysis<'_>, found: &FoundHead) -> Vec<String> {
    let mut inputs = Vec::new();
    for layer in &found.layers {
        let mut input = layer.head.input.clone();
        loop {
            let before = linear_before(analysis, &input);
            inputs.push(input);
            // The first linear layer is excluded, because it reads features.
            match before.filter(|name| linear_before(analysis, name).is_some()) {
                Some(name) => input = name.to_owned(),
                None => break,
            }
        }
    }
    inputs
}

/// Returns the input of the only linear layer (Gemm or MatMul) from which `name` is computed, provided that
/// the nodes in between are elementwise, the weight is stored and the input has two axes.
fn linear_before<'a>(analysis: &Analysis<'a>, name: &str) -> Option<&'a str> {
    let mut open = vec![analysis.links.producer(name)?];
    let mut found = None;
    let mut seen = HashSet::new();
    while let Some((index, node)) = open.pop() {
        if !seen.insert(index) {
            continue;
        }
        if operators::is_elementwise(node) {
            for input in analysis.data_inputs(node) {
                open.push(analysis.links.producer(input)?);
            }
            continue;
        }
        let layer = matches!(node.standard_operator(), Some("Gemm" | "MatMul"));
        let input = node.input_name(0).filter(|_| layer && found.is_none())?;
        let stored = node
            .input_name(1)
            .is_some_and(|weight| !analysis.kinds.is_data(weight));
        let rows = analysis.probes.dims(input)?.len() == 2;
        found = Some(input).filter(|_| stored && rows);
        found?;
    }
    found
}

/// Returns the number of classes and the number of features for weights with these dimensions. Returns `None`
/// if the layer cannot be a head.
fn scores(node: &NodeProto, dims: &[usize], added_bias: bool) -> Option<(usize, usize)> {
    match (node.op_type.as_str(), dims) {
        ("MatMul", &[features, classes]) => Some((classes, features)),
        _ if added_bias => None,
        ("Gemm", _) if node.int("transA").unwrap_or(0) != 0 => None,
        ("Gemm", &[features, classes]) if node.int("transB").unwrap_or(0) == 0 => Some((classes, features)),
        ("Gemm", &[classes, features]) => Some((classes, features)),
        ("Conv", &[classes, features, ref kernel @ ..])
            if kernel.iter().all(|&size| size == 1) && node.int("group").unwrap_or(1) == 1 =>
        {
            Some((classes, features))
        }
        _ => None,
    }
}
