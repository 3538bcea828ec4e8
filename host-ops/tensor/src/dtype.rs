use serde::{Deserialize, Serialize};

/// Element type of a tensor. The name on the wire and in messages is lower-case, such as `f32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum DType {
    /// Unsigned 8-bit integers, such as pixels before normalization.
    U8,
    /// IEEE half precision.
    F16,
    /// bfloat16: the upper half of an `f32`.
    Bf16,
    /// IEEE single precision, the type that networks compute in.
    F32,
    /// IEEE double precision.
    F64,
    /// Signed 32-bit integers.
    I32,
    /// Signed 64-bit integers.
    I64,
}

impl DType {
    /// Returns the size of an element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }
}
