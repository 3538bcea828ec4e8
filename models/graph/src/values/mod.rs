//! Properties of values before execution. This includes the type, the dimensions and small contents at two
//! batch sizes, the growth with the batch, and the axis that contains the samples. The rules in `operators`
//! are based on these properties.

mod context;
mod dims;
mod growth;
mod literal;
mod probes;
mod row_use;
mod row_view;
mod sizes;
mod value;

pub(crate) use context::{Context, InferredValues};
pub use dims::from_end;
pub(crate) use dims::{
    RuleResult, Unresolved, at, axes_of, axis_of, broadcast_dims, mismatch, product, replaced, signed,
    sizes_of, unsigned,
};
pub(crate) use growth::{Growth, Line, Pair, SLIDES, Why, lines, literal_differs, open_axes};
pub(crate) use literal::{Literal, MOST_ELEMENTS, as_integer, as_number, strides};
pub(crate) use probes::{Dim, PROBE_BATCHES, Probes};
pub(crate) use row_use::{RowUse, RowUses, SampleAxis, SamplePosition};
pub(crate) use row_view::RowView;
pub(crate) use sizes::NodeSizes;
pub(crate) use value::InferredValue;
