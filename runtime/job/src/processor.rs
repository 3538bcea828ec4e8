//! Image processor configurations of transformers (`preprocessor_config.json`) as preprocessing recipes.

use frostline_tensor::{ChannelOrder, Interpolation, PixelSpec, ResizeMode};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Defaults of the supported classes, which differ from [`common_defaults`]. The Python test
/// `test_recipes.py` compares them with transformers.
const DEFAULTS: &str = include_str!("processors.json");

/// Defaults of transformers for all classes.
fn common_defaults() -> Value {
    json!({
        "default_to_square": true, "resample": 2, "do_resize": true, "do_center_crop": false, "do_pad": false,
        "do_rescale": true, "rescale_factor": 1.0 / 255.0, "do_normalize": true, "do_flip_channel_order": false,
        "include_top": false, "rescale_offset": false,
    })
}

/// Operations that a configuration can switch on and recipes can express, or that only affect labels.
const UNDERSTOOD: [&str; 8] = [
    "do_resize",
    "do_center_crop",
    "do_rescale",
    "do_normalize",
    "do_flip_channel_order",
    "do_convert_rgb",
    "do_reduce_labels",
    "do_convert_annotations",
];

/// Further operations of single classes.
const UNSUPPORTED: [&str; 3] = ["keep_aspect_ratio", "crop_to_patches", "use_square_size"];

/// Classes whose code never crops, whatever the configuration says. ConvNeXT crops by its own rule.
const WITHOUT_CROP: [&str; 9] = [
    "ConvNextImageProcessor",
    "DPTImageProcessor",
    "Gemma3ImageProcessor",
    "GotOcr2ImageProcessor",
    "PromptDepthAnythingImageProcessor",
    "RTDetrImageProcessor",
    "SegformerImageProcessor",
    "SegGptImageProcessor",
    "SuperPointImageProcessor",
];

/// Converts a configuration to a recipe. As in transformers, a field that is missing or null has the default
/// of the class.
///
/// # Errors
/// Returns a message that names the class or the first field that recipes cannot express.
pub(crate) fn recipe(config: &Value) -> Result<PixelSpec, String> {
    let fields = config.as_object().ok_or("expected an object")?;
    let given = |name: &str| fields.get(name).and_then(Value::as_str);
    let class = given("image_processor_type").or_else(|| given("feature_extractor_type"));
    let class = class.map(current_name);
    let processor: Processor = serde_json::from_value(with_defaults(fields, class.as_deref())?)
        .map_err(|error| error.to_string())?;
    if let Some(unsupported) = unsupported(fields, class.as_deref()) {
        return Err(format!("{unsupported}, which is not supported"));
    }
    processor.spec(class.as_deref().unwrap_or_default())
}

/// Returns the name of a class without the suffixes of its variants.
fn current_name(name: &str) -> String {
    let base = ["FeatureExtractor", "ImageProcessorFast", "ImageProcessorPil"]
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix));
    base.map_or_else(|| name.to_owned(), |base| format!("{base}ImageProcessor"))
}

/// Completes a configuration with the defaults of its class.
fn with_defaults(fields: &Map<String, Value>, class: Option<&str>) -> Result<Value, String> {
    let mut all = common_defaults();
    let own: Map<String, Value> = match class {
        Some(class) => {
            let mut classes: Map<String, Value> =
                serde_json::from_str(DEFAULTS).map_err(|error| error.to_string())?;
            let defaults = classes.remove(class).unwrap_or_default();
            defaults
                .as_object()
                .cloned()
                .ok_or_else(|| format!("image processors of the class {class} are not supported"))?
        }
        None => Map::new(),
    };
    let stated = fields.iter().filter(|(_, value)| !value.is_null());
    if let Some(all) = all.as_object_mut() {
        all.extend(own);
        all.extend(stated.map(|(name, value)| (name.clone(), value.clone())));
    }
    Ok(all)
}

/// Returns the first setting that recipes cannot express.
fn unsupported(fields: &Map<String, Value>, class: Option<&str>) -> Option<String> {
    let operations = fields.keys().map(String::as_str);
    let operations = operations.filter(|name| name.starts_with("do_") && !UNDERSTOOD.contains(name));
    let efficient = class == Some("EfficientNetImageProcessor");
    let second = ["include_top", "rescale_offset"];
    let second = second.into_iter().filter(|_| !efficient);
    let mut switches = operations.chain(UNSUPPORTED).chain(second);
    if let Some(name) = switches.find(|name| fields.get(*name) == Some(&Value::Bool(true))) {
        return Some(format!("{name} is true"));
    }
    if fields.get("do_resize") == Some(&Value::Bool(false)) {
        return Some("do_resize is false".to_owned());
    }
    let multiple = fields
        .get("ensure_multiple_of")
        .and_then(Value::as_u64)
        .unwrap_or(1);
    if multiple != 1 {
        return Some(format!("ensure_multiple_of is {multiple}"));
    }
    (class.is_none() && fields.get("crop_pct").is_some_and(|value| !value.is_null()))
        .then(|| "crop_pct is set without image_processor_type".to_owned())
}

/// A configuration with all defaults.
#[derive(Deserialize)]
struct Processor {
    size: Value,
    default_to_square: bool,
    do_center_crop: bool,
    #[serde(default)]
    crop_size: Value,
    crop_pct: Option<f64>,
    resample: u32,
    do_rescale: bool,
    rescale_factor: f64,
    rescale_offset: bool,
    do_normalize: bool,
    include_top: bool,
    do_flip_channel_order: bool,
    image_mean: Option<PerChannel>,
    image_std: Option<PerChannel>,
}

/// A number per channel, or a common number.
#[derive(Deserialize, Clone, Copy)]
#[serde(untagged)]
enum PerChannel {
    Common(f64),
    Each([f64; 3]),
}

impl PerChannel {
    fn each(self) -> [f64; 3] {
        match self {
            Self::Common(value) => [value; 3],
            Self::Each(values) => values,
        }
    }
}

/// Size after the resize, in pixels.
#[derive(Clone, Copy)]
enum Size {
    Exact { height: u32, width: u32 },
    Short(u32),
}

/// Forms of a size in a configuration.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum StatedSize {
    Side(u32),
    Pair([u32; 2]),
    Sides { height: u32, width: u32 },
    Short { shortest_edge: u32 },
}

impl Size {
    /// Reads a size. `square` is the meaning of a single number.
    fn read(field: &str, value: &Value, square: bool) -> Result<Self, String> {
        let mut stated = value.clone();
        if let Some(sides) = stated.as_object_mut() {
            sides.retain(|_, value| !value.is_null());
        }
        let stated: Result<StatedSize, _> = serde_json::from_value(stated);
        match stated.map_err(|_| format!("{field} {value} is not supported"))? {
            StatedSize::Side(side) if square => Ok(Self::Exact {
                height: side,
                width: side,
            }),
            StatedSize::Side(side) | StatedSize::Short { shortest_edge: side } => Ok(Self::Short(side)),
            StatedSize::Pair([height, width]) | StatedSize::Sides { height, width } => {
                Ok(Self::Exact { height, width })
            }
        }
    }
}

/// Resize and crop of a recipe, in pixels.
struct Geometry {
    resize: u32,
    mode: ResizeMode,
    crop: (u32, u32),
}

impl Geometry {
    /// Resizes to the given shape. The crop has the same proportions.
    fn squash((height, width): (u32, u32), crop: (u32, u32)) -> Self {
        Self {
            resize: height.min(width),
            mode: ResizeMode::Squash,
            crop,
        }
    }

    fn short(resize: u32, crop: (u32, u32)) -> Self {
        Self {
            resize,
            mode: ResizeMode::Short,
            crop,
        }
    }
}

impl Processor {
    fn spec(&self, class: &str) -> Result<PixelSpec, String> {
        let Geometry { resize, mode, crop } = self.geometry(class)?;
        let interpolation = match self.resample {
            0 => Interpolation::Nearest,
            1 => Interpolation::Lanczos,
            2 => Interpolation::Bilinear,
            3 => Interpolation::Bicubic,
            4 => return Err("resample 4 (box) is not supported".to_owned()),
            5 => return Err("resample 5 (hamming) is not supported".to_owned()),
            other => return Err(format!("resample {other} is unknown")),
        };
        let (mean, std) = self.normalization()?;
        Ok(PixelSpec {
            resize,
            resize_mode: mode,
            interpolation,
            mean,
            std,
            channels: if self.do_flip_channel_order {
                ChannelOrder::Bgr
            } else {
                ChannelOrder::Rgb
            },
            ..PixelSpec::imagenet(crop.0, crop.1)
        })
    }

    /// Returns mean and standard deviation for pixels between 0 and 1. Transformers multiplies bytes by a
    /// factor and may subtract 1. It then normalizes, and EfficientNet divides by the standard deviation
    /// again.
    fn normalization(&self) -> Result<([f32; 3], [f32; 3]), String> {
        let factor = if self.do_rescale { self.rescale_factor } else { 1.0 };
        let offset = if self.do_rescale && self.rescale_offset {
            1.0
        } else {
            0.0
        };
        let stated = self.image_mean.zip(self.image_std);
        let stated = stated.map(|(mean, std)| (mean.each(), std.each()));
        if stated.is_none() && (self.do_normalize || self.include_top) {
            return Err("do_normalize is true without image_mean and image_std".to_owned());
        }
        let (mean, std) = stated.unwrap_or(([0.0; 3], [1.0; 3]));
        let scale = factor * 255.0;
        let mean = mean.map(|mean| {
            let mean = if self.do_normalize { mean } else { 0.0 };
            ((mean + offset) / scale) as f32
        });
        let std = std.map(|std| {
            let divisions = i32::from(self.do_normalize) + i32::from(self.include_top);
            (std.powi(divisions) / scale) as f32
        });
        Ok((mean, std))
    }

    fn geometry(&self, class: &str) -> Result<Geometry, String> {
        let size = Size::read("size", &self.size, self.default_to_square)?;
        let crop = self.crop(class)?;
        let size = match class {
            "ConvNextImageProcessor" => return self.convnext(size),
            "LevitImageProcessor" => match size {
                Size::Short(side) => Size::Short((256.0 / 224.0 * f64::from(side)) as u32),
                exact @ Size::Exact { .. } => exact,
            },
            "PoolFormerImageProcessor" => self.poolformer(size)?,
            _ => size,
        };
        match (size, crop) {
            (Size::Exact { height, width }, None) => Ok(Geometry::squash((height, width), (height, width))),
            (Size::Exact { height, width }, Some(crop)) if height == width && crop.0 == crop.1 => {
                Ok(Geometry::squash((height, width), crop))
            }
            (Size::Exact { height, width }, Some((h, w))) => Err(format!(
                "resizing to {height}x{width} with a crop of {h}x{w} is not supported"
            )),
            (Size::Short(side), Some(crop)) => Ok(Geometry::short(side, crop)),
            (Size::Short(_), None) => {
                Err("resizing the shortest edge without a crop gives images of different shapes".to_owned())
            }
        }
    }

    /// Returns height and width of the center crop, if any.
    fn crop(&self, class: &str) -> Result<Option<(u32, u32)>, String> {
        if !self.do_center_crop {
            return Ok(None);
        }
        if WITHOUT_CROP.contains(&class) {
            return Err(format!(
                "do_center_crop is true, which is not supported for {class}"
            ));
        }
        match Size::read("crop_size", &self.crop_size, true)? {
            Size::Exact { height, width } => Ok(Some((height, width))),
            Size::Short(_) => Err(format!("crop_size {} is not supported", self.crop_size)),
        }
    }

    /// Sizes of `ConvNextImageProcessor`, which only crops images below 384 pixels.
    fn convnext(&self, size: Size) -> Result<Geometry, String> {
        const SQUASHED: u32 = 384;
        let Size::Short(side) = size else {
            return Err(format!(
                "size {} is not supported for ConvNextImageProcessor",
                self.size
            ));
        };
        let square = (side, side);
        if side >= SQUASHED {
            return Ok(Geometry::squash(square, square));
        }
        Ok(Geometry::short(self.enlarged(side)?, square))
    }

    /// Sizes of `PoolFormerImageProcessor`, which divides them by `crop_pct` and keeps the aspect ratio if
    /// they are square.
    fn poolformer(&self, size: Size) -> Result<Size, String> {
        match size {
            Size::Exact { height, width } if height != width => Ok(Size::Exact {
                height: self.enlarged(height)?,
                width: self.enlarged(width)?,
            }),
            Size::Exact { height: side, .. } | Size::Short(side) => Ok(Size::Short(self.enlarged(side)?)),
        }
    }

    /// Divides a side by `crop_pct` and rounds down.
    fn enlarged(&self, side: u32) -> Result<u32, String> {
        let share = self.crop_pct.ok_or("crop_pct is missing")?;
        Ok((f64::from(side) / share) as u32)
    }
}
