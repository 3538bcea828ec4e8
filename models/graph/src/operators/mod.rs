//! Central table of operators. It contains all properties except the gradients.
//!
//! The files contain families of operators. A family is a list of [`Operator`]s, called rows, followed by the
//! rules that the rows use. A row defines the supported versions, the shape of the result, the position of
//! samples in the result, the work, the growth of the result with the batch, and the inputs that are weights.
//! The table is used by shape inference (`infer`), rows and cuts (`rows`), cost, admission, heads,
//! parameters, and by profiles through [`Effort`].
//!
//! # A new operator
//! 1. Add a row to the family of the operator. Most operators do not need a rule: `pointwise("Mish", 18)` is
//!    sufficient for an activation, and `normalization(..)`, `reduction(..)` and `broadcasting(..)` serve the
//!    same purpose for other kinds. Otherwise, add a shape rule, as in `Operator::new("Tile", 1, tile)`. Add
//!    `.rows(..)` if samples stay independent, since the network cannot be cut after an operator without it.
//!    Add `.work(..)` if it multiplies, `.weights(..)` if it has weights that are trained, and `.growth(..)`
//!    if it cuts along axes or reads sizes from an input, because admission guarantees a bound on memory
//!    (`docs/admission.md`).
//! 2. Add the prices to the table in `cost.rs`, otherwise the operator has the highest price. Add a random case
//!    to `tests/unwritten/recipes.rs`.
//! 3. In the crate `training`, add a rule in `rules/`, so that a suffix with the operator can be trained.
//! 4. Add the rule to `rules/mod.rs`.
//!
//! Test the shape against ONNX Runtime (`tests/random.rs`) and the gradient against finite differences
//! (`training/src/tests/operators.rs`). A test in `training/src/tests/table.rs` checks that each operator
//! with a gradient has all of these.

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
use crate::onnx::data_type::is_float;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

/// Operator set versions that are admitted: from the oldest that ONNX Runtime still reads to the newest
/// against which the shape rules were tested.
pub(crate) const VERSIONS: RangeInclusive<i64> = 7..=25;

const CONTROL_FLOW: &[&str] = &["If", "Loop", "Scan", "SequenceMap"];

/// Standard ONNX operators used by image classifiers. The list does not contain control flow, random numbers,
/// operators on texts, sequences or sparse tensors, or operators with a result length that depends on the
/// data.
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

/// Returns all admitted operators.
#[cfg(test)]
pub(crate) fn admitted() -> impl Iterator<Item = &'static Operator> {
    let all = FAMILIES.iter().copied().flatten();
    all.filter(|operator| operator.versions.is_some())
}

/// Returns the row of a node's operator. Returns `None` for custom domains and for unknown operators.
pub(crate) fn find(node: &NodeProto) -> Option<&'static Operator> {
    BY_NAME.get(node.standard_operator()?).copied()
}

/// Returns true if each element of a node's result is computed from the elements at the same position.
pub(crate) fn is_elementwise(node: &NodeProto) -> bool {
    let mut families = [pointwise::OPERATORS, broadcasting::OPERATORS]
        .into_iter()
        .flatten();
    families.any(|operator| Some(operator.name) == node.standard_operator())
}

/// Returns true if a node branches or loops.
pub(crate) fn is_control_flow(node: &NodeProto) -> bool {
    node.standard_operator()
        .is_some_and(|operator| CONTROL_FLOW.contains(&operator))
}

/// Returns true if a node of any domain may have different outputs for the same inputs.
pub(crate) fn is_random(node: &NodeProto) -> bool {
    let operator = node.op_type.as_str();
    operator.starts_with("Random") || matches!(operator, "Bernoulli" | "Multinomial")
}

impl NodeProto {
    /// Returns true for a `Cast` to a floating-point type.
    pub fn casts_to_float(&self) -> bool {
        let to = self.int("to").and_then(|to| i32::try_from(to).ok());
        self.standard_operator() == Some("Cast") && to.is_some_and(is_float)
    }

    /// Returns true if the node only moves the elements of the first input.
    pub fn rearranges(&self) -> bool {
        find(self).is_some_and(|operator| operator.rearranges)
    }

    /// Returns the effort of executing this node.
    pub fn effort(&self) -> Effort {
        find(self).map_or(Effort::Computing, |operator| operator.effort)
    }

    /// Returns true if the node may have different outputs for the same inputs.
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
    fn only_these_known_operators_are_refused() {
        let all = FAMILIES.iter().copied().flatten();
        let mut missing: Vec<&str> = all
            .filter(|operator| operator.versions.is_none())
            .map(|operator| operator.name)
            .collect();
        missing.sort_unstable();
        assert_eq!(missing, ["BitShift", "DynamicQuantizeLinear", "ScatterElements"]);
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
