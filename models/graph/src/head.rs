//! Finding the classifier head: the last layer that turns features into one score per class.

use crate::analysis::Analysis;
use crate::onnx::NodeProto;
use crate::operators::{self, HeadPart};
use crate::values::Dim;
use std::collections::HashSet;

/// What a head looks like, for messages.
pub(crate) const EXPECTED: &str = "expected the network to end in a Gemm, a MatMul with Add, or a 1x1 Conv with a pool, possibly \
                                   followed by reshapes and a Softmax, or in the sum or mean of two such layers";

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
    /// In the order of the nodes: one, or two whose scores are added, as a distilled network has them.
    pub(crate) layers: Vec<Layer>,
    /// Places of the nodes behind the head, last first.
    pub(crate) tail: Vec<usize>,
}

/// A layer of a head, with weights of its own.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    pub(crate) head: Head,
    /// The place of its node.
    pub(crate) index: usize,
    /// How many axes of size 1 its weights have behind features and classes.
    pub(crate) kernel: usize,
    /// The `Add` behind a `MatMul`, and its slot of the bias.
    pub(crate) add: Option<(usize, usize)>,
}

impl Found {
    /// The first of its layers.
    pub(crate) fn first(&self) -> Option<&Layer> {
        self.layers.first()
    }
}

/// Walks back from the output to the head.
pub(crate) fn find(analysis: &Analysis<'_>, output: &str) -> Option<Found> {
    let (mut name, mut scaled) = (output, false);
    // The mean of two heads is their sum, divided.
    while let Some((_, node)) = analysis.producer(name) {
        match node.standard_operator() {
            Some("Div" | "Mul") => (name, scaled) = (single(analysis, node)?, true),
            Some("Add") if single(analysis, node).is_none() => return sum(analysis, node),
            _ => break,
        }
    }
    if scaled { None } else { walk(analysis, output) }
}

/// The only one of a node's two inputs that is data, where the other is a number.
fn single<'a>(analysis: &Analysis<'_>, node: &'a NodeProto) -> Option<&'a str> {
    let (left, right) = (node.input_name(0)?, node.input_name(1)?);
    match (analysis.kinds.is_data(left), analysis.kinds.is_data(right)) {
        (true, false) => Some(left),
        (false, true) => Some(right),
        _ => None,
    }
}

/// Two heads of as many classes whose scores `node` adds.
fn sum(analysis: &Analysis<'_>, node: &NodeProto) -> Option<Found> {
    let head = |slot| walk(analysis, node.input_name(slot)?).filter(|found| found.tail.is_empty());
    let mut layers = [head(0)?.layers, head(1)?.layers].concat();
    layers.sort_by_key(|layer| layer.index);
    let mut classes = layers.iter().map(|layer| layer.head.classes);
    let first = classes.next();
    let alike = classes.all(|classes| Some(classes) == first);
    let tail = Vec::new();
    alike.then_some(Found { layers, tail })
}

fn walk(analysis: &Analysis<'_>, output: &str) -> Option<Found> {
    let mut tail = Vec::new();
    let mut add = None;
    let mut name = output;
    loop {
        let (index, node) = analysis.producer(name)?;
        match operators::find(node)?.head {
            HeadPart::Layer | HeadPart::Product => {
                let layers = vec![layer(analysis, index, node, add)?];
                return Some(Found { layers, tail });
            }
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

fn layer(
    analysis: &Analysis<'_>,
    index: usize,
    node: &NodeProto,
    add: Option<(usize, usize)>,
) -> Option<Layer> {
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
    Some(Layer {
        head,
        index,
        kernel: dims.len().saturating_sub(2),
        add,
    })
}

/// What the head's layers read, and the linear layers before them where nothing but an activation lies between, the last first:
/// where torchvision's and timm's classifiers drop elements.
pub(crate) fn inputs(analysis: &Analysis<'_>, found: &Found) -> Vec<String> {
    let mut inputs = Vec::new();
    for layer in &found.layers {
        let mut input = layer.head.input.clone();
        loop {
            let before = linear_before(analysis, &input);
            inputs.push(input);
            // The first linear layer reads features, not what another layer of the classifier gave.
            match before.filter(|name| linear_before(analysis, name).is_some()) {
                Some(name) => input = name.to_owned(),
                None => break,
            }
        }
    }
    inputs
}

/// What the linear layer reads of whose rows alone the value `name` is made, element by element.
fn linear_before<'a>(analysis: &Analysis<'a>, name: &str) -> Option<&'a str> {
    let mut open = vec![analysis.producer(name)?];
    let (mut found, mut seen) = (None, HashSet::new());
    while let Some((index, node)) = open.pop() {
        if !seen.insert(index) {
            continue;
        }
        if operators::is_elementwise(node) {
            for input in analysis.data_inputs(node) {
                open.push(analysis.producer(input)?);
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
