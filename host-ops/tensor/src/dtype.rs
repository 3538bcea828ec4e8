use serde::{Deserialize, Serialize};

/// The element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// Unsigned bytes; pixels before normalisation.
    U8,
    /// IEEE half precision.
    F16,
    /// The upper half of an `f32`.
    Bf16,
    /// IEEE single precision; what networks compute in.
    F32,
    /// IEEE double precision.
    F64,
    /// Signed 32-bit integers.
    I32,
    /// Signed 64-bit integers.
    I64,
}

impl DType {
    /// Bytes one element takes.
    pub const fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    /// The lower-case name used on the wire and in messages, such as `f32`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I32 => "i32",
            Self::I64 => "i64",
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
