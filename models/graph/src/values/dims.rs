//! Arithmetic on dimensions and axes, which may come from an untrusted model.

/// Reason for a missing result of a rule.
pub(crate) enum Unresolved {
    /// The operator or a required value is unknown.
    Unknown,
    /// The inputs do not fit the operator.
    Mismatch(String),
}

pub(crate) type RuleResult<T> = Result<T, Unresolved>;

pub(crate) fn mismatch<T>(why: impl Into<String>) -> RuleResult<T> {
    Err(Unresolved::Mismatch(why.into()))
}

pub(crate) fn signed(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(value: i64) -> RuleResult<usize> {
    usize::try_from(value).or_else(|_| mismatch(format!("invalid size {value}")))
}

/// Converts sizes, which must not be negative.
pub(crate) fn sizes_of(sizes: &[i64]) -> RuleResult<Vec<usize>> {
    sizes.iter().map(|&size| unsigned(size)).collect()
}

/// Returns the position along an axis of `size`; negative positions count from the end.
pub fn from_end(place: i64, size: i64) -> i64 {
    if place < 0 {
        place.saturating_add(size)
    } else {
        place
    }
}

/// Returns the index of `axis` in a tensor of this rank; negative axes count from the end.
pub(crate) fn axis_of(axis: i64, rank: usize) -> RuleResult<usize> {
    match usize::try_from(from_end(axis, signed(rank))) {
        Ok(index) if index < rank => Ok(index),
        _ => mismatch(format!(
            "axis {axis} is out of range for a tensor with {rank} axes"
        )),
    }
}

pub(crate) fn axes_of(axes: &[i64], rank: usize) -> RuleResult<Vec<usize>> {
    axes.iter().map(|&axis| axis_of(axis, rank)).collect()
}

pub(crate) fn at(dims: &[usize], axis: usize) -> RuleResult<usize> {
    dims.get(axis).copied().map_or_else(
        || mismatch(format!("axis {axis} is out of range for {dims:?}")),
        Ok,
    )
}

/// Returns `dims` with `axis` set to `size`.
pub(crate) fn replaced(dims: &[usize], axis: usize, size: usize) -> Vec<usize> {
    dims.iter()
        .enumerate()
        .map(|(index, &dim)| if index == axis { size } else { dim })
        .collect()
}

pub(crate) fn product(dims: &[usize]) -> RuleResult<usize> {
    let product = dims.iter().try_fold(1_usize, |all, &dim| all.checked_mul(dim));
    product.map_or_else(
        || mismatch(format!("the number of elements of {dims:?} overflows")),
        Ok,
    )
}

/// Returns `dims` with axes of size 1 in front, up to `rank` axes.
fn padded(dims: &[usize], rank: usize) -> impl Iterator<Item = usize> {
    std::iter::repeat_n(1, rank - dims.len()).chain(dims.iter().copied())
}

/// Returns the broadcast shape of two tensors. The shapes are aligned at the last axis, and axes of size 1
/// are stretched.
pub(crate) fn broadcast_dims(left: &[usize], right: &[usize]) -> RuleResult<Vec<usize>> {
    let rank = left.len().max(right.len());
    let pairs = padded(left, rank).zip(padded(right, rank));
    pairs
        .map(|pair| match pair {
            (a, b) if a == b => Ok(a),
            (1, b) => Ok(b),
            (a, 1) => Ok(a),
            _ => mismatch(format!(
                "incompatible shapes for broadcasting: {left:?} and {right:?}"
            )),
        })
        .collect()
}
