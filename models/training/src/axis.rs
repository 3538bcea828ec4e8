//! Spatial axes of a convolution or pooling.

/// Spatial axis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpatialAxis {
    pub(crate) input: usize,
    pub(crate) output: usize,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) dilation: usize,
    /// Padding before the first element.
    pub(crate) begin: usize,
    /// Padding after the last element, according to the node.
    pub(crate) end: usize,
}

impl SpatialAxis {
    /// Number of positions from the first to the last tap.
    pub(crate) fn span(&self) -> usize {
        self.kernel.saturating_sub(1) * self.dilation + 1
    }

    pub(crate) fn pad_automatically(&mut self, mode: &str) {
        let total = (self.output.saturating_sub(1) * self.stride + self.span()).saturating_sub(self.input);
        match mode {
            "SAME_UPPER" => (self.begin, self.end) = (total / 2, total - total / 2),
            "SAME_LOWER" => (self.begin, self.end) = (total - total / 2, total / 2),
            "VALID" => (self.begin, self.end) = (0, 0),
            _ => {}
        }
    }

    /// Returns the input position that a tap reads for an output position, or `None` in the padding.
    pub(crate) fn input_of(&self, output: usize, tap: usize) -> Option<usize> {
        (output * self.stride + tap * self.dilation)
            .checked_sub(self.begin)
            .filter(|place| *place < self.input)
    }

    pub(crate) fn count(&self, output: usize, padded: bool) -> usize {
        let room = self.begin + self.input + self.end;
        (0..self.kernel)
            .filter(|tap| match padded {
                true => output * self.stride + tap * self.dilation < room,
                false => self.input_of(output, *tap).is_some(),
            })
            .count()
    }
}

/// Returns all coordinates within these sizes in row-major order.
pub(crate) fn coordinates(sizes: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for size in sizes {
        all = all
            .iter()
            .flat_map(|prefix| {
                let prefix = prefix.clone();
                (0..*size).map(move |index| [prefix.as_slice(), &[index]].concat())
            })
            .collect();
    }
    all
}
