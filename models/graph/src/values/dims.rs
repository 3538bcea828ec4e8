//! Arithmetic on dimensions and axes, which a stranger may have chosen.

/// Why a rule gives no answer.
pub(crate) enum Unresolved {
    /// Not enough is known: the operator, or a dimension before it.
    Unknown,
    /// The inputs do not fit the operator.
    Mismatch(String),
}

pub(crate) type Ruled<T> = Result<T, Unresolved>;

pub(crate) fn mismatch<T>(why: impl Into<String>) -> Ruled<T> {
    Err(Unresolved::Mismatch(why.into()))
}

pub(crate) fn signed(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(value: i64) -> Ruled<usize> {
    usize::try_from(value).or_else(|_| mismatch(format!("a size of {value}")))
}

/// Sizes, none of them negative.
pub(crate) fn sizes_of(sizes: &[i64]) -> Ruled<Vec<usize>> {
    sizes.iter().map(|&size| unsigned(size)).collect()
}

/// `place` along an axis of `size`; negative ones count from the end.
pub(crate) fn from_end(place: i64, size: i64) -> i64 {
    if place < 0 {
        place.saturating_add(size)
    } else {
        place
    }
}

/// `axis` of a tensor of this rank; negative ones count from the end.
pub(crate) fn axis_of(axis: i64, rank: usize) -> Ruled<usize> {
    match usize::try_from(from_end(axis, signed(rank))) {
        Ok(index) if index < rank => Ok(index),
        _ => mismatch(format!("axis {axis} of a tensor with {rank} axes")),
    }
}

/// [`axis_of`] for each of `axes`.
pub(crate) fn axes_of(axes: &[i64], rank: usize) -> Ruled<Vec<usize>> {
    axes.iter().map(|&axis| axis_of(axis, rank)).collect()
}

/// The size of `axis`.
pub(crate) fn at(dims: &[usize], axis: usize) -> Ruled<usize> {
    dims.get(axis)
        .copied()
        .map_or_else(|| mismatch(format!("{dims:?} has no axis {axis}")), Ok)
}

/// `dims` with `axis` set to `size`.
pub(crate) fn replaced(dims: &[usize], axis: usize, size: usize) -> Vec<usize> {
    dims.iter()
        .enumerate()
        .map(|(index, &dim)| if index == axis { size } else { dim })
        .collect()
}

/// The product of `dims`.
pub(crate) fn product(dims: &[usize]) -> Ruled<usize> {
    let product = dims.iter().try_fold(1_usize, |all, &dim| all.checked_mul(dim));
    product.map_or_else(
        || mismatch(format!("{dims:?} has more elements than this machine can count")),
        Ok,
    )
}

/// The shape two tensors broadcast to: aligned at the last axis, an axis of 1 stretches.
pub(crate) fn broadcast_dims(left: &[usize], right: &[usize]) -> Ruled<Vec<usize>> {
    let rank = left.len().max(right.len());
    let padded = |dims: &[usize]| -> Vec<usize> {
        std::iter::repeat_n(1, rank - dims.len())
            .chain(dims.iter().copied())
            .collect()
    };
    let pairs = padded(left).into_iter().zip(padded(right));
    pairs
        .map(|pair| match pair {
            (a, b) if a == b => Ok(a),
            (1, b) => Ok(b),
            (a, 1) => Ok(a),
            _ => mismatch(format!("{left:?} and {right:?} do not broadcast")),
        })
        .collect()
}
