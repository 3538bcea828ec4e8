//! Detects networks whose first layers normalize the pixels.

use crate::onnx::{NodeProto, TensorProto};
use crate::values::Literal;
use crate::{ChannelMap, Model};
use frostline_tensor::PixelSpec;
use std::collections::HashMap;
use std::ops::RangeInclusive;

const CHANNELS: usize = 3;

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
        let constants = self.constants();
        let mut value = self.input_name().ok()?;
        let mut map = ChannelMap::identity(CHANNELS);
        let mut layers = Vec::new();
        for _ in 0..MOST_LAYERS {
            let Some(node) = self.only_reader(value) else {
                break;
            };
            let Some(next) = mapped(node, value, &map, &constants) else {
                break;
            };
            if next != map {
                layers.push(node.label().to_owned());
            }
            map = next;
            value = node.output_name(0)?;
        }
        let white = white(&map)?;
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
}

/// Returns `map` followed by `node`, which reads `value`. Returns `None` if the node does something else than scaling
/// and shifting the channels.
fn mapped(
    node: &NodeProto,
    value: &str,
    map: &ChannelMap,
    constants: &HashMap<&str, &TensorProto>,
) -> Option<ChannelMap> {
    let first = node.input_name(0) == Some(value);
    match node.standard_operator()? {
        "Identity" | "Cast" | "Transpose" => Some(map.clone()),
        "Sub" if !first => None,
        _ => map.clone().followed_by(node, value, |slot| {
            let constant = constants.get(node.input_name(slot)?)?;
            match Literal::from_proto(constant)? {
                Literal::Numbers(numbers) => match *numbers.as_slice() {
                    [common] => Some(vec![common; CHANNELS]),
                    _ => Some(numbers).filter(|numbers| numbers.len() == CHANNELS),
                },
                Literal::Integers(_) => None,
            }
        }),
    }
}

/// Range of scales from pixels between 0 and 1 to the input of a layer: 1 for no normalization, 2 for -1 to 1, 4.5 for
/// ImageNet's, and 10 for EfficientNet's, which divides by the standard deviation twice.
const NORMAL: RangeInclusive<f64> = 0.9..=12.0;

/// Returns the value of white that this function normalizes, if any.
fn white(map: &ChannelMap) -> Option<u8> {
    let mut channels = map.scale.iter().copied().zip(map.shift.iter().copied());
    if channels.clone().all(normalizes_bytes) {
        return Some(255);
    }
    channels.all(normalizes_fractions).then_some(1)
}

/// Returns true if a channel with this scale and shift normalizes pixels between 0 and 255. Means of such
/// pixels may also be subtracted without scaling.
fn normalizes_bytes((scale, shift): (f64, f64)) -> bool {
    NORMAL.contains(&(scale * 255.0)) || ((0.9..1.1).contains(&scale) && shift < -20.0)
}

/// Returns true if a channel with this scale and shift normalizes pixels between 0 and 1. A first layer
/// with learned factors may enlarge pixels that are already normalized. These have a mean of about 0.
fn normalizes_fractions((scale, shift): (f64, f64)) -> bool {
    let centered = (0.25..0.75).contains(&(-shift / scale));
    (NORMAL.contains(&scale) && centered) || (200.0..300.0).contains(&scale)
}
