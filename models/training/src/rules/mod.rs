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
use crate::call::NodeCall;
use crate::tape::{Tape, Value};
use frostline_graph::onnx::data_type;

/// Rule of an operator.
pub(crate) enum Rule {
    /// Emits the forward pass of a node and returns the output.
    Single(fn(&mut Tape, &NodeCall<'_>) -> Result<Value, TrainingError>),
    /// Emits the forward pass of a node with several outputs and returns the outputs.
    Several(fn(&mut Tape, &NodeCall<'_>) -> Result<Vec<Value>, TrainingError>),
    /// Emits the gradient of an elementwise operator with a single operand.
    Elementwise(elementwise::Backward),
    /// Emits the gradient of a reduction.
    Reduction(reduction::Backward),
}

use Rule::{Elementwise, Reduction, Several, Single};

/// Standard ONNX operators that have a gradient.
pub(crate) const RULES: &[(&str, Rule)] = &[
    ("Abs", Elementwise(functions::abs)),
    ("Add", Single(arithmetic::add)),
    ("Attention", Single(attention::attention)),
    ("AveragePool", Single(pooling::average_pool)),
    ("BatchNormalization", Single(normalization::batch_normalization)),
    ("Cast", Single(movement::keep)),
    ("CastLike", Single(movement::keep)),
    ("Celu", Single(activations::celu)),
    ("Clip", Single(elementwise::clip)),
    ("Concat", Single(movement::concat)),
    ("Conv", Single(convolution::conv)),
    ("DepthToSpace", Single(movement::depth_to_space)),
    ("Div", Single(arithmetic::div)),
    ("Dropout", Single(movement::keep)),
    ("Einsum", Single(einsum::einsum)),
    ("Elu", Elementwise(activations::elu)),
    ("Erf", Elementwise(functions::erf)),
    ("Exp", Elementwise(functions::exp)),
    ("Expand", Single(repetition::expand)),
    ("Flatten", Single(movement::reshape)),
    ("Gather", Single(selection::gather)),
    ("GatherElements", Single(selection::gather_elements)),
    ("GatherND", Single(selection::gather_nd)),
    ("Gelu", Elementwise(functions::gelu)),
    ("Gemm", Single(linear::gemm)),
    ("GlobalAveragePool", Single(reduction::global_average_pool)),
    ("GlobalMaxPool", Single(pooling::global_max_pool)),
    ("GroupNormalization", Single(groups::group_normalization)),
    ("HardSigmoid", Elementwise(activations::hard_sigmoid)),
    ("HardSwish", Single(activations::hard_swish)),
    ("Identity", Single(movement::keep)),
    ("InstanceNormalization", Single(groups::instance_normalization)),
    ("LRN", Single(local::lrn)),
    ("LayerNormalization", Single(layer_norm::layer_normalization)),
    ("LeakyRelu", Elementwise(elementwise::leaky_relu)),
    ("Log", Elementwise(functions::log)),
    ("LogSoftmax", Single(softmax::log_softmax)),
    ("MatMul", Single(linear::matmul)),
    ("Max", Single(choice::extreme)),
    ("MaxPool", Single(pooling::max_pool)),
    ("Min", Single(choice::extreme)),
    ("Mish", Single(activations::mish)),
    ("Mul", Single(arithmetic::mul)),
    ("Neg", Elementwise(functions::neg)),
    ("PRelu", Single(activations::prelu)),
    ("Pad", Single(pad::pad)),
    ("Pow", Single(functions::pow)),
    ("RMSNormalization", Single(layer_norm::rms_normalization)),
    ("Reciprocal", Elementwise(functions::reciprocal)),
    ("ReduceL1", Reduction(reduction::reduce_l1)),
    ("ReduceL2", Reduction(reduction::reduce_l2)),
    ("ReduceLogSumExp", Reduction(reduction::reduce_log_sum_exp)),
    ("ReduceMax", Reduction(reduction::reduce_extreme)),
    ("ReduceMean", Single(reduction::reduce_mean)),
    ("ReduceMin", Reduction(reduction::reduce_extreme)),
    ("ReduceSum", Reduction(reduction::reduce_sum)),
    ("ReduceSumSquare", Reduction(reduction::reduce_sum_square)),
    ("Relu", Elementwise(elementwise::relu)),
    ("Reshape", Single(movement::reshape)),
    ("Resize", Single(resize::resize)),
    ("ScatterND", Single(selection::scatter_nd)),
    ("Selu", Elementwise(activations::selu)),
    ("Sigmoid", Elementwise(elementwise::sigmoid)),
    ("Slice", Single(selection::slice)),
    ("Softmax", Single(softmax::softmax)),
    ("Softplus", Elementwise(activations::softplus)),
    ("Softsign", Elementwise(activations::softsign)),
    ("SpaceToDepth", Single(movement::space_to_depth)),
    ("Split", Several(selection::split)),
    ("Sqrt", Elementwise(functions::sqrt)),
    ("Squeeze", Single(movement::reshape)),
    ("Sub", Single(arithmetic::sub)),
    ("Swish", Single(activations::swish)),
    ("Tanh", Elementwise(elementwise::tanh)),
    ("Tile", Single(repetition::tile)),
    ("Transpose", Single(movement::transpose)),
    ("Unsqueeze", Single(movement::reshape)),
    ("Where", Single(choice::select)),
];

/// Returns true if the gradient of the node is zero by definition, because the output is an integer or a truth
/// value. A quantized output represents numbers, so this does not apply to it.
pub(crate) fn has_no_gradient(call: &NodeCall<'_>) -> bool {
    // The type of an output with an unknown shape is unknown as well.
    let has_unknown_shape = call.node.standard_operator() == Some("NonZero");
    has_unknown_shape || call.output_type().is_some_and(is_integer)
}

fn is_integer(code: i32) -> bool {
    (data_type::UINT8..=data_type::INT64).contains(&code)
        || [data_type::BOOL, data_type::UINT32, data_type::UINT64].contains(&code)
}

fn rule(call: &NodeCall<'_>) -> Option<&'static Rule> {
    let operator = call.node.standard_operator()?;
    let mut rules = RULES.iter();
    rules.find(|(name, _)| *name == operator).map(|(_, rule)| rule)
}

pub(crate) fn exists(call: &NodeCall<'_>) -> bool {
    rule(call).is_some()
}

/// Emits a node by the rule of the operator and returns the outputs.
pub(crate) fn forward(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Vec<Value>, TrainingError> {
    let output = match rule(call).ok_or_else(|| call.no_rule())? {
        Single(rule) => rule(tape, call),
        Several(rule) => return rule(tape, call),
        Elementwise(backward) => elementwise::function(tape, call, *backward),
        Reduction(backward) => reduction::reduce(tape, call, *backward),
    };
    output.map(|output| vec![output])
}
