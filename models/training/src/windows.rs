use crate::TrainingError;
use crate::axis::{SpatialAxis, coordinates};
use crate::blocks::Blocks;
use crate::call::NodeCall;
use crate::tiles::Tiles;
use frostline_graph::build;
use frostline_graph::onnx::AttributeProto;
use std::collections::BTreeMap;

/// Geometry of a convolution or pooling, which maps kernel taps and output positions to input positions.
/// Positions and taps are flat, row-major indices over any number of spatial axes.
#[derive(Debug, Clone)]
pub(crate) struct Windows {
    axes: Vec<SpatialAxis>,
}

/// Input positions with the same taps. The number of phases is 1 for stride 1, and up to s per axis for
/// stride s.
#[derive(Debug, Default)]
pub(crate) struct WindowPhase {
    /// Taps in ascending order.
    pub(crate) taps: Vec<usize>,
    /// Input positions in ascending order.
    pub(crate) positions: Vec<usize>,
    /// Output positions by position and tap. The value [`Windows::outputs`] represents none.
    pub(crate) pattern: Vec<usize>,
}

impl Windows {
    /// Returns the windows of a Conv or pooling node with the kernel size `kernel` and the input size
    /// `input`.
    pub(crate) fn new(call: &NodeCall<'_>, input: &[usize], kernel: &[usize]) -> Result<Self, TrainingError> {
        let rank = input.len();
        let output = call.output_shape.get(2..).unwrap_or_default();
        let strides = call.sizes("strides", rank, 1)?;
        let dilations = call.sizes("dilations", rank, 1)?;
        let pads = call.sizes("pads", 2 * rank, 0)?;
        let (begins, ends) = pads.split_at_checked(rank).unwrap_or_default();
        if output.len() != rank || kernel.len() != rank || rank == 0 {
            return Err(
                call.unsupported("kernel, input and output must have the same number of spatial axes")
            );
        }
        let mut axes = Vec::with_capacity(rank);
        let sizes = input.iter().zip(output).zip(kernel);
        let steps = strides.iter().zip(&dilations).zip(begins.iter().zip(ends));
        for (((&input, &output), &kernel), ((&stride, &dilation), (&begin, &end))) in sizes.zip(steps) {
            let mut axis = SpatialAxis {
                input,
                output,
                kernel,
                stride: stride.max(1),
                dilation: dilation.max(1),
                begin,
                end,
            };
            axis.pad_automatically(call.node.text("auto_pad").unwrap_or("NOTSET"));
            axes.push(axis);
        }
        Ok(Self { axes })
    }

    pub(crate) fn attributes(&self) -> Vec<AttributeProto> {
        let pads = [self.sizes(|axis| axis.begin), self.sizes(|axis| axis.end)].concat();
        vec![
            build::ints("kernel_shape", &self.sizes(|axis| axis.kernel)),
            build::ints("strides", &self.sizes(|axis| axis.stride)),
            build::ints("dilations", &self.sizes(|axis| axis.dilation)),
            build::ints("pads", &pads),
        ]
    }

    /// Returns a size per axis as integers of an attribute.
    fn sizes(&self, size: impl Fn(&SpatialAxis) -> usize) -> Vec<i64> {
        self.axes.iter().map(|axis| size(axis) as i64).collect()
    }

    /// Returns the number of positions after the last window for every axis.
    pub(crate) fn unreached(&self) -> Vec<i64> {
        let left = |axis: &SpatialAxis| {
            (axis.begin + axis.input + axis.end) as i64
                - (axis.output.saturating_sub(1) * axis.stride + axis.span()) as i64
        };
        self.axes.iter().map(left).collect()
    }

    /// Number of input positions.
    pub(crate) fn inputs(&self) -> usize {
        self.axes.iter().map(|axis| axis.input).product()
    }

    /// Number of output positions.
    pub(crate) fn outputs(&self) -> usize {
        self.axes.iter().map(|axis| axis.output).product()
    }

    pub(crate) fn taps(&self) -> usize {
        self.axes.iter().map(|axis| axis.kernel).product()
    }

    /// Returns true if output and input positions are identical, without any neighbors.
    pub(crate) fn is_identity(&self) -> bool {
        self.taps() == 1
            && self
                .axes
                .iter()
                .all(|axis| axis.stride == 1 && axis.begin == 0 && axis.end == 0)
    }

    /// Returns Winograd's tiles, or `None` unless the kernel is 3 x 3 with stride 1 and no dilation.
    pub(crate) fn tiles(&self) -> Option<Tiles> {
        match self.axes.as_slice() {
            &[rows, columns] => Tiles::new(rows, columns),
            _ => None,
        }
    }

    pub(crate) fn blocks(&self) -> Blocks {
        Blocks::new(&self.axes)
    }

    /// Returns the input position for every output position and tap, or [`Self::inputs`] for padding.
    pub(crate) fn pattern(&self) -> Vec<usize> {
        let taps = self.coordinates(|axis| axis.kernel);
        let outputs = self.coordinates(|axis| axis.output);
        let seen = |output: &[usize], tap: &[usize]| {
            let places = self
                .axes
                .iter()
                .zip(output.iter().zip(tap))
                .map(|(axis, (o, t))| axis.input_of(*o, *t));
            flat(places.zip(self.axes.iter().map(|axis| axis.input))).unwrap_or(self.inputs())
        };
        outputs
            .iter()
            .flat_map(|output| taps.iter().map(|tap| seen(output, tap)))
            .collect()
    }

    /// Returns the inverse of [`Self::pattern`], for gradients.
    pub(crate) fn phases(&self) -> Vec<WindowPhase> {
        let taps = self.coordinates(|axis| axis.kernel);
        let mut phases: BTreeMap<Vec<usize>, WindowPhase> = BTreeMap::new();
        for (position, place) in self.coordinates(|axis| axis.input).iter().enumerate() {
            let mut reached = Vec::new();
            let mut pattern = Vec::new();
            for (tap, offsets) in taps.iter().enumerate() {
                if let Some(output) = self.output_of(place, offsets) {
                    reached.push(tap);
                    pattern.push(output);
                }
            }
            let phase = phases.entry(reached.clone()).or_default();
            phase.taps = reached;
            phase.positions.push(position);
            phase.pattern.extend(pattern);
        }
        phases.into_values().collect()
    }

    /// Returns the number of taps inside the input for every output position, including padding if `padded`
    /// is set. Like in PyTorch, taps outside of the padding (`ceil_mode`) never count.
    pub(crate) fn counts(&self, padded: bool) -> Vec<usize> {
        let outputs = self.coordinates(|axis| axis.output);
        let counts = outputs.iter().map(|output| {
            let axes = self.axes.iter().zip(output);
            axes.map(|(axis, output)| axis.count(*output, padded)).product()
        });
        counts.collect()
    }

    /// Returns the output position that reads the input position `place` through the tap at `offsets`.
    /// Returns `None` if the stride skips it, and [`Self::outputs`] if the position is outside of the output.
    fn output_of(&self, place: &[usize], offsets: &[usize]) -> Option<usize> {
        let mut outputs = Vec::with_capacity(self.axes.len());
        for (axis, (place, tap)) in self.axes.iter().zip(place.iter().zip(offsets)) {
            let distance = (place + axis.begin) as i64 - (tap * axis.dilation) as i64;
            let stride = axis.stride as i64;
            if distance.rem_euclid(stride) != 0 {
                return None;
            }
            let output = usize::try_from(distance / stride)
                .ok()
                .filter(|output| *output < axis.output);
            outputs.push((output, axis.output));
        }
        Some(flat(outputs.into_iter()).unwrap_or(self.outputs()))
    }

    fn coordinates(&self, size: impl Fn(&SpatialAxis) -> usize) -> Vec<Vec<usize>> {
        coordinates(&self.axes.iter().map(size).collect::<Vec<usize>>())
    }
}

/// Returns the row-major index of a coordinate given as (index, length) pairs, or `None` if an index is
/// `None`.
fn flat(mut places: impl Iterator<Item = (Option<usize>, usize)>) -> Option<usize> {
    places.try_fold(0, |index, (place, length)| {
        place.map(|place| index * length + place)
    })
}
