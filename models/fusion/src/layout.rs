//! Layout of tensors. Each axis is a product of named parts.

/// Named part of an axis in attention tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AxisPart {
    Batch,
    Heads,
    Sequence,
    /// Elements of a head.
    Width,
    /// Position of query, key and value in a joint tensor.
    Joint,
}

/// Part and size. Sizes are at least 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Factor {
    part: AxisPart,
    size: usize,
}

/// Axes of a tensor, outermost first. The size of an axis is the product of the factors, or 1 if the axis has
/// no factors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AxisLayout(Vec<Vec<Factor>>);

/// Layout operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LayoutStep {
    /// Changes the axes and keeps the order of the elements. -1 stands for the remaining size.
    Reshape(Vec<i64>),
    Transpose(Vec<i64>),
}

impl LayoutStep {
    /// Returns the cost relative to a reshape, which copies nothing on most devices.
    pub(crate) fn cost(&self) -> u32 {
        match self {
            Self::Reshape(_) => RESHAPE,
            Self::Transpose(_) => COPY,
        }
    }
}

/// Cost without a copy of the tensor.
pub(crate) const RESHAPE: u32 = 1;
/// Cost with a copy of the tensor.
pub(crate) const COPY: u32 = 3;

impl AxisLayout {
    pub(crate) fn new<const N: usize>(axes: [&[(AxisPart, usize)]; N]) -> Self {
        Self(
            axes.map(|axis| {
                let parts = axis.iter().filter(|(_, size)| *size != 1);
                parts.map(|&(part, size)| Factor { part, size }).collect()
            })
            .into(),
        )
    }

    /// Returns the layout of the input of a `Transpose` whose output has this layout.
    pub(crate) fn before_transpose(&self, permutation: &[usize]) -> Option<Self> {
        let mut axes = vec![None; self.0.len()];
        for (factors, &from) in self.0.iter().zip(permutation) {
            *axes.get_mut(from)? = Some(factors.clone());
        }
        axes.into_iter().collect::<Option<_>>().map(Self)
    }

    /// Returns the layout of the output of a `Transpose` whose input has this layout.
    pub(crate) fn transposed(&self, permutation: &[usize]) -> Option<Self> {
        let axes = permutation.iter().map(|&from| self.0.get(from).cloned());
        axes.collect::<Option<_>>().map(Self)
    }

    /// Returns the layout with the same order of elements and axes of these sizes. Returns `None` if a part
    /// would be divided.
    pub(crate) fn regrouped(&self, dims: &[usize]) -> Option<Self> {
        let mut factors = self.0.iter().flatten().copied().peekable();
        let mut axes = Vec::with_capacity(dims.len());
        for &dim in dims {
            let mut axis = Vec::new();
            let mut size = 1_usize;
            while size < dim {
                let factor = factors.next()?;
                size = size.checked_mul(factor.size)?;
                axis.push(factor);
            }
            if size != dim {
                return None;
            }
            axes.push(axis);
        }
        factors.peek().is_none().then_some(Self(axes))
    }

    /// Returns the layout of a joint tensor with `count` entries on an axis, of which this layout is one. The
    /// axis is added if `adds`, and has the size 1 otherwise.
    pub(crate) fn joint(&self, axis: usize, count: usize, adds: bool) -> Option<Self> {
        let mut axes = self.0.clone();
        let factor = Factor {
            part: AxisPart::Joint,
            size: count,
        };
        if adds {
            (axis <= axes.len()).then(|| axes.insert(axis, vec![factor]))?;
        } else {
            let single = axes.get_mut(axis).filter(|axis| axis.is_empty())?;
            single.push(factor);
        }
        Some(Self(axes))
    }

    /// Returns the layout of one entry of this joint tensor, with the axis to slice and the size of a slice along this
    /// axis. Returns `None` if the entries are not contiguous on any axis.
    pub(crate) fn entry(&self) -> Option<(usize, usize, Self)> {
        let mut outermost = self.0.iter().map(|axis| axis.first());
        let axis =
            outermost.position(|factor| factor.is_some_and(|factor| factor.part == AxisPart::Joint))?;
        let mut axes = self.0.clone();
        let rest = axes.get_mut(axis)?;
        rest.remove(0);
        let size = rest.iter().map(|factor| factor.size).product();
        Some((axis, size, Self(axes)))
    }

    /// Returns the sizes of the axes as the target of a `Reshape`. The axis with the batch is -1.
    pub(crate) fn target(&self) -> Vec<i64> {
        self.0
            .iter()
            .map(|axis| {
                if axis.iter().any(|factor| factor.part == AxisPart::Batch) {
                    return -1;
                }
                let size: usize = axis.iter().map(|factor| factor.size).product();
                i64::try_from(size).unwrap_or(i64::MAX)
            })
            .collect()
    }

    /// Returns the operations that convert a tensor from this layout to `to`, which has the same parts.
    pub(crate) fn steps(&self, to: &Self) -> Vec<LayoutStep> {
        if self == to {
            return Vec::new();
        }
        let order: Vec<Factor> = self.0.iter().flatten().copied().collect();
        if to.0.iter().flatten().eq(&order) {
            return vec![LayoutStep::Reshape(to.target())];
        }
        // Adjacent parts are moved as a single axis.
        let mut units: Vec<(usize, Vec<Factor>)> = Vec::new();
        for factor in to.0.iter().flatten() {
            let Some(place) = order.iter().position(|other| other == factor) else {
                return Vec::new();
            };
            match units.last_mut() {
                Some((start, unit)) if *start + unit.len() == place => unit.push(*factor),
                _ => units.push((place, vec![*factor])),
            }
        }
        let after = Self(units.iter().map(|(_, unit)| unit.clone()).collect());
        let mut sorted: Vec<usize> = units.iter().map(|(place, _)| *place).collect();
        sorted.sort_unstable();
        let permutation: Vec<usize> = units
            .iter()
            .map(|(place, _)| sorted.iter().position(|other| other == place).unwrap_or(0))
            .collect();
        let mut steps = Vec::new();
        if let Some(before) = after.before_transpose(&permutation)
            && *self != before
        {
            steps.push(LayoutStep::Reshape(before.target()));
        }
        let permutation = permutation
            .into_iter()
            .map(|axis| i64::try_from(axis).unwrap_or(0));
        steps.push(LayoutStep::Transpose(permutation.collect()));
        if after != *to {
            steps.push(LayoutStep::Reshape(to.target()));
        }
        steps
    }
}
