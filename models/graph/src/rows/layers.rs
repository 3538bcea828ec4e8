//! Rows through operators that compute.

use super::{Rows, Samples, View};
use crate::infer::{axis_of, layers::reduced_axes};

impl View<'_> {
    /// Identity at inference; in training mode it draws random numbers.
    pub(super) fn dropout(&self) -> Option<Samples> {
        let trains = match self.node.input_name(2) {
            None => false,
            Some(_) => self.context().integers(2).ok().flatten() != Some(&[0][..]),
        };
        (!trains && self.is_parameter(1)).then(|| self.samples(0))?
    }

    /// All inputs broadcast; those with samples must carry them along the same axis, counted from the last.
    pub(super) fn aligned(&self) -> Option<Samples> {
        let rank = self.output_dims()?.len();
        let mut found: Option<Samples> = None;
        for slot in 0..self.node.input.len() {
            match self.input(slot) {
                None | Some(Rows::Same) => {}
                Some(Rows::Mixed) => return None,
                Some(Rows::Apart(samples)) => {
                    let samples = samples.on(samples.axis + rank.checked_sub(self.rank(slot)?)?);
                    if found.is_some_and(|found| found != samples) {
                        return None;
                    }
                    found = Some(samples);
                }
            }
        }
        found
    }

    /// Operators defined as working on each entry of the first axis by itself.
    pub(super) fn along_first_axis(&self) -> Option<Samples> {
        let samples = self.samples(0)?;
        (samples.axis == 0 && self.all_parameters_from(1)).then_some(samples)
    }

    pub(super) fn gemm(&self) -> Option<Samples> {
        let transposed = |flag| self.node.int(flag).unwrap_or(0) != 0;
        if !self.is_parameter(2) {
            return None;
        }
        let (left, right) = (self.samples(0), self.samples(1));
        let rows = if transposed("transA") { 1 } else { 0 };
        let columns = if transposed("transB") { 0 } else { 1 };
        match (left, right) {
            (Some(samples), None) if self.is_parameter(1) && samples.axis == rows => Some(samples.on(0)),
            (None, Some(samples)) if self.is_parameter(0) && samples.axis == columns => Some(samples.on(1)),
            _ => None,
        }
    }

    /// Samples may lie along rows of the left, columns of the right, or leading axes; never along the axis summed over.
    pub(super) fn matmul(&self) -> Option<Samples> {
        let (left_rank, right_rank) = (self.rank(0)?, self.rank(1)?);
        if left_rank < 2 || right_rank < 2 {
            return None;
        }
        let rank = left_rank.max(right_rank);
        let left = self
            .samples(0)
            .map(|samples| samples.on(samples.axis + rank - left_rank));
        let right = self
            .samples(1)
            .map(|samples| samples.on(samples.axis + rank - right_rank));
        match (left, right) {
            (Some(samples), None) if self.is_parameter(1) && samples.axis != rank - 1 => Some(samples),
            (None, Some(samples)) if self.is_parameter(0) && samples.axis != rank - 2 => Some(samples),
            (Some(left), Some(right)) if left == right && left.axis < rank - 2 => Some(left),
            _ => None,
        }
    }

    /// Before operator set 13 these normalise over all axes from `axis` on.
    pub(super) fn softmax(&self) -> Option<Samples> {
        let (samples, rank) = (self.samples(0)?, self.rank(0)?);
        let since_13 = self.context().opset >= 13;
        let axis = axis_of(
            self.node.int("axis").unwrap_or(if since_13 { -1 } else { 1 }),
            rank,
        )
        .ok()?;
        let apart = if since_13 {
            samples.axis != axis
        } else {
            samples.axis < axis
        };
        apart.then_some(samples)
    }

    pub(super) fn layer_normalization(&self) -> Option<Samples> {
        let samples = self.samples(0)?;
        let axis = axis_of(self.node.int("axis").unwrap_or(-1), self.rank(0)?).ok()?;
        (samples.axis < axis && self.all_parameters_from(1)).then_some(samples)
    }

    /// Operators that work along one axis, which must not be that of the samples.
    pub(super) fn along_other_axis(&self, operator: &str) -> Option<Samples> {
        let samples = self.samples(0)?;
        let extreme = operator.starts_with("Arg");
        let axis = axis_of(
            self.node.int("axis").unwrap_or(if extreme { 0 } else { -1 }),
            self.rank(0)?,
        )
        .ok()?;
        if axis == samples.axis || !self.all_parameters_from(1) {
            return None;
        }
        let dropped = extreme && self.node.int("keepdims").unwrap_or(1) == 0 && axis < samples.axis;
        Some(samples.on(samples.axis - usize::from(dropped)))
    }

    pub(super) fn reduce(&self) -> Option<Samples> {
        let samples = self.samples(0)?;
        let mut axes = reduced_axes(&self.context(), self.rank(0)?).ok()?;
        axes.sort_unstable();
        axes.dedup();
        if axes.contains(&samples.axis) {
            return None;
        }
        let keep = self.node.int("keepdims").unwrap_or(1) != 0;
        let dropped = if keep {
            0
        } else {
            axes.iter().filter(|&&axis| axis < samples.axis).count()
        };
        Some(samples.on(samples.axis - dropped))
    }
}
