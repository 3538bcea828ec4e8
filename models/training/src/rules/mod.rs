//! Gradient rules. The rule of an operator emits the forward pass and records the backward pass on the tape.
//! All other properties of operators, including the operands that are weights, are in the table of
//! `frostline_graph`.

mod activations;
mod arithmetic;
mod attention;
mod choice;
mod convolution;
mod depthwise;
mod dropout;
mod einsum;
mod elementwise;
mod functions;
mod grouped;
mod groups;
mod layer_norm;
mod linear;
mod linear_map;
mod local;
mod movement;
mod normalization;
mod pad;
mod parts;
mod placing;
mod pooling;
mod quantization;
mod reduction;
mod repetition;
mod resize;
mod selection;
mod softmax;
mod standard;
mod tiled;
mod winograd;

pub(crate) use dropout::{dropout, mask_dims};
pub(crate) use quantization::quantized;

use crate::TrainingError;
use crate::call::Call;
use crate::tape::{Tape, Value};
use frostline_graph::onnx::data_type;

/// Emits the forward pass of a node and returns the output.
type Rule = fn(&mut Tape, &Call<'_>) -> Result<Value, TrainingError>;

/// Emits the forward pass of a node with several outputs and returns the outputs.
type RuleOfMany = fn(&mut Tape, &Call<'_>) -> Result<Vec<Value>, TrainingError>;

/// Standard ONNX operators that have a gradient.
pub(crate) const RULES: &[(&str, Rule)] = &[
    ("Abs", functions::abs),
    ("Add", arithmetic::add),
    ("Attention", attention::attention),
    ("AveragePool", pooling::average_pool),
    ("BatchNormalization", normalization::batch_normalization),
    ("Cast", movement::keep),
    ("CastLike", movement::keep),
    ("Celu", activations::celu),
    ("Clip", elementwise::clip),
    ("Concat", movement::concat),
    ("Conv", convolution::conv),
    ("DepthToSpace", movement::depth_to_space),
    ("Div", arithmetic::div),
    ("Dropout", movement::keep),
    ("Einsum", einsum::einsum),
    ("Elu", activations::elu),
    ("Erf", functions::erf),
    ("Exp", functions::exp),
    ("Expand", repetition::expand),
    ("Flatten", movement::reshape),
    ("Gather", selection::gather),
    ("GatherElements", selection::gather_elements),
    ("GatherND", selection::gather_nd),
    ("Gelu", functions::gelu),
    ("Gemm", linear::gemm),
    ("GlobalAveragePool", reduction::global_average_pool),
    ("GlobalMaxPool", pooling::global_max_pool),
    ("GroupNormalization", groups::group_normalization),
    ("HardSigmoid", activations::hard_sigmoid),
    ("HardSwish", activations::hard_swish),
    ("Identity", movement::keep),
    ("InstanceNormalization", groups::instance_normalization),
    ("LRN", local::lrn),
    ("LayerNormalization", layer_norm::layer_normalization),
    ("LeakyRelu", elementwise::leaky_relu),
    ("Log", functions::log),
    ("LogSoftmax", softmax::log_softmax),
    ("MatMul", linear::matmul),
    ("Max", choice::extreme),
    ("MaxPool", pooling::max_pool),
    ("Min", choice::extreme),
    ("Mish", activations::mish),
    ("Mul", arithmetic::mul),
    ("Neg", functions::neg),
    ("PRelu", activations::prelu),
    ("Pad", pad::pad),
    ("Pow", functions::pow),
    ("RMSNormalization", layer_norm::rms_normalization),
    ("Reciprocal", functions::reciprocal),
    ("ReduceL1", reduction::reduce_l1),
    ("ReduceL2", reduction::reduce_l2),
    ("ReduceLogSumExp", reduction::reduce_log_sum_exp),
    ("ReduceMax", reduction::reduce_extreme),
    ("ReduceMean", reduction::reduce_mean),
    ("ReduceMin", reduction::reduce_extreme),
    ("ReduceSum", reduction::reduce_sum),
    ("ReduceSumSquare", reduction::reduce_sum_square),
    ("Relu", elementwise::relu),
    ("Reshape", movement::reshape),
    ("Resize", resize::resize),
    ("ScatterND", selection::scatter_nd),
    ("Selu", activations::selu),
    ("Sigmoid", elementwise::sigmoid),
    ("Slice", selection::slice),
    ("Softmax", softmax::softmax),
    ("Softplus", activations::softplus),
    ("Softsign", activations::softsign),
    ("SpaceToDepth", movement::space_to_depth),
    ("Sqrt", functions::sqrt),
    ("Squeeze", movement::reshape),
    ("Sub", arithmetic::sub),
    ("Swish", activations::swish),
    ("Tanh", elementwise::tanh),
    ("Tile", repetition::tile),
    ("Transpose", movement::transpose),
    ("Unsqueeze", movement::reshape),
    ("Where", choice::select),
];

/// Standard ONNX operators with several outputs that have a gradient.
pub(crate) const RULES_OF_MANY: &[(&str, RuleOfMany)] = &[("Split", selection::split)];

/// Operators whose outputs are not floating point and constant almost everywhere, so that the gradient is
/// zero.
const STEPS: &[&str] = &[
    "ArgMax",
    "ArgMin",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "IsInf",
    "IsNaN",
    "Less",
    "LessOrEqual",
    "NonZero",
    "Shape",
    "Size",
];

/// Operators that only move the elements of the first operand.
const MOVING: &[&str] = &[
    "Flatten",
    "Identity",
    "Reshape",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
];

/// Returns true if the node only moves the elements of the first operand.
pub(crate) fn moves(call: &Call<'_>) -> bool {
    call.node
        .standard_operator()
        .is_some_and(|operator| MOVING.contains(&operator))
}

/// Returns true if the gradient of the node is zero by definition, because the output is not floating point.
/// A quantized output represents numbers, so this does not apply to it.
pub(crate) fn has_no_gradient(call: &Call<'_>) -> bool {
    match call.node.standard_operator() {
        Some("Cast" | "CastLike") => {
            let output = call
                .node
                .output_name(0)
                .and_then(|name| call.source.shapes.get(name));
            output.is_some_and(|output| is_integer(output.data_type))
        }
        operator => operator.is_some_and(|operator| STEPS.contains(&operator)),
    }
}

fn is_integer(code: i32) -> bool {
    (data_type::UINT8..=data_type::INT64).contains(&code)
        || [data_type::BOOL, data_type::UINT32, data_type::UINT64].contains(&code)
}

pub(crate) fn exists(call: &Call<'_>) -> bool {
    let names = RULES.iter().map(|(name, _)| *name);
    let mut names = names.chain(RULES_OF_MANY.iter().map(|(name, _)| *name));
    names.any(|name| Some(name) == call.node.standard_operator())
}

/// Emits a node by the rule of the operator and returns the outputs.
pub(crate) fn forward(tape: &mut Tape, call: &Call<'_>) -> Result<Vec<Value>, TrainingError> {
    let operator = call.node.standard_operator();
    if let Some((_, rule)) = RULES.iter().find(|(name, _)| Some(*name) == operator) {
        return rule(tape, call).map(|output| vec![output]);
    }
    let rule = RULES_OF_MANY.iter().find(|(name, _)| Some(*name) == operator);
    rule.map_or_else(|| Err(call.no_rule()), |(_, rule)| rule(tape, call))
}
