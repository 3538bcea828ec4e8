//! Cost of nodes, used to compare the depth of cuts and to limit the work per sample.

use crate::onnx::{NodeProto, data_type};
use crate::operators;
use crate::values::{NodeSizes, Probes};

/// Returns the multiply-adds of a node for a batch of the smaller probe size. Operators without multiply-adds
/// count the elements that they write or, for pools and reductions, read. Returns 0 if a shape is unknown.
pub(crate) fn work(node: &NodeProto, probes: &Probes) -> f64 {
    let sizes = NodeSizes { node, probes };
    operators::find(node).map_or_else(|| sizes.touched(), |operator| (operator.work)(&sizes))
}

/// Price of an element in the fastest kernels, which are limited by memory. The time is one to two
/// nanoseconds.
const VISIT: f64 = 50.0;

/// Operators whose price is for a multiply-add. The prices of the others are for an element.
pub(crate) const PRODUCTS: &[&str] = &["Attention", "Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"];

/// Element types of [`PRICES`].
const TYPES: [i32; 8] = [
    data_type::FLOAT,
    data_type::FLOAT16,
    data_type::DOUBLE,
    data_type::INT32,
    data_type::INT64,
    data_type::UINT8,
    data_type::INT8,
    data_type::BOOL,
];

/// Prices of operators by element type: the multiply-adds of an f32 convolution that take as long on a single
/// thread. 0 if ONNX Runtime has no kernel for the type. `cargo xtask bench operators` prints this table.
/// Measured with ONNX Runtime 1.31.1, whose convolutions reach 50 billion multiply-adds per second on the
/// measured core.
#[rustfmt::skip]
const PRICES: &[(&str, [u16; TYPES.len()])] = &[
    ("Abs", [50, 50, 76, 50, 50, 50, 50, 0]),
    ("Add", [50, 50, 81, 50, 50, 50, 50, 0]),
    ("And", [0, 0, 0, 0, 0, 0, 0, 50]),
    ("ArgMax", [50, 50, 120, 50, 80, 50, 50, 0]),
    ("ArgMin", [50, 50, 110, 50, 83, 50, 50, 0]),
    ("Attention", [1, 1, 6, 0, 0, 0, 0, 0]),
    ("AveragePool", [50, 50, 0, 0, 0, 0, 0, 0]),
    ("BatchNormalization", [50, 50, 50, 0, 0, 0, 0, 0]),
    ("Cast", [50, 75, 110, 82, 67, 50, 50, 50]),
    ("CastLike", [50, 85, 50, 50, 50, 50, 50, 50]),
    ("Ceil", [50, 50, 93, 0, 0, 0, 0, 0]),
    ("Celu", [170, 0, 0, 0, 0, 0, 0, 0]),
    ("Clip", [50, 100, 50, 50, 50, 50, 50, 0]),
    ("Concat", [50, 50, 100, 50, 51, 50, 50, 50]),
    ("Conv", [1, 1, 0, 0, 0, 0, 0, 0]),
    ("ConvTranspose", [2, 1, 0, 0, 0, 0, 0, 0]),
    ("Cos", [110, 96, 450, 0, 0, 0, 0, 0]),
    ("CumSum", [50, 50, 79, 50, 50, 0, 0, 0]),
    ("DepthToSpace", [220, 190, 300, 0, 0, 110, 81, 0]),
    ("DequantizeLinear", [0, 0, 0, 50, 0, 50, 50, 0]),
    ("Div", [50, 50, 84, 50, 110, 69, 120, 0]),
    ("Dropout", [50, 50, 50, 0, 0, 0, 0, 0]),
    ("Einsum", [1, 1, 2, 6, 20, 0, 0, 0]),
    ("Elu", [110, 150, 0, 0, 0, 0, 0, 0]),
    ("Equal", [50, 50, 57, 50, 50, 50, 50, 50]),
    ("Erf", [56, 50, 0, 0, 0, 0, 0, 0]),
    ("Exp", [50, 50, 260, 0, 0, 0, 0, 0]),
    ("Expand", [50, 50, 50, 50, 50, 50, 50, 50]),
    ("Flatten", [50, 50, 54, 50, 50, 50, 50, 50]),
    ("Floor", [50, 50, 87, 0, 0, 0, 0, 0]),
    ("Gather", [50, 50, 50, 50, 50, 50, 50, 50]),
    ("GatherElements", [320, 260, 340, 270, 270, 330, 290, 280]),
    ("GatherND", [380, 630, 420, 360, 360, 400, 410, 410]),
    ("Gelu", [50, 55, 0, 0, 0, 0, 0, 0]),
    ("Gemm", [1, 1, 2, 0, 0, 0, 0, 0]),
    ("GlobalAveragePool", [50, 50, 0, 0, 0, 0, 0, 0]),
    ("GlobalLpPool", [560, 570, 0, 0, 0, 0, 0, 0]),
    ("GlobalMaxPool", [50, 50, 0, 0, 0, 0, 0, 0]),
    ("Greater", [50, 50, 53, 50, 50, 50, 50, 0]),
    ("GreaterOrEqual", [50, 50, 56, 50, 50, 50, 50, 0]),
    ("GroupNormalization", [50, 50, 110, 0, 0, 0, 0, 0]),
    ("HardSigmoid", [50, 50, 0, 0, 0, 0, 0, 0]),
    ("HardSwish", [50, 50, 0, 0, 0, 0, 0, 0]),
    ("Hardmax", [67, 71, 0, 0, 0, 0, 0, 0]),
    ("Identity", [50, 50, 50, 50, 50, 50, 50, 50]),
    ("InstanceNormalization", [50, 50, 0, 0, 0, 0, 0, 0]),
    ("IsInf", [50, 0, 65, 0, 0, 0, 0, 0]),
    ("IsNaN", [50, 50, 72, 0, 0, 0, 0, 0]),
    ("LRN", [250, 250, 0, 0, 0, 0, 0, 0]),
    ("LayerNormalization", [50, 50, 370, 0, 0, 0, 0, 0]),
    ("LeakyRelu", [50, 87, 250, 0, 0, 0, 0, 0]),
    ("Less", [50, 50, 86, 50, 50, 50, 50, 0]),
    ("LessOrEqual", [50, 50, 58, 50, 50, 50, 50, 0]),
    ("Log", [98, 73, 310, 0, 0, 0, 0, 0]),
    ("LogSoftmax", [100, 50, 570, 0, 0, 0, 0, 0]),
    ("LpNormalization", [140, 87, 260, 0, 0, 0, 0, 0]),
    ("LpPool", [660, 630, 0, 0, 0, 0, 0, 0]),
    ("MatMul", [1, 1, 3, 7, 19, 0, 0, 0]),
    ("Max", [50, 250, 75, 50, 50, 50, 50, 0]),
    ("MaxPool", [50, 50, 59, 0, 0, 50, 50, 0]),
    ("Mean", [50, 50, 0, 0, 0, 0, 0, 0]),
    ("MeanVarianceNormalization", [50, 50, 0, 0, 0, 0, 0, 0]),
    ("Min", [50, 240, 68, 50, 50, 50, 50, 0]),
    ("Mish", [590, 120, 750, 0, 0, 0, 0, 0]),
    ("Mod", [310, 340, 350, 350, 330, 320, 350, 0]),
    ("Mul", [50, 50, 71, 50, 50, 50, 50, 0]),
    ("Neg", [50, 50, 78, 50, 50, 0, 50, 0]),
    ("Not", [0, 0, 0, 0, 0, 0, 0, 50]),
    ("OneHot", [0, 0, 0, 0, 93, 0, 0, 0]),
    ("Or", [0, 0, 0, 0, 0, 0, 0, 50]),
    ("PRelu", [50, 59, 240, 91, 190, 0, 0, 0]),
    ("Pad", [50, 50, 97, 50, 61, 50, 50, 50]),
    ("Pow", [250, 230, 570, 370, 360, 0, 0, 0]),
    ("QuantizeLinear", [50, 0, 0, 0, 0, 0, 0, 0]),
    ("RMSNormalization", [50, 50, 140, 0, 0, 0, 0, 0]),
    ("Reciprocal", [50, 50, 83, 0, 0, 0, 0, 0]),
    ("ReduceL1", [50, 50, 93, 50, 160, 0, 0, 0]),
    ("ReduceL2", [50, 50, 130, 50, 160, 0, 0, 0]),
    ("ReduceLogSum", [50, 50, 120, 50, 170, 0, 0, 0]),
    ("ReduceLogSumExp", [220, 220, 360, 75, 180, 0, 0, 0]),
    ("ReduceMax", [50, 50, 63, 50, 50, 50, 50, 0]),
    ("ReduceMean", [50, 50, 50, 50, 76, 0, 0, 0]),
    ("ReduceMin", [50, 50, 74, 50, 50, 50, 50, 0]),
    ("ReduceProd", [50, 50, 120, 60, 89, 0, 0, 0]),
    ("ReduceSum", [50, 50, 50, 50, 160, 0, 0, 0]),
    ("ReduceSumSquare", [50, 50, 120, 50, 160, 0, 0, 0]),
    ("Relu", [50, 50, 50, 50, 0, 0, 50, 0]),
    ("Reshape", [50, 50, 50, 50, 50, 50, 50, 50]),
    ("Resize", [5600, 6000, 0, 230, 0, 180, 200, 0]),
    ("Round", [50, 130, 79, 0, 0, 0, 0, 0]),
    ("ScatterND", [300, 270, 610, 280, 310, 260, 270, 250]),
    ("Selu", [110, 87, 0, 0, 0, 0, 0, 0]),
    ("Shrink", [50, 120, 84, 50, 50, 50, 52, 0]),
    ("Sigmoid", [50, 50, 520, 0, 0, 0, 0, 0]),
    ("Sign", [65, 50, 90, 50, 50, 50, 50, 0]),
    ("Sin", [110, 86, 440, 0, 0, 0, 0, 0]),
    ("Slice", [50, 50, 79, 50, 51, 59, 51, 62]),
    ("Softmax", [95, 50, 560, 0, 0, 0, 0, 0]),
    ("Softplus", [570, 550, 0, 0, 0, 0, 0, 0]),
    ("Softsign", [50, 50, 0, 0, 0, 0, 0, 0]),
    ("SpaceToDepth", [69, 95, 280, 0, 0, 86, 68, 0]),
    ("Split", [50, 50, 110, 50, 50, 50, 50, 50]),
    ("Sqrt", [50, 50, 110, 0, 0, 0, 0, 0]),
    ("Squeeze", [50, 50, 56, 50, 50, 50, 50, 50]),
    ("Sub", [50, 50, 73, 50, 50, 50, 50, 0]),
    ("Sum", [50, 50, 94, 0, 0, 0, 0, 0]),
    ("Swish", [50, 50, 580, 0, 0, 0, 0, 0]),
    ("Tan", [630, 610, 0, 0, 0, 0, 0, 0]),
    ("Tanh", [50, 50, 220, 0, 0, 0, 0, 0]),
    ("ThresholdedRelu", [50, 50, 0, 0, 0, 0, 0, 0]),
    ("Tile", [61, 63, 93, 70, 50, 58, 56, 59]),
    ("TopK", [1700, 1600, 1700, 290, 370, 320, 330, 0]),
    ("Transpose", [360, 340, 500, 400, 460, 320, 330, 330]),
    ("Trilu", [50, 50, 81, 50, 50, 0, 0, 50]),
    ("Unsqueeze", [50, 50, 75, 50, 50, 50, 50, 50]),
    ("Upsample", [150, 130, 0, 210, 0, 290, 320, 0]),
    ("Where", [58, 50, 180, 58, 120, 50, 50, 0]),
    ("Xor", [0, 0, 0, 0, 0, 0, 0, 50]),
];

/// Returns the processor time of a node for a batch of the smaller probe size, expressed in multiply-adds of
/// an f32 convolution. Pairs of operator and type that are not in the table have the highest price.
pub(crate) fn time(node: &NodeProto, probes: &Probes) -> f64 {
    let sizes = NodeSizes { node, probes };
    let operator = operators::find(node);
    if operator.is_some_and(|operator| operator.reads_shape) {
        return sizes.output();
    }
    let price = price(node, probes);
    let taps = operator.map_or(1.0, |operator| (operator.taps)(node));
    let visits = sizes.touched().max(sizes.output() * taps);
    match operator.filter(|operator| PRODUCTS.contains(&operator.name)) {
        Some(product) => ((product.work)(&sizes) * price).max(VISIT * visits),
        None => visits * price,
    }
}

/// Returns the price for the type of the first input with numbers, or of the first input if all inputs are
/// truth values.
fn price(node: &NodeProto, probes: &Probes) -> f64 {
    let inputs = node.input.iter().filter(|name| !name.is_empty());
    let kinds: Vec<i32> = inputs.map(|name| probes.data_type(name)).collect();
    let number = kinds.iter().find(|kind| **kind != data_type::BOOL);
    let kind = number.or(kinds.first());
    let operator = node.standard_operator().unwrap_or_default();
    let row = PRICES.iter().find(|(name, _)| *name == operator);
    let column = kind.and_then(|kind| TYPES.iter().position(|known| known == kind));
    let listed = row
        .zip(column)
        .and_then(|((_, prices), column)| prices.get(column));
    let price = listed.filter(|price| **price > 0).copied();
    f64::from(price.unwrap_or_else(|| highest(PRODUCTS.contains(&operator))))
}

/// Returns the highest price of the products or of the other operators.
fn highest(products: bool) -> u16 {
    let same = PRICES
        .iter()
        .filter(|(name, _)| PRODUCTS.contains(name) == products);
    same.flat_map(|(_, prices)| *prices).max().unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;
    use crate::build::{batched, model, node, value};
    use crate::onnx::GraphProto;

    /// Returns the price of an operator for two inputs of type `kind`.
    fn price_of(operator: &str, kind: i32) -> f64 {
        let graph = GraphProto {
            node: vec![node("Cast", &["x"], &["y"])],
            input: vec![batched("x", &[4])],
            output: vec![value("y", 1, &[])],
            ..GraphProto::default()
        };
        let network = Model::from_proto(model(17, graph)).unwrap();
        let mut probes = Probes::start(&network).unwrap();
        let typed = crate::onnx::TensorProto {
            name: "t".into(),
            data_type: kind,
            ..crate::onnx::TensorProto::default()
        };
        probes.add(&typed).unwrap();
        price(&node(operator, &["t", "t"], &["z"]), &probes)
    }

    #[test]
    fn kernels_of_a_type_have_their_own_price_and_unknown_ones_the_highest() {
        let [float, long, bfloat] = [data_type::FLOAT, data_type::INT64, data_type::BFLOAT16];
        assert_eq!(price_of("Conv", float), 1.0);
        assert!(price_of("MatMul", long) >= 10.0 * price_of("MatMul", float));
        assert!(price_of("Conv", long) >= price_of("MatMul", long), "no kernel");
        let highest = price_of("Range", float);
        assert!(
            PRICES
                .iter()
                .all(|(name, _)| PRODUCTS.contains(name) || price_of(name, float) <= highest)
        );
        assert_eq!(price_of("Relu", bfloat), highest);
    }

    #[test]
    fn the_table_has_every_operator_that_reads_values() {
        let unlisted: Vec<&str> = operators::admitted()
            .filter(|operator| !operator.reads_shape)
            .filter(|operator| PRICES.iter().all(|(name, _)| *name != operator.name))
            .map(|operator| operator.name)
            .collect();
        assert_eq!(unlisted, ["Constant", "ConstantOfShape", "Range"]);
    }
}
