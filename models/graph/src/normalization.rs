//! Detects networks whose first layers normalize the pixels.

use crate::Model;
use crate::onnx::NodeProto;
use crate::values::Literal;
use frostline_tensor::PixelSpec;
use std::ops::RangeInclusive;

/// Maximum number of layers to search. Keras has up to five, and casts and transpositions may be added.
const MOST_LAYERS: usize = 16;

/// First layers of a network that scale pixels and subtract a mean, such as `Rescaling` and `Normalization`
/// of Keras. The network must be fed with raw pixels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputNormalization {
    /// Names of the layers, in the order of execution.
    pub layers: Vec<String>,
    /// Value of white in the network's input: 255 or 1. Black is 0.
    pub white: u8,
}

impl InputNormalization {
    /// Returns `spec` with mean and standard deviation for raw pixels.
    #[must_use]
    pub fn raw(&self, spec: PixelSpec) -> PixelSpec {
        PixelSpec {
            mean: [0.0; 3],
            std: [1.0 / f32::from(self.white); 3],
            ..spec
        }
    }
}

impl Model {
    /// Returns the first layers that normalize the pixels, or `None` if the network expects normalized
    /// pixels. Layers with learned or computed factors are not recognized, except for BatchNormalization.
    pub fn input_normalization(&self) -> Option<InputNormalization> {
        let mut value = self.input_name().ok()?;
        let mut map = PixelMap::IDENTITY;
        let mut layers = Vec::new();
        for _ in 0..MOST_LAYERS {
            let Some(node) = self.only_reader(value) else {
                break;
            };
            let Some(next) = self.mapped(node, value, map) else {
                break;
            };
            if next != map {
                layers.push(node.label().to_owned());
            }
            map = next;
            value = node.output_name(0)?;
        }
        let white = map.white()?;
        Some(InputNormalization { layers, white })
    }

    /// Returns the only node that reads the elements of `value`.
    fn only_reader(&self, value: &str) -> Option<&NodeProto> {
        let mut readers = self.nodes().iter().filter(|node| {
            let reads = node.input.iter().any(|input| input == value);
            reads && !crate::kinds::reads_shape(node)
        });
        readers.next().filter(|_| readers.next().is_none())
    }

    /// Applies `node` to a value that is `map` of the input. Returns `None` if the node does something else
    /// than scaling and shifting the channels.
    fn mapped(&self, node: &NodeProto, value: &str, map: PixelMap) -> Option<PixelMap> {
        let first = node.input_name(0) == Some(value);
        let other = usize::from(first);
        match node.standard_operator()? {
            "Identity" | "Cast" | "Transpose" => Some(map),
            "Mul" => Some(map.scaled(self.per_channel(node, other)?)),
            "Div" if first => Some(map.scaled(self.per_channel(node, other)?.map(f64::recip))),
            "Add" => Some(map.shifted(self.per_channel(node, other)?)),
            "Sub" if first => Some(map.shifted(self.per_channel(node, other)?.map(|mean| -mean))),
            "BatchNormalization" => {
                let epsilon = f64::from(node.float("epsilon").unwrap_or(1e-5));
                let variances = self.per_channel(node, 4)?;
                let scale = variances.map(|variance| (variance + epsilon).sqrt().recip());
                let means = self.per_channel(node, 3)?;
                let centered = map.shifted(means.map(|mean| -mean)).scaled(scale);
                Some(
                    centered
                        .scaled(self.per_channel(node, 1)?)
                        .shifted(self.per_channel(node, 2)?),
                )
            }
            _ => None,
        }
    }

    /// Returns the input in `slot` if it is a constant with an element per channel or a single one.
    fn per_channel(&self, node: &NodeProto, slot: usize) -> Option<[f64; 3]> {
        let name = node.input_name(slot)?;
        match Literal::from_proto(self.initializer(name).or_else(|| {
            let mut nodes = self.nodes().iter();
            let node = nodes.find(|node| node.output_name(0) == Some(name))?;
            node.tensor("value").filter(|_| node.op_type == "Constant")
        })?)? {
            Literal::Numbers(numbers) => match *numbers.as_slice() {
                [common] => Some([common; 3]),
                [red, green, blue] => Some([red, green, blue]),
                _ => None,
            },
            Literal::Integers(_) => None,
        }
    }
}

/// Linear function per channel: `scale * pixel + shift`.
#[derive(Clone, Copy, PartialEq)]
struct PixelMap {
    scale: [f64; 3],
    shift: [f64; 3],
}

impl PixelMap {
    const IDENTITY: Self = Self {
        scale: [1.0; 3],
        shift: [0.0; 3],
    };

    /// Range of scales from pixels between 0 and 1 to the input of a layer: 1 for no normalization, 2 for -1
    /// to 1, 4.5 for ImageNet's, and 10 for EfficientNet's, which divides by the standard deviation twice.
    const NORMAL: RangeInclusive<f64> = 0.9..=12.0;

    fn scaled(self, by: [f64; 3]) -> Self {
        Self {
            scale: product(self.scale, by),
            shift: product(self.shift, by),
        }
    }

    fn shifted(self, by: [f64; 3]) -> Self {
        let [red, green, blue] = self.shift;
        let [a, b, c] = by;
        Self {
            shift: [red + a, green + b, blue + c],
            ..self
        }
    }

    /// Returns the value of white that this function normalizes, if any.
    fn white(self) -> Option<u8> {
        let mut channels = self.scale.into_iter().zip(self.shift);
        if channels.clone().all(Self::normalizes_bytes) {
            return Some(255);
        }
        channels.all(Self::normalizes_fractions).then_some(1)
    }

    /// Returns true if a channel with this scale and shift normalizes pixels between 0 and 255. Means of such
    /// pixels may also be subtracted without scaling.
    fn normalizes_bytes((scale, shift): (f64, f64)) -> bool {
        Self::NORMAL.contains(&(scale * 255.0)) || ((0.9..1.1).contains(&scale) && shift < -20.0)
    }

    /// Returns true if a channel with this scale and shift normalizes pixels between 0 and 1. A first layer
    /// with learned factors may enlarge pixels that are already normalized. These have a mean of about 0.
    fn normalizes_fractions((scale, shift): (f64, f64)) -> bool {
        let centered = (0.25..0.75).contains(&(-shift / scale));
        (Self::NORMAL.contains(&scale) && centered) || (200.0..300.0).contains(&scale)
    }
}

fn product([a, b, c]: [f64; 3], [d, e, f]: [f64; 3]) -> [f64; 3] {
    [a * d, b * e, c * f]
}
