//! Which rule belongs to which operator.

use super::{Context, Ruled, Stop, Value, elementwise, evaluate, layers, layout, mismatch, windows};
use crate::onnx::data_type;

/// Axes a value may have. Networks use up to six or so; without a bound a stranger's model could make every shape long.
const MOST_AXES: usize = 64;

/// The outputs of a node; what is computable from known values is computed.
pub(crate) fn apply(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let operator = context.node.standard_operator().ok_or(Stop::Unknown)?;
    let mut outputs = shapes(context, operator)?;
    if outputs
        .iter()
        .filter_map(|output| output.dims.as_ref())
        .any(|dims| dims.len() > MOST_AXES)
    {
        return mismatch(format!("more than {MOST_AXES} axes"));
    }
    if let Some(first) = outputs.first_mut()
        && first.literal.is_none()
    {
        first.literal = evaluate::evaluate(context, operator, first);
    }
    Ok(outputs)
}

fn shapes(context: &Context<'_>, operator: &str) -> Ruled<Vec<Value>> {
    match operator {
        "Conv" => windows::convolution(context),
        "ConvTranspose" => windows::transposed_convolution(context),
        "MaxPool" | "AveragePool" | "LpPool" => windows::pool(context),
        "GlobalAveragePool" | "GlobalMaxPool" | "GlobalLpPool" => windows::global_pool(context),
        "Gemm" => layers::gemm(context),
        "MatMul" => layers::matmul(context),
        "ArgMax" | "ArgMin" => layers::arg_extreme(context),
        _ if operator.starts_with("Reduce") => layers::reduce(context),
        "OneHot" => layers::one_hot(context),
        "TopK" => layers::top_k(context),
        "Constant" => layers::constant(context),
        "Range" => layers::range(context),
        "Shape" => layers::shape(context),
        "Size" => layers::size(context),
        "ConstantOfShape" => layers::constant_of_shape(context),
        "Flatten" => layout::flatten(context),
        "Reshape" => layout::reshape(context),
        "Transpose" => layout::transpose(context),
        "Concat" => layout::concat(context),
        "Slice" => layout::slice(context),
        "Gather" => layout::gather(context),
        "GatherElements" => layout::gather_elements(context),
        "Split" => layout::split(context),
        "Squeeze" => layout::squeeze(context),
        "Unsqueeze" => layout::unsqueeze(context),
        "Expand" => layout::expand(context),
        "Tile" => layout::tile(context),
        "Pad" => layout::pad(context),
        "Resize" | "Upsample" => layout::resize(context),
        "DepthToSpace" => layout::depth_to_space(context),
        "SpaceToDepth" => layout::space_to_depth(context),
        "Cast" => elementwise::cast(context),
        "Where" => elementwise::choose(context),
        _ if elementwise::COMPARING.contains(&operator) => elementwise::broadcast(context, data_type::BOOL),
        _ if elementwise::BROADCASTING.contains(&operator) => {
            elementwise::broadcast(context, context.data_type(0))
        }
        _ if elementwise::POINTWISE.contains(&operator) => elementwise::same(context),
        _ if elementwise::MIXING_IN_PLACE.contains(&operator) => elementwise::same(context),
        _ => Err(Stop::Unknown),
    }
}
