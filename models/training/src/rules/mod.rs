//! The one table of gradients: a rule per operator emits its forward pass and leaves on the tape what its backward pass will
//! emit. What else is known of an operator, its weights among it, stands in the table of `frostline_graph`.

mod activations;
mod arithmetic;
mod convolution;
mod dropout;
mod elementwise;
mod grouped;
mod groups;
mod linear;
mod local;
mod movement;
mod normalization;
mod pooling;
mod reduction;
mod resampling;
mod softmax;
mod standard;

pub(crate) use dropout::dropout;

use crate::TrainingError;
use crate::call::Call;
use crate::tape::{Tape, Value};

/// Emits the forward pass of a node and returns its output.
type Rule = fn(&mut Tape, &Call<'_>) -> Result<Value, TrainingError>;

/// ONNX's own operators that have a gradient.
pub(crate) const RULES: &[(&str, Rule)] = &[
    ("Add", arithmetic::add),
    ("AveragePool", pooling::average_pool),
    ("BatchNormalization", normalization::batch_normalization),
    ("Cast", movement::cast),
    ("Celu", activations::celu),
    ("Clip", elementwise::clip),
    ("Concat", movement::concat),
    ("Conv", convolution::conv),
    ("DepthToSpace", movement::depth_to_space),
    ("Div", arithmetic::div),
    ("Dropout", movement::keep),
    ("Elu", activations::elu),
    ("Flatten", movement::reshape),
    ("Gemm", linear::gemm),
    ("GlobalAveragePool", reduction::global_average_pool),
    ("GlobalMaxPool", pooling::global_max_pool),
    ("GroupNormalization", groups::group_normalization),
    ("HardSigmoid", activations::hard_sigmoid),
    ("HardSwish", activations::hard_swish),
    ("Identity", movement::keep),
    ("InstanceNormalization", groups::instance_normalization),
    ("LRN", local::lrn),
    ("LeakyRelu", elementwise::leaky_relu),
    ("MatMul", linear::matmul),
    ("MaxPool", pooling::max_pool),
    ("Mish", activations::mish),
    ("Mul", arithmetic::mul),
    ("PRelu", activations::prelu),
    ("Pad", resampling::pad),
    ("ReduceMean", reduction::reduce_mean),
    ("Relu", elementwise::relu),
    ("Reshape", movement::reshape),
    ("Resize", resampling::resize),
    ("Selu", activations::selu),
    ("Sigmoid", elementwise::sigmoid),
    ("Softmax", softmax::softmax),
    ("Softplus", activations::softplus),
    ("Softsign", activations::softsign),
    ("SpaceToDepth", movement::space_to_depth),
    ("Squeeze", movement::reshape),
    ("Sub", arithmetic::sub),
    ("Swish", activations::swish),
    ("Tanh", elementwise::tanh),
    ("Transpose", movement::transpose),
    ("Unsqueeze", movement::reshape),
];

/// Emits a node by the rule of its operator.
pub(crate) fn forward(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    let operator = call.node.standard_operator();
    let rule = RULES.iter().find(|(name, _)| Some(*name) == operator);
    rule.map_or_else(|| Err(call.no_rule()), |(_, rule)| rule(tape, call))
}
