use crate::onnx::NodeProto;
use crate::values::{Context, Growth, Literal, RowView, Ruled, Samples, Sizes, Value, Why};
use std::ops::Range;

/// Gives a node's outputs from its inputs: element types and dimensions, and elements where the attributes tell them.
pub(crate) type ShapeRule = fn(&Context<'_>) -> Ruled<Vec<Value>>;

/// Gives the elements of a node's first output, of these dimensions, from those of its inputs.
pub(crate) type LiteralRule = fn(&Context<'_>, &[usize]) -> Option<Literal>;

/// Gives the axis that carries the samples in a node's output; `None` where it mixes them.
pub(crate) type RowRule = fn(&RowView<'_>) -> Option<Samples>;

/// Gives an operator's multiply-adds; for operators without any, the elements it reads or writes.
pub(crate) type WorkRule = fn(&Sizes<'_>) -> f64;

/// Gives how many elements an operator reads for each it writes.
pub(crate) type TapsRule = fn(&NodeProto) -> f64;

/// Checks that the shape of a node's result follows the batch in a straight line.
pub(crate) type GrowthRule = fn(&Growth<'_>) -> Result<(), Why>;

/// Whether the integers a node computes from integers on straight lines lie on straight lines.
pub(crate) type StraightRule = fn(&Growth<'_>) -> bool;

/// Whether what stands in the slots of a node's weights is none, but a constant that exporters put there.
pub(crate) type ConstantRule = fn(&[Vec<f64>]) -> bool;

/// Everything that is known of an operator. What a row leaves out: without a row rule it mixes samples, without a literal rule
/// nobody knows what it computes, and without a growth rule it takes no sizes but those of its inputs.
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    /// The first and the last version of ONNX's operators in which a stranger may use it; `None` for those not taken.
    pub(crate) versions: Option<(i64, i64)>,
    pub(crate) shape: ShapeRule,
    pub(crate) literal: LiteralRule,
    pub(crate) rows: RowRule,
    /// Whether the row rule tells of every output, not only of the first.
    pub(crate) like_outputs: bool,
    pub(crate) work: WorkRule,
    /// Elements it reads for each it writes, where that is more than what it is given: the places of a pool's window.
    pub(crate) taps: TapsRule,
    pub(crate) effort: Effort,
    pub(crate) growth: GrowthRule,
    pub(crate) straight: StraightRule,
    /// Whether it never makes more elements than its first input has.
    pub(crate) shrinks: bool,
    /// The inputs in which a stored tensor is a weight that is trained.
    pub(crate) weights: Range<usize>,
    /// Whether a single number there is one as well.
    pub(crate) numbers: bool,
    /// By which values in those slots a constant is told from weights.
    pub(crate) constant: Option<ConstantRule>,
    /// Whether it keeps a weight's elements and only rearranges them.
    pub(crate) rearranges: bool,
    /// Whether it looks only at the shape of its input.
    pub(crate) reads_shape: bool,
    pub(crate) head: HeadPart,
}

/// What running an operator takes beside the products around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Next to nothing: it takes each row as it is.
    Passing,
    /// Little, but more than nothing where its windows overlap.
    Pooling,
    /// Too much to be left out.
    Computing,
}

/// The part of an operator in a classifier head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadPart {
    None,
    /// Multiplies by the head's weights and adds its bias.
    Layer,
    /// Multiplies by the head's weights; a [`HeadPart::Bias`] may follow.
    Product,
    /// Adds the bias to a product.
    Bias,
    /// May stand behind a head: rearranges, pools or normalizes its scores.
    Tail,
}

impl Operator {
    /// An operator that ONNX has `since` a version, 1 for all before 7.
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
            straight: |growth| growth.moving().is_empty(),
            shrinks: false,
            weights: 0..0,
            numbers: false,
            constant: None,
            rearranges: false,
            reads_shape: false,
            head: HeadPart::None,
        }
    }
}

/// What a row says beside that: each sets the field of its name.
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
    numbers: bool, constant: Option<ConstantRule>, rearranges: bool, reads_shape: bool, head: HeadPart
}
