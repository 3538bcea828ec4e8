//! Growth of a node's inputs with the batch. It must be linear, `times * batch + plus`, or the node is
//! refused. Shapes are known for two batch sizes, and two points determine all others only on a straight
//! line. A model that compares its batch with a number or divides by it may be small for the two sizes and
//! huge for the next.

use super::probes::{PROBE_BATCHES, Probes};
use super::{Context, InferredValue, Literal};
use crate::onnx::NodeProto;

/// Description of an unsupported dependency on the batch.
pub(crate) type Why = &'static str;

/// Reason for which most operators that cut are refused.
pub(crate) const SLIDES: Why = "cuts or slides along an axis that depends on the batch";

/// Linear function of the batch, `times * batch + plus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) slope: i64,
    pub(crate) offset: i64,
}

impl Line {
    /// Returns the line through the values at both batch sizes, or `None` if the slope is not an integer.
    pub(crate) fn through(small: i64, large: i64) -> Option<Self> {
        let first = i64::try_from(PROBE_BATCHES.0).ok()?;
        let second = i64::try_from(PROBE_BATCHES.1).ok()?;
        let rise = large.checked_sub(small)?;
        let run = second.checked_sub(first)?;
        let slope = rise
            .checked_div(run)
            .filter(|times| times.checked_mul(run) == Some(rise))?;
        let offset = small.checked_sub(slope.checked_mul(first)?)?;
        Some(Self { slope, offset })
    }

    pub(crate) fn minus(self, other: Self) -> Option<Self> {
        Some(Self {
            slope: self.slope.checked_sub(other.slope)?,
            offset: self.offset.checked_sub(other.offset)?,
        })
    }

    /// Returns the sign of the values if it is the same for every batch size from 1.
    pub(crate) fn sign(self) -> Option<i64> {
        let first = self.slope.checked_add(self.offset)?;
        let sign = first.signum();
        (self.slope == 0 || (sign != 0 && sign == self.slope.signum())).then_some(sign)
    }

    /// Returns true if the value is 0 for some batch size from 1, but not for all.
    pub(crate) fn crosses_zero(self) -> bool {
        let root = self.offset.checked_neg().filter(|_| self.slope != 0);
        root.is_some_and(|root| {
            root.checked_rem(self.slope) == Some(0) && root.checked_div(self.slope) >= Some(1)
        })
    }

    pub(crate) fn is_multiple_of(self, divisor: i64) -> bool {
        [self.slope, self.offset]
            .iter()
            .all(|part| part.checked_rem(divisor) == Some(0))
    }
}

/// A value at the smaller and at the larger batch size.
pub(crate) type Pair<'a> = (&'a InferredValue, &'a InferredValue);

pub(crate) fn literal_differs((small, large): Pair<'_>) -> bool {
    small.literal != large.literal
}

/// Returns the axes that depend on the batch.
pub(crate) fn open_axes((small, large): Pair<'_>) -> Vec<usize> {
    let (Some(small), Some(large)) = (&small.dims, &large.dims) else {
        return Vec::new();
    };
    let pairs = small.iter().zip(large).enumerate();
    pairs
        .filter(|(_, (small, large))| small != large)
        .map(|(axis, _)| axis)
        .collect()
}

/// Returns the elements as lines, or `None` if the elements are unknown or not linear.
pub(crate) fn lines((small, large): Pair<'_>) -> Option<Vec<Line>> {
    let small = integers(small)?;
    let large = integers(large)?;
    if small.len() != large.len() {
        return None;
    }
    let pairs = small.iter().zip(large);
    pairs
        .map(|(&small, &large)| Line::through(small, large))
        .collect()
}

fn integers(value: &InferredValue) -> Option<&[i64]> {
    value.literal.as_ref().and_then(Literal::integers)
}

/// Node with the inputs at both batch sizes.
pub(crate) struct Growth<'a> {
    pub(crate) node: &'a NodeProto,
    pub(crate) small: Context<'a>,
    pub(crate) large: Context<'a>,
}

impl<'a> Growth<'a> {
    pub(crate) fn from_probes(node: &'a NodeProto, probes: &'a Probes) -> Self {
        let (small, large) = probes.contexts(node);
        Self { node, small, large }
    }

    pub(crate) fn input(&self, slot: usize) -> Pair<'a> {
        let small = self.small.input(slot).unwrap_or(&InferredValue::UNKNOWN);
        let large = self.large.input(slot).unwrap_or(&InferredValue::UNKNOWN);
        (small, large)
    }

    pub(crate) fn dims_differ(&self, slot: usize) -> bool {
        let (small, large) = self.input(slot);
        small.dims != large.dims
    }

    pub(crate) fn depends_on_batch(&self) -> bool {
        (0..self.node.input.len()).any(|slot| self.dims_differ(slot))
            || !self.batch_dependent_slots().is_empty()
    }

    /// Returns the slots of inputs whose elements depend on the batch.
    pub(crate) fn batch_dependent_slots(&self) -> Vec<usize> {
        let slots = 0..self.node.input.len();
        slots.filter(|&slot| literal_differs(self.input(slot))).collect()
    }

    /// Returns the axes in the first input that depend on the batch.
    pub(crate) fn open_axes(&self) -> Vec<usize> {
        open_axes(self.input(0))
    }

    /// Checks that the inputs in `slots` do not depend on the batch. They determine sizes or positions.
    pub(crate) fn fixed(&self, slots: &[usize]) -> Result<(), Why> {
        if slots.iter().any(|&slot| literal_differs(self.input(slot))) {
            return Err("uses positions or axes that depend on the batch");
        }
        Ok(())
    }

    /// Refuses a batch along any axis except the first.
    pub(crate) fn batch_first(&self) -> Result<(), Why> {
        let behind = self.open_axes().iter().any(|&axis| axis > 0);
        if behind { Err(SLIDES) } else { Ok(()) }
    }

    /// Returns the only integer of an input.
    pub(crate) fn line(&self, slot: usize) -> Option<Line> {
        match *self.lines(slot)? {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Returns the integers of an input.
    pub(crate) fn lines(&self, slot: usize) -> Option<Vec<Line>> {
        lines(self.input(slot))
    }

    /// Returns true if the elements of all inputs except the first are independent of the batch.
    pub(crate) fn only_first_depends_on_batch(&self) -> bool {
        self.batch_dependent_slots().iter().all(|&slot| slot == 0)
    }

    /// Returns true if only the first input depends on the batch, and `fits` holds for all pairs of an
    /// element of the first input and an element of the second.
    pub(crate) fn divides(&self, fits: impl Fn(Line, i64) -> bool) -> bool {
        let (Some(left), Some(right)) = (self.lines(0), self.lines(1)) else {
            return false;
        };
        self.batch_dependent_slots() == [0]
            && left
                .iter()
                .all(|&line| right.iter().all(|divisor| fits(line, divisor.offset)))
    }

    /// Returns true if `fits` holds for the difference of each pair of elements. If an input has a single
    /// element, it is paired with every element of the other input.
    pub(crate) fn compares(&self, fits: impl Fn(Line) -> bool) -> bool {
        let (Some(left), Some(right)) = (self.lines(0), self.lines(1)) else {
            return false;
        };
        if left.len() != right.len() && left.len() != 1 && right.len() != 1 {
            return false;
        }
        let count = left.len().max(right.len());
        let mut pairs = left.iter().cycle().zip(right.iter().cycle()).take(count);
        pairs.all(|(left, right)| left.minus(*right).is_some_and(&fits))
    }
}
