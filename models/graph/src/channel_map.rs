use crate::onnx::NodeProto;

/// Linear function of each channel: `scale * x + shift`.
#[derive(Debug, Clone, PartialEq)]
pub struct ChannelMap {
    /// Factor of each channel.
    pub scale: Vec<f64>,
    /// Term of each channel.
    pub shift: Vec<f64>,
}

impl ChannelMap {
    /// Returns the function that changes nothing.
    #[must_use]
    pub fn identity(channels: usize) -> Self {
        Self {
            scale: vec![1.0; channels],
            shift: vec![0.0; channels],
        }
    }

    /// Returns this function followed by `node`: a `BatchNormalization` in inference, or an `Add`, `Sub`, `Mul` or
    /// `Div` with a constant. The node reads `value`, the result of this function. `constant` returns the input in a
    /// slot, if it is a constant with an element per channel. Returns `None` for other nodes.
    #[must_use]
    pub fn followed_by(
        self,
        node: &NodeProto,
        value: &str,
        constant: impl Fn(usize) -> Option<Vec<f64>>,
    ) -> Option<Self> {
        let first = node.input_name(0) == Some(value);
        let other = usize::from(first);
        Some(match (node.standard_operator()?, first) {
            ("Mul", _) => self.scaled(constant(other)?),
            ("Div", true) => self.scaled(constant(other)?.into_iter().map(f64::recip)),
            ("Add", _) => self.shifted(constant(other)?),
            ("Sub", true) => self.shifted(constant(other)?.into_iter().map(|term| -term)),
            ("Sub", false) => self.scaled(std::iter::repeat(-1.0)).shifted(constant(other)?),
            ("BatchNormalization", true) => {
                let epsilon = f64::from(node.float("epsilon").unwrap_or(1e-5));
                let variances = constant(4)?.into_iter();
                let deviations = variances.map(|variance| (variance + epsilon).sqrt());
                let factors = constant(1)?.into_iter().zip(deviations);
                self.shifted(constant(3)?.into_iter().map(|mean| -mean))
                    .scaled(factors.map(|(factor, by)| factor / by))
                    .shifted(constant(2)?)
            }
            _ => return None,
        })
    }

    fn scaled(mut self, factors: impl IntoIterator<Item = f64>) -> Self {
        let channels = self.scale.iter_mut().zip(&mut self.shift);
        for ((scale, shift), factor) in channels.zip(factors) {
            *scale *= factor;
            *shift *= factor;
        }
        self
    }

    fn shifted(mut self, terms: impl IntoIterator<Item = f64>) -> Self {
        for (shift, term) in self.shift.iter_mut().zip(terms) {
            *shift += term;
        }
        self
    }
}
