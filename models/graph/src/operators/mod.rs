//! The one table of operators: whatever anything in this repository asks of an operator by its name.
//!
//! Each file is a family: a list of its [`Operator`]s, one row each, and below it the rules they name. A row says which
//! versions have the operator, its shape, where samples lie in its result, its work, how its result grows with the batch, which
//! of its inputs are weights. Who asks: shape inference (`infer`), rows and cuts (`rows`), cost, admission, heads, parameters,
//! and profiles by way of [`Effort`].
//!
//! # A new operator
//! 1. A row in the family it belongs to. Most need no rule of their own: `pointwise("Mish", 18)` is all there is to say of an
//!    activation, `normalization(..)`, `reduction(..)` and `broadcasting(..)` say as much of their kinds. Else its shape comes with its
//!    name, `Operator::new("Tile", 1, tile)`; where samples stay apart, `.rows(..)`, without which nothing behind it can be cut; where it
//!    multiplies, `.work(..)`; where it trains weights, `.weights(..)`; where it cuts along axes or takes sizes as an input,
//!    `.growth(..)`, for admission is a promise about memory (`docs/admission.md`).
//! 2. In the crate `training`, so that a suffix with it can be trained: a rule in `rules/`, and
//! 3. its line in `rules/mod.rs`.
//!
//! Tests: its shape against ONNX Runtime (`tests/random.rs`), its gradient against differences (`training/src/tests/operators.rs`). That an
//! operator with a gradient has all of this is tested in `training/src/tests/table.rs`.

mod broadcasting;
mod creation;
mod normalization;
mod operator;
mod pointwise;
mod products;
mod quantization;
mod reduction;
mod regrouping;
mod repetition;
mod selection;
mod windows;

pub use operator::Effort;
pub(crate) use operator::{HeadPart, LiteralRule, Operator};

use crate::onnx::NodeProto;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

/// The versions of ONNX's operators that are taken from strangers: what ONNX Runtime still reads, up to the newest the shape rules
/// were compared with.
pub(crate) const VERSIONS: RangeInclusive<i64> = 7..=25;

/// Operators that hold graphs of their own.
const CONTROL_FLOW: &[&str] = &["If", "Loop", "Scan", "SequenceMap"];

/// ONNX's own operators: those of image classifiers. Nothing that branches or loops, draws random numbers, works on texts, sequences
/// or sparse tensors, or has a result as long as its data says.
const FAMILIES: &[&[Operator]] = &[
    broadcasting::OPERATORS,
    creation::OPERATORS,
    normalization::OPERATORS,
    pointwise::OPERATORS,
    products::OPERATORS,
    quantization::OPERATORS,
    reduction::OPERATORS,
    regrouping::OPERATORS,
    repetition::OPERATORS,
    selection::OPERATORS,
    windows::OPERATORS,
];

static BY_NAME: LazyLock<HashMap<&str, &Operator>> = LazyLock::new(|| {
    let all = FAMILIES.iter().copied().flatten();
    all.map(|operator| (operator.name, operator)).collect()
});

/// The operators that a stranger may use.
#[cfg(test)]
pub(crate) fn admitted() -> impl Iterator<Item = &'static Operator> {
    let all = FAMILIES.iter().copied().flatten();
    all.filter(|operator| operator.versions.is_some())
}

/// What is known of a node's operator; `None` for other domains than ONNX's own and operators without a row.
pub(crate) fn find(node: &NodeProto) -> Option<&'static Operator> {
    BY_NAME.get(node.standard_operator()?).copied()
}

/// Whether each element of a node's result is made of those at the same place.
pub(crate) fn is_elementwise(node: &NodeProto) -> bool {
    let mut families = [pointwise::OPERATORS, broadcasting::OPERATORS]
        .into_iter()
        .flatten();
    families.any(|operator| Some(operator.name) == node.standard_operator())
}

/// Whether a node branches or loops.
pub(crate) fn is_control_flow(node: &NodeProto) -> bool {
    node.standard_operator()
        .is_some_and(|operator| CONTROL_FLOW.contains(&operator))
}

/// Whether a node may give other outputs for the same inputs, of whatever domain it is.
pub(crate) fn is_random(node: &NodeProto) -> bool {
    let operator = node.op_type.as_str();
    operator.starts_with("Random") || matches!(operator, "Bernoulli" | "Multinomial")
}

impl NodeProto {
    /// What running this node takes.
    pub fn effort(&self) -> Effort {
        find(self).map_or(Effort::Computing, |operator| operator.effort)
    }

    /// Whether it may give other outputs for the same inputs.
    pub fn is_random(&self) -> bool {
        is_random(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::node;

    #[test]
    fn no_operator_has_two_rows() {
        assert_eq!(
            BY_NAME.len(),
            FAMILIES.iter().map(|family| family.len()).sum::<usize>()
        );
    }

    #[test]
    fn what_is_known_and_not_taken_is_meant() {
        let all = FAMILIES.iter().copied().flatten();
        let mut missing: Vec<&str> = all
            .filter(|operator| operator.versions.is_none())
            .map(|operator| operator.name)
            .collect();
        missing.sort_unstable();
        assert_eq!(missing, ["BitShift", "ScatterElements"]);
    }

    #[test]
    fn versions_are_found() {
        let versions = |name: &str| find(&node(name, &[], &[])).and_then(|operator| operator.versions);
        assert_eq!(versions("Gelu"), Some((20, i64::MAX)));
        assert_eq!(versions("Upsample"), Some((1, 9)));
        for operator in CONTROL_FLOW
            .iter()
            .chain(&["NonZero", "RandomNormal", "", "conv"])
        {
            assert_eq!(versions(operator), None, "{operator}");
        }
    }
}
