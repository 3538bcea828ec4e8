use arrow_schema::DataType;
use frostline_tensor::PixelFormat;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Encoding of activations. The text form contains the element type and an optional compression after `+`.
/// Examples are `f32` and `f16+zstd`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Encoding {
    /// Element type in transit.
    pub values: Values,
    /// Compression of batch buffers.
    pub compression: Compression,
}

/// Element type of activations in transit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, strum::AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum Values {
    /// Original precision.
    #[default]
    F32,
    /// Pixels before normalization. Only for the split `input`, and lossless. Tensors of booleans and bytes that are part
    /// of a row use it as well.
    U8,
    /// Half precision. Rows with finite values above 65504 are sent as `f32`.
    F16,
    /// 8 bits between the minimum and maximum of each slice. Slices correspond to the first axis (channels, tokens) if
    /// each has at least 64 elements. Otherwise, the whole row is a slice. Rows with NaN or infinities are sent as `f32`.
    Int8,
    /// Exact integers, for integer tensors that are part of a row. It cannot be requested by name. Rows with other
    /// values are sent as `f32`.
    I32,
}

/// Body compression of Arrow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// LZ4 frames.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// Unknown name of an encoding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown encoding {word:?}: use f32, u8, f16 or int8, optionally followed by +lz4 or +zstd")]
pub struct UnknownEncoding {
    /// Unknown name, shortened to 40 characters.
    pub word: String,
}

impl Encoding {
    /// Original precision, uncompressed.
    pub const F32: Self = Self::plain(Values::F32);
    /// Pixels, uncompressed.
    pub const U8: Self = Self::plain(Values::U8);
    /// Half precision, uncompressed.
    pub const F16: Self = Self::plain(Values::F16);
    /// 8 bits, uncompressed.
    pub const INT8: Self = Self::plain(Values::Int8);

    /// Creates an encoding without compression.
    pub const fn plain(values: Values) -> Self {
        Self {
            values,
            compression: Compression::None,
        }
    }

    /// Returns the encoding with another compression.
    pub const fn with(self, compression: Compression) -> Self {
        Self {
            values: self.values,
            compression,
        }
    }
}

impl Values {
    /// All element types that can be requested.
    pub const ALL: [Self; 4] = [Self::F32, Self::U8, Self::F16, Self::Int8];

    /// Returns true if decoded activations can differ from the originals. Rows that the element type cannot
    /// represent are then sent as `f32`.
    pub const fn is_lossy(self) -> bool {
        match self {
            Self::F32 | Self::U8 | Self::I32 => false,
            Self::F16 | Self::Int8 => true,
        }
    }

    /// Returns true if each slice of a row has a scale and an offset.
    pub(crate) const fn has_scales(self) -> bool {
        matches!(self, Self::Int8)
    }

    /// Returns the format of the pixels that are encoded with this element type at the split `input`.
    pub const fn pixel_format(self) -> PixelFormat {
        match self {
            Self::U8 => PixelFormat::U8,
            Self::F32 | Self::F16 | Self::Int8 | Self::I32 => PixelFormat::F32,
        }
    }

    /// Returns the type of an element in Arrow.
    pub(crate) const fn arrow_type(self) -> DataType {
        match self {
            Self::F32 => DataType::Float32,
            Self::U8 => DataType::UInt8,
            Self::F16 => DataType::Float16,
            Self::Int8 => DataType::Int8,
            Self::I32 => DataType::Int32,
        }
    }
}

impl Compression {
    /// All compressions.
    pub const ALL: [Self; 3] = [Self::None, Self::Lz4, Self::Zstd];

    const fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Lz4 => "+lz4",
            Self::Zstd => "+zstd",
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Format widths apply to the full name.
        f.pad(&format!("{}{}", self.values.as_ref(), self.compression.suffix()))
    }
}

impl FromStr for Encoding {
    type Err = UnknownEncoding;

    fn from_str(word: &str) -> Result<Self, UnknownEncoding> {
        let (values, suffix) = word.split_at(word.find('+').unwrap_or(word.len()));
        let values = Values::ALL.into_iter().find(|known| known.as_ref() == values);
        let compression = Compression::ALL
            .into_iter()
            .find(|known| known.suffix() == suffix);
        values
            .zip(compression)
            .map(|(values, compression)| Self { values, compression })
            .ok_or_else(|| UnknownEncoding {
                word: word.chars().take(40).collect(),
            })
    }
}

impl TryFrom<String> for Encoding {
    type Error = UnknownEncoding;

    fn try_from(word: String) -> Result<Self, UnknownEncoding> {
        word.parse()
    }
}

impl From<Encoding> for String {
    fn from(encoding: Encoding) -> Self {
        encoding.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_encoding_is_one_word_that_reads_back() {
        for values in Values::ALL {
            for compression in Compression::ALL {
                let encoding = Encoding { values, compression };
                let word = encoding.to_string();
                assert_eq!(word.parse(), Ok(encoding));
                let json = serde_json::to_string(&encoding).unwrap();
                assert_eq!(json, format!("{word:?}"));
                assert_eq!(serde_json::from_str::<Encoding>(&json).unwrap(), encoding);
            }
        }
        assert_eq!(Encoding::F16.with(Compression::Zstd).to_string(), "f16+zstd");
        assert_eq!(serde_json::from_str::<Encoding>("\"u8\"").unwrap(), Encoding::U8);
    }

    #[test]
    fn other_words_are_refused_by_name() {
        for word in [
            "",
            "f64",
            "F16",
            "f16+",
            "f16+gzip",
            "+lz4",
            "f16+lz4+zstd",
            "f16 +lz4",
        ] {
            let refused = word.parse::<Encoding>().unwrap_err();
            assert!(refused.to_string().contains(&format!("{word:?}")), "{refused}");
        }
    }
}
