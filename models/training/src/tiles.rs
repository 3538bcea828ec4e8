use crate::axis::SpatialAxis;

/// Divides the input and output of a 3 x 3 convolution with stride 1 into tiles. A tile reads 4 x 4 input
/// positions and computes 2 x 2 output positions. Both tiles and positions in tiles are in row-major order.
#[derive(Debug, Clone)]
pub(crate) struct Tiles {
    rows: SpatialAxis,
    columns: SpatialAxis,
}

impl Tiles {
    /// Returns `None` unless the kernel is 3 x 3 with stride 1 and no dilation.
    pub(crate) fn new(rows: SpatialAxis, columns: SpatialAxis) -> Option<Self> {
        let mut axes = [rows, columns].into_iter();
        let fits = axes.all(|axis| (axis.kernel, axis.stride, axis.dilation) == (3, 1, 1));
        fits.then_some(Self { rows, columns })
    }

    pub(crate) fn count(&self) -> usize {
        self.rows.tiles() * self.columns.tiles()
    }

    pub(crate) fn inputs(&self) -> usize {
        self.rows.input * self.columns.input
    }

    pub(crate) fn outputs(&self) -> usize {
        self.rows.output * self.columns.output
    }

    /// Returns the input positions of all tiles, place by place. The position [`Self::inputs`] represents
    /// padding.
    pub(crate) fn input_positions(&self) -> Vec<usize> {
        self.each(
            4,
            |axis, place, tile| axis.input_of(2 * tile, place),
            self.columns.input,
            self.inputs(),
        )
    }

    /// Returns the output positions of all tiles, place by place. The position [`Self::outputs`] represents
    /// places after the end.
    pub(crate) fn output_positions(&self) -> Vec<usize> {
        self.each(
            2,
            |axis, place, tile| Some(2 * tile + place).filter(|position| *position < axis.output),
            self.columns.output,
            self.outputs(),
        )
    }

    /// Combines `position` over both axes for every place and tile. The result is `none` if an axis has no
    /// position.
    fn each(
        &self,
        places: usize,
        position: impl Fn(&SpatialAxis, usize, usize) -> Option<usize>,
        width: usize,
        none: usize,
    ) -> Vec<usize> {
        let rows = self.rows.tiles();
        let columns = self.columns.tiles();
        let mut all = Vec::with_capacity(places * places * rows * columns);
        for place in 0..places * places {
            for tile in 0..rows * columns {
                let row = position(&self.rows, place / places, tile / columns);
                let column = position(&self.columns, place % places, tile % columns);
                all.push(row.zip(column).map_or(none, |(row, column)| row * width + column));
            }
        }
        all
    }

    /// Returns the index in [`Self::output_positions`] of every output position.
    pub(crate) fn output_indices(&self) -> Vec<usize> {
        let width = self.columns.output;
        let columns = self.columns.tiles();
        (0..self.outputs())
            .map(|position| {
                let row = position / width;
                let column = position % width;
                (2 * (row % 2) + column % 2) * self.count() + row / 2 * columns + column / 2
            })
            .collect()
    }

    /// Returns indices in [`Self::input_positions`] as `[4, inputs]`, four for every input position. If fewer than four
    /// tiles read a position, indices repeat, and [`Self::shares`] corrects the sum.
    pub(crate) fn input_indices(&self) -> Vec<usize> {
        let width = self.columns.input;
        let columns = self.columns.tiles();
        let seer = |turn: usize, position: usize| {
            let (row, row_tile) = self.rows.seer(turn / 2, position / width);
            let (column, column_tile) = self.columns.seer(turn % 2, position % width);
            (4 * row + column) * self.count() + row_tile * columns + column_tile
        };
        let turns = 0..4;
        turns
            .flat_map(|turn| (0..self.inputs()).map(move |position| seer(turn, position)))
            .collect()
    }

    /// Returns the fraction of different indices in [`Self::input_indices`] for every input position: 1/4, 1/2 or 1.
    pub(crate) fn shares(&self) -> Vec<f64> {
        let width = self.columns.input;
        (0..self.inputs())
            .map(|position| {
                let seers =
                    self.rows.seers(position / width).count() * self.columns.seers(position % width).count();
                seers as f64 / 4.0
            })
            .collect()
    }
}

impl SpatialAxis {
    fn tiles(&self) -> usize {
        self.output.div_ceil(2)
    }

    /// Returns the places of `position` in tiles, as pairs of place and tile. Up to two tiles read a
    /// position.
    fn seers(&self, position: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
        let padded = position + self.begin;
        let place = padded % 2;
        let last = padded / 2;
        let tiles = self.tiles();
        let both = [
            Some((place, last)),
            last.checked_sub(1).map(|tile| (place + 2, tile)),
        ];
        both.into_iter().flatten().filter(move |(_, tile)| *tile < tiles)
    }

    fn seer(&self, turn: usize, position: usize) -> (usize, usize) {
        let mut seers = self.seers(position).cycle();
        seers.nth(turn).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiles(input: [usize; 2], begin: [usize; 2], end: [usize; 2]) -> Tiles {
        let axis = |input, begin, end| SpatialAxis {
            input,
            output: input + begin + end - 2,
            kernel: 3,
            stride: 1,
            dilation: 1,
            begin,
            end,
        };
        Tiles::new(axis(input[0], begin[0], end[0]), axis(input[1], begin[1], end[1])).unwrap()
    }

    #[test]
    fn tile_indices_match_positions() {
        for (input, begin, end) in [
            ([7, 7], [1, 1], [1, 1]),
            ([6, 4], [1, 1], [1, 1]),
            ([5, 3], [0, 2], [1, 0]),
            ([3, 9], [0, 0], [0, 0]),
        ] {
            let tiles = tiles(input, begin, end);
            let seen = tiles.input_positions();
            let made = tiles.output_positions();
            let placed: Vec<usize> = tiles.output_indices().iter().map(|place| made[*place]).collect();
            assert_eq!(placed, (0..tiles.outputs()).collect::<Vec<usize>>());
            let mut counted = vec![0.0; tiles.inputs()];
            for (index, place) in tiles.input_indices().iter().enumerate() {
                let position = index % tiles.inputs();
                assert_eq!(seen[*place], position);
                counted[position] += tiles.shares()[position];
            }
            for (position, counted) in counted.iter().enumerate() {
                let times = seen.iter().filter(|seen| **seen == position).count();
                assert_eq!(*counted, times as f64, "{input:?} {position}");
            }
        }
    }
}
