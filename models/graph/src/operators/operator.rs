use crate::onnx::NodeProto;
use crate::values::{
    Context, Growth, InferredValue, Literal, NodeSizes, RowView, RuleResult, SampleAxis, Why,
};
use std::ops::Range;

/// Computes the outputs of a node from its inputs: element types, dimensions, and elements if they follow
/// from the attributes.
pub(crate) type ShapeRule = fn(&Context<'_>) -> RuleResult<Vec<InferredValue>>;

/// Computes the elements of a node's first output with these dimensions from the elements of the inputs.
pub(crate) type LiteralRule = fn(&Context<'_>, &[usize]) -> Option<Literal>;

/// Returns the axis that contains the samples in a node's output, or `None` if the node mixes them.
pub(crate) type RowRule = fn(&RowView<'_>) -> Option<SampleAxis>;

/// Returns the number of multiply-adds. Operators without multiply-adds return the number of elements read or
/// written.
pub(crate) type WorkRule = fn(&NodeSizes<'_>) -> f64;

/// Returns the number of elements read per element written.
pub(crate) type TapsRule = fn(&NodeProto) -> f64;

/// Checks that the shape of a node's result grows linearly with the batch.
pub(crate) type GrowthRule = fn(&Growth<'_>) -> Result<(), Why>;

/// Returns true if the integers that a node computes are linear in the batch, provided that its inputs are.
pub(crate) type StraightRule = fn(&Growth<'_>) -> bool;

/// Returns true if the tensors in a node's weight slots are a constant written by the exporter, not weights.
pub(crate) type ConstantRule = fn(&[Vec<f64>]) -> bool;

/// Properties of an operator. Rules are optional. The default row rule states that the operator mixes
/// samples, the default literal rule that the result is unknown before execution, and the default growth rule
/// that the size of the result only depends on the sizes of the inputs.
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    /// First and last operator set version in which the operator is admitted, or `None` if it is refused.
    pub(crate) versions: Option<(i64, i64)>,
    pub(crate) shape: ShapeRule,
    pub(crate) literal: LiteralRule,
    pub(crate) rows: RowRule,
    /// True if the row rule applies to every output, not only to the first.
    pub(crate) like_outputs: bool,
    pub(crate) work: WorkRule,
    /// Elements read for each element written, if that exceeds the size of the input: for example, the window
    /// of a pool.
    pub(crate) taps: TapsRule,
    pub(crate) effort: Effort,
    pub(crate) growth: GrowthRule,
    pub(crate) straight: StraightRule,
    /// True if no output has more elements than the first input.
    pub(crate) shrinks: bool,
    /// Input slots for trainable weights.
    pub(crate) weights: Range<usize>,
    /// True if a single number in these slots is a weight as well.
    pub(crate) numbers: bool,
    /// Detects tensors in these slots that are constants of the exporter instead of weights.
    pub(crate) constant: Option<ConstantRule>,
    /// True if the operator only moves the elements of the first input.
    pub(crate) rearranges: bool,
    /// True if the operator only reads the shape of the input.
    pub(crate) reads_shape: bool,
    /// True for an activation function. A fixed input of a small network, such as a table of coordinates, is not a
    /// factor of a weight any more after it.
    pub(crate) activates: bool,
    /// True if the operator has no useful gradient. Exporters compute tables and masks with such operators.
    pub(crate) flat: bool,
    pub(crate) head: HeadPart,
}

/// Cost of an operator compared to the matrix products in a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Negligible. Examples are Relu, Cast and Reshape.
    Passing,
    /// Negligible if the output has the size of the input, otherwise a noticeable part of the prefix. Used
    /// for pools.
    Pooling,
    /// Never negligible. Used for matrix products, convolutions and all operators without another effort,
    /// including unknown ones.
    Computing,
}

/// Role of an operator in a classifier head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadPart {
    None,
    /// Multiplies by the head's weights and adds its bias.
    Layer,
    /// Multiplies by the head's weights. A [`HeadPart::Bias`] may follow.
    Product,
    /// Adds the bias to a product.
    Bias,
    /// Rearranges, pools or normalizes the scores, and can follow a head.
    Tail,
}

impl Operator {
    /// Creates an operator that was added in version `since`. The value 1 is used for all versions before 7.
    pub(super) const fn new(name: &'static str, since: i64, shape: ShapeRule) -> Self {
        Self {
            name,
            versions: Some((since, i64::MAX)),
            shape,
            literal: |_, _| None,
            rows: |_| None,
            like_outputs: false,
            work: |sizes| sizes.touched(),
            taps: |_| 1.0,
            effort: Effort::Computing,
            growth: |_| Ok(()),
            straight: |growth| growth.batch_dependent_slots().is_empty(),
            shrinks: false,
            weights: 0..0,
            numbers: false,
            constant: None,
            rearranges: false,
            reads_shape: false,
            activates: false,
            flat: false,
            head: HeadPart::None,
        }
    }
}

/// Defines setters for the optional properties of a row. The names are the same as for the fields.
macro_rules! rows_say {
    ($($field:ident: $type:ty),*) => { impl Operator {
        $(pub(super) const fn $field(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        })*
    } };
}

rows_say! {
    versions: Option<(i64, i64)>, shape: ShapeRule, literal: LiteralRule, rows: RowRule, like_outputs: bool,
    work: WorkRule, taps: TapsRule, effort: Effort, growth: GrowthRule, straight: StraightRule, shrinks: bool, weights: Range<usize>,
    numbers: bool, constant: Option<ConstantRule>, rearranges: bool, reads_shape: bool, activates: bool, flat: bool,
    head: HeadPart
}
