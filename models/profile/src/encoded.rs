//! Measurement of encodings with real rows.

use crate::{ProfileError, measure_encoding};
use frostline_tensor::{PixelFormat, Tensor};
use frostline_wire::{Compression, Encoded, Encoding, TensorInfo, Values};
use std::collections::BTreeMap;

/// Maximum size of the encoded rows in bytes, unless [`ROWS`] rows are larger. This is sufficient for
/// durations above clock noise, and limits the time for large cuts such as the first one of VGG19 (13 MB per
/// row, so two rows are encoded).
const BYTES: usize = 16 << 20;

/// Minimum number of encoded rows, because the compression ratio depends on the sample.
const ROWS: usize = 2;

/// Measures activations in all encodings, for rows that consist of `tensors`. The keys are names of encodings. Compression
/// is only measured with lossy element types.
///
/// # Errors
/// Returns [`ProfileError::Frame`] if an answer cannot contain these rows.
pub(crate) fn encoded_activations(
    rows: &Tensor,
    tensors: &[TensorInfo],
) -> Result<BTreeMap<String, Encoded>, ProfileError> {
    let rows = some_rows(rows)?;
    let encodings = Values::ALL
        .into_iter()
        .flat_map(|values| Compression::ALL.map(|compression| Encoding { values, compression }));
    measured(
        encodings
            .filter(|encoding| encoding.values.pixel_format() == PixelFormat::F32)
            .filter(|encoding| encoding.values.is_lossy() || encoding.compression == Compression::None)
            .map(|encoding| (encoding, &rows)),
        tensors,
    )
}

/// Measures pixels for the split `input`: `u8` before normalization, and `f32` after it. The keys are names
/// of encodings.
///
/// # Errors
/// Returns [`ProfileError::Frame`] if an answer cannot contain these rows.
pub fn encoded_pixels(
    bytes: &Tensor,
    normalized: &Tensor,
) -> Result<BTreeMap<String, Encoded>, ProfileError> {
    let pixels = [
        (Encoding::U8, &some_rows(bytes)?),
        (Encoding::F32, &some_rows(normalized)?),
    ];
    measured(pixels, &[])
}

fn measured<'a>(
    rows: impl IntoIterator<Item = (Encoding, &'a Tensor)>,
    tensors: &[TensorInfo],
) -> Result<BTreeMap<String, Encoded>, ProfileError> {
    let rows = rows.into_iter();
    rows.map(|(encoding, rows)| Ok((encoding.to_string(), measure_encoding(rows, tensors, encoding)?)))
        .collect()
}

fn some_rows(rows: &Tensor) -> Result<Tensor, ProfileError> {
    let count = rows.rows()?;
    let row_bytes = rows.byte_len() / count.max(1);
    let wanted = (BYTES / row_bytes.max(1)).max(ROWS).min(count);
    Ok(rows.slice_rows(0, wanted)?)
}
