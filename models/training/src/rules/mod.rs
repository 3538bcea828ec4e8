//! The one table of gradients: a rule per operator emits its forward pass and leaves on the tape what its backward pass will
//! emit. What else is known of an operator, its weights among it, stands in the table of `frostline_graph`.

mod arithmetic;
mod convolution;
mod elementwise;
mod linear;
mod movement;
mod normalization;
mod pooling;
mod reduction;
mod softmax;

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
    ("Clip", elementwise::clip),
    ("Concat", movement::concat),
    ("Conv", convolution::conv),
    ("Div", arithmetic::div),
    ("Dropout", movement::keep),
    ("Flatten", movement::reshape),
    ("Gemm", linear::gemm),
    ("GlobalAveragePool", reduction::global_average_pool),
    ("Identity", movement::keep),
    ("LeakyRelu", elementwise::leaky_relu),
    ("MatMul", linear::matmul),
    ("MaxPool", pooling::max_pool),
    ("Mul", arithmetic::mul),
    ("ReduceMean", reduction::reduce_mean),
    ("Relu", elementwise::relu),
    ("Reshape", movement::reshape),
    ("Sigmoid", elementwise::sigmoid),
    ("Softmax", softmax::softmax),
    ("Squeeze", movement::reshape),
    ("Sub", arithmetic::sub),
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
