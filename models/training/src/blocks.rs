use crate::axis::{SpatialAxis, coordinates};

/// Approximate number of output positions in a block. Blocks of this size are small enough that a channel's
/// kernel, spread into a matrix, is mostly nonzero, and large enough for matrix products to pay off.
const BLOCK_POSITIONS: usize = 64;

/// Divides the output of windows into blocks of equal size and selects the required input positions. A single
/// block along an axis reads the input without padding. All positions are flat, row-major indices.
#[derive(Debug, Clone)]
pub(crate) struct Blocks {
    axes: Vec<BlockAxis>,
}

/// Spatial axis with the number of blocks along it.
#[derive(Debug, Clone, Copy)]
struct BlockAxis {
    axis: SpatialAxis,
    count: usize,
}

impl Blocks {
    pub(crate) fn new(axes: &[SpatialAxis]) -> Self {
        let rank = axes.len().max(1);
        let side = (1..=BLOCK_POSITIONS)
            .rev()
            .find(|side| side.pow(rank as u32) <= BLOCK_POSITIONS);
        let side = side.unwrap_or(1);
        Self {
            axes: axes
                .iter()
                .map(|axis| BlockAxis {
                    axis: *axis,
                    count: axis.output.div_ceil(side).max(1),
                })
                .collect(),
        }
    }

    fn product(&self, size: impl Fn(&BlockAxis) -> usize) -> usize {
        self.axes.iter().map(size).product()
    }

    fn coordinates(&self, size: impl Fn(&BlockAxis) -> usize) -> Vec<Vec<usize>> {
        coordinates(&self.axes.iter().map(size).collect::<Vec<usize>>())
    }

    pub(crate) fn count(&self) -> usize {
        self.product(|axis| axis.count)
    }

    pub(crate) fn inputs(&self) -> usize {
        self.product(|axis| axis.axis.input)
    }

    pub(crate) fn outputs(&self) -> usize {
        self.product(|axis| axis.axis.output)
    }

    pub(crate) fn taps(&self) -> usize {
        self.product(|axis| axis.axis.kernel)
    }

    /// Number of input positions per block.
    pub(crate) fn sees(&self) -> usize {
        self.product(BlockAxis::sees)
    }

    /// Number of output positions per block.
    pub(crate) fn makes(&self) -> usize {
        self.product(BlockAxis::makes)
    }

    /// Returns the input positions of all blocks, block by block. The position [`Self::inputs`] represents
    /// padding.
    pub(crate) fn input_positions(&self) -> Vec<usize> {
        self.each(
            BlockAxis::sees,
            BlockAxis::seen,
            |axis| axis.axis.input,
            self.inputs(),
        )
    }

    /// Returns the output positions of all blocks, block by block. The position [`Self::outputs`] represents
    /// places after the end.
    pub(crate) fn output_positions(&self) -> Vec<usize> {
        self.each(
            BlockAxis::makes,
            BlockAxis::made,
            |axis| axis.axis.output,
            self.outputs(),
        )
    }

    /// Combines `position` over all axes for every block and place. The result is `none` if an axis has no
    /// position.
    fn each(
        &self,
        places: impl Fn(&BlockAxis) -> usize,
        position: impl Fn(&BlockAxis, usize, usize) -> Option<usize>,
        length: impl Fn(&BlockAxis) -> usize,
        none: usize,
    ) -> Vec<usize> {
        let places = self.coordinates(places);
        let mut all = Vec::with_capacity(self.count() * places.len());
        for block in self.coordinates(|axis| axis.count) {
            for place in &places {
                let steps = self.axes.iter().zip(block.iter().zip(place));
                let flat = steps.into_iter().try_fold(0, |flat, (axis, (block, place))| {
                    Some(flat * length(axis) + position(axis, *block, *place)?)
                });
                all.push(flat.unwrap_or(none));
            }
        }
        all
    }

    /// Returns the index in [`Self::output_positions`] of every output position.
    pub(crate) fn output_indices(&self) -> Vec<usize> {
        let mut placed = vec![0; self.outputs()];
        for (place, position) in self.output_positions().into_iter().enumerate() {
            if let Some(known) = placed.get_mut(position) {
                *known = place;
            }
        }
        placed
    }

    /// Returns the indices in [`Self::input_positions`] for every input position and the number of indices per position.
    /// Positions with fewer indices are filled up with the length of [`Self::input_positions`].
    pub(crate) fn input_indices(&self) -> (Vec<usize>, usize) {
        let seen = self.input_positions();
        let mut seers = vec![Vec::new(); self.inputs()];
        for (place, position) in seen.iter().enumerate() {
            if let Some(seers) = seers.get_mut(*position) {
                seers.push(place);
            }
        }
        let most = seers.iter().map(Vec::len).max().unwrap_or(0).max(1);
        for seers in &mut seers {
            seers.resize(most, seen.len());
        }
        (seers.concat(), most)
    }

    /// Returns the matrix `[taps, sees·makes]` with a 1 wherever a tap connects an input place to an output
    /// place. A kernel times this matrix is the matrix that turns the input of a block into the output.
    pub(crate) fn tap_matrix(&self) -> Vec<f64> {
        let seen = self.coordinates(BlockAxis::sees);
        let made = self.coordinates(BlockAxis::makes);
        let mut spread = vec![0.0; self.taps() * seen.len() * made.len()];
        for (s, seen) in seen.iter().enumerate() {
            for (m, place) in made.iter().enumerate() {
                let steps = self.axes.iter().zip(seen.iter().zip(place));
                let tap = steps.into_iter().try_fold(0, |flat, (axis, (seen, made))| {
                    Some(flat * axis.axis.kernel + axis.tap(*seen, *made)?)
                });
                let at = tap.map(|tap| (tap * self.sees() + s) * made.len() + m);
                if let Some(one) = at.and_then(|at| spread.get_mut(at)) {
                    *one = 1.0;
                }
            }
        }
        spread
    }
}

impl BlockAxis {
    fn makes(&self) -> usize {
        self.axis.output.div_ceil(self.count)
    }

    fn sees(&self) -> usize {
        match self.count {
            1 => self.axis.input,
            _ => self.makes().saturating_sub(1) * self.axis.stride + self.axis.span(),
        }
    }

    /// Padding at the start of the block's input.
    fn padding(&self) -> usize {
        if self.count == 1 { 0 } else { self.axis.begin }
    }

    fn seen(&self, block: usize, place: usize) -> Option<usize> {
        let position = (block * self.makes() * self.axis.stride + place).checked_sub(self.padding());
        position.filter(|position| *position < self.axis.input)
    }

    fn made(&self, block: usize, place: usize) -> Option<usize> {
        Some(block * self.makes() + place).filter(|position| *position < self.axis.output)
    }

    /// Returns the tap that connects the input place `seen` to the output place `made`, or `None` if the
    /// window of `made` does not read it.
    fn tap(&self, seen: usize, made: usize) -> Option<usize> {
        let SpatialAxis {
            kernel,
            stride,
            dilation,
            begin,
            ..
        } = self.axis;
        let distance = (seen + begin - self.padding()).checked_sub(made * stride)?;
        let tap = distance / dilation;
        (distance % dilation == 0 && tap < kernel).then_some(tap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_match_windows() {
        for ((input, output), (kernel, stride, dilation), begin) in [
            ((7, 7), (5, 1, 1), 2),
            ((130, 130), (3, 1, 1), 1),
            ((130, 65), (3, 2, 1), 1),
            ((200, 196), (3, 1, 2), 0),
            ((9, 3), (2, 4, 1), 1),
            ((150, 75), (7, 2, 1), 3),
        ] {
            let axis = SpatialAxis {
                input,
                output,
                kernel,
                stride,
                dilation,
                begin,
                end: begin,
            };
            let blocks = Blocks::new(&[axis]);
            let seen = blocks.input_positions();
            let made = blocks.output_positions();
            let spread = blocks.tap_matrix();
            let sees = blocks.sees();
            let makes = blocks.makes();
            let mut found = vec![None; axis.output * axis.kernel];
            for (place, output) in made
                .iter()
                .enumerate()
                .filter(|(_, output)| **output < axis.output)
            {
                assert_eq!(blocks.output_indices()[*output], place);
                for tap in 0..axis.kernel {
                    for s in 0..sees {
                        if spread[(tap * sees + s) * makes + place % makes] == 1.0 {
                            let input = seen[place / makes * sees + s];
                            found[output * axis.kernel + tap] =
                                Some(input).filter(|input| *input < axis.input);
                        }
                    }
                }
            }
            let seen_by = |output: usize| (0..kernel).map(move |tap| axis.input_of(output, tap));
            let windows: Vec<Option<usize>> = (0..output).flat_map(seen_by).collect();
            assert_eq!(found, windows, "{axis:?}");
            let (seers, most) = blocks.input_indices();
            for (index, place) in seers.iter().enumerate().filter(|(_, place)| **place < seen.len()) {
                assert_eq!(seen[*place], index / most);
            }
            let times = seen.iter().filter(|position| **position < axis.input).count();
            assert_eq!(seers.iter().filter(|place| **place < seen.len()).count(), times);
        }
    }
}
