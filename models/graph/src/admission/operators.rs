//! The operators that are taken: those of image classifiers, each with a known rule for the shape of its result. Nothing that
//! branches or loops, draws random numbers, works on texts, sequences or sparse tensors, or has a result as long as its data says.

/// The versions of ONNX's operators that are taken: what ONNX Runtime still reads, up to the newest the shape rules were compared with.
pub(super) const OPSETS: std::ops::RangeInclusive<i64> = 7..=25;

/// Operators that hold graphs of their own.
pub(super) const CONTROL_FLOW: &[&str] = &["If", "Loop", "Scan", "SequenceMap"];

/// No later version has dropped it.
const STILL: i64 = i64::MAX;

/// Each operator with the first and the last version of ONNX's operators that has it, sorted by name. Versions below 7 are 1: they
/// are refused anyway.
const ALLOWED: &[(&str, i64, i64)] = &[
    ("Abs", 1, STILL),
    ("Add", 1, STILL),
    ("And", 1, STILL),
    ("ArgMax", 1, STILL),
    ("ArgMin", 1, STILL),
    ("AveragePool", 1, STILL),
    ("BatchNormalization", 1, STILL),
    ("Cast", 1, STILL),
    ("CastLike", 15, STILL),
    ("Ceil", 1, STILL),
    ("Celu", 12, STILL),
    ("Clip", 1, STILL),
    ("Concat", 1, STILL),
    ("Constant", 1, STILL),
    ("ConstantOfShape", 9, STILL),
    ("Conv", 1, STILL),
    ("ConvTranspose", 1, STILL),
    ("Cos", 7, STILL),
    ("CumSum", 11, STILL),
    ("DepthToSpace", 1, STILL),
    ("Div", 1, STILL),
    ("Dropout", 1, STILL),
    ("Elu", 1, STILL),
    ("Equal", 1, STILL),
    ("Erf", 9, STILL),
    ("Exp", 1, STILL),
    ("Expand", 8, STILL),
    ("Flatten", 1, STILL),
    ("Floor", 1, STILL),
    ("Gather", 1, STILL),
    ("GatherElements", 11, STILL),
    ("Gelu", 20, STILL),
    ("Gemm", 1, STILL),
    ("GlobalAveragePool", 1, STILL),
    ("GlobalLpPool", 1, STILL),
    ("GlobalMaxPool", 1, STILL),
    ("Greater", 1, STILL),
    ("GreaterOrEqual", 12, STILL),
    ("GroupNormalization", 18, STILL),
    ("HardSigmoid", 1, STILL),
    ("HardSwish", 14, STILL),
    ("Hardmax", 1, STILL),
    ("Identity", 1, STILL),
    ("InstanceNormalization", 1, STILL),
    ("LRN", 1, STILL),
    ("LayerNormalization", 17, STILL),
    ("LeakyRelu", 1, STILL),
    ("Less", 1, STILL),
    ("LessOrEqual", 12, STILL),
    ("Log", 1, STILL),
    ("LogSoftmax", 1, STILL),
    ("LpNormalization", 1, STILL),
    ("LpPool", 1, STILL),
    ("MatMul", 1, STILL),
    ("Max", 1, STILL),
    ("MaxPool", 1, STILL),
    ("Mean", 1, STILL),
    ("MeanVarianceNormalization", 9, STILL),
    ("Min", 1, STILL),
    ("Mish", 18, STILL),
    ("Mod", 10, STILL),
    ("Mul", 1, STILL),
    ("Neg", 1, STILL),
    ("Not", 1, STILL),
    ("OneHot", 9, STILL),
    ("Or", 1, STILL),
    ("PRelu", 1, STILL),
    ("Pad", 1, STILL),
    ("Pow", 1, STILL),
    ("RMSNormalization", 23, STILL),
    ("Range", 11, STILL),
    ("Reciprocal", 1, STILL),
    ("ReduceL1", 1, STILL),
    ("ReduceL2", 1, STILL),
    ("ReduceLogSum", 1, STILL),
    ("ReduceLogSumExp", 1, STILL),
    ("ReduceMax", 1, STILL),
    ("ReduceMean", 1, STILL),
    ("ReduceMin", 1, STILL),
    ("ReduceProd", 1, STILL),
    ("ReduceSum", 1, STILL),
    ("ReduceSumSquare", 1, STILL),
    ("Relu", 1, STILL),
    ("Reshape", 1, STILL),
    ("Resize", 10, STILL),
    ("Round", 11, STILL),
    ("Selu", 1, STILL),
    ("Shape", 1, STILL),
    ("Shrink", 9, STILL),
    ("Sigmoid", 1, STILL),
    ("Sign", 9, STILL),
    ("Sin", 7, STILL),
    ("Size", 1, STILL),
    ("Slice", 1, STILL),
    ("Softmax", 1, STILL),
    ("Softplus", 1, STILL),
    ("Softsign", 1, STILL),
    ("SpaceToDepth", 1, STILL),
    ("Split", 1, STILL),
    ("Sqrt", 1, STILL),
    ("Squeeze", 1, STILL),
    ("Sub", 1, STILL),
    ("Sum", 1, STILL),
    ("Swish", 24, STILL),
    ("Tan", 7, STILL),
    ("Tanh", 1, STILL),
    ("ThresholdedRelu", 10, STILL),
    ("Tile", 1, STILL),
    ("TopK", 1, STILL),
    ("Transpose", 1, STILL),
    ("Trilu", 14, STILL),
    ("Unsqueeze", 1, STILL),
    ("Upsample", 1, 9),
    ("Where", 9, STILL),
    ("Xor", 1, STILL),
];

/// The first and the last version of ONNX's operators that has `operator`; `None` when it is not on the list.
pub(super) fn versions(operator: &str) -> Option<(i64, i64)> {
    let place = ALLOWED.binary_search_by_key(&operator, |&(name, ..)| name).ok()?;
    ALLOWED.get(place).map(|&(_, first, last)| (first, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infer::elementwise::{BROADCASTING, COMPARING, MIXING_IN_PLACE, POINTWISE};

    #[test]
    fn the_list_is_sorted() {
        assert!(ALLOWED.is_sorted_by(|left, right| left.0 < right.0));
    }

    /// Operators whose shapes are known and that are still not taken: no classifier needs them, and their kernels follow indices or
    /// bits that a stranger chose.
    #[test]
    fn what_is_known_and_not_taken_is_meant() {
        let known = [POINTWISE, MIXING_IN_PLACE, BROADCASTING, COMPARING].concat();
        let missing: Vec<&str> = known
            .into_iter()
            .filter(|name| versions(name).is_none())
            .collect();
        assert_eq!(
            missing,
            ["IsInf", "IsNaN", "ScatterElements", "ScatterND", "BitShift"]
        );
    }

    #[test]
    fn versions_are_found() {
        assert_eq!(versions("Gelu"), Some((20, STILL)));
        assert_eq!(versions("Upsample"), Some((1, 9)));
        for operator in CONTROL_FLOW
            .iter()
            .chain(&["NonZero", "RandomNormal", "", "conv"])
        {
            assert_eq!(versions(operator), None, "{operator}");
        }
    }
}
