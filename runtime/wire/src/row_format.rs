/// Format of the rows in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowFormat {
    /// Raw object bytes, for the split `none`.
    Object,
    /// `f32` with this shape per sample.
    F32(Vec<usize>),
    /// `u8` pixels with this shape per sample, before normalization.
    U8(Vec<usize>),
    /// `f16` with this shape per sample. Other rows use `f32`.
    F16(Vec<usize>),
    /// 8 bits with scales and offsets, with this shape per sample. Other rows use `f32`.
    Int8(Vec<usize>),
}

impl std::fmt::Display for RowFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Object => f.write_str("object bytes"),
            Self::F32(shape) => write!(f, "f32{shape:?}"),
            Self::U8(shape) => write!(f, "u8{shape:?}"),
            Self::F16(shape) => write!(f, "f16{shape:?}"),
            Self::Int8(shape) => write!(f, "int8{shape:?}"),
        }
    }
}

impl RowFormat {
    /// Returns the shape of a row, or `None` for objects.
    pub fn shape(&self) -> Option<&[usize]> {
        match self {
            Self::Object => None,
            Self::F32(shape) | Self::U8(shape) | Self::F16(shape) | Self::Int8(shape) => Some(shape),
        }
    }
}
