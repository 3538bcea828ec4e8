//! Real rows on the wire: their bytes, and what encoding and decoding them takes.

use crate::{ProfileError, codec};
use frostline_tensor::Tensor;
use frostline_wire::{Compression, Encoded, Encoding};
use std::collections::BTreeMap;

/// The encodings that activations may travel in.
const OF_ACTIVATIONS: [Encoding; 7] = [
    Encoding::F32,
    Encoding::F16,
    Encoding::INT8,
    Encoding::F16.with(Compression::Lz4),
    Encoding::F16.with(Compression::Zstd),
    Encoding::INT8.with(Compression::Lz4),
    Encoding::INT8.with(Compression::Zstd),
];

/// Bytes of rows that are encoded: enough for times that stand out of the clock's noise, few enough that the first cut of VGG19 (13 MB
/// a row) does not hold the profile up.
const BYTES: usize = 16 << 20;

/// The least rows that are encoded: how well they compress differs from sample to sample.
const ROWS: usize = 2;

/// Activations in every encoding, by its name.
///
/// # Errors
/// [`ProfileError::Frame`] for rows that no answer could hold.
pub(crate) fn encoded_activations(rows: &Tensor) -> Result<BTreeMap<String, Encoded>, ProfileError> {
    let rows = some_rows(rows)?;
    let measured = OF_ACTIVATIONS
        .iter()
        .map(|&encoding| Ok((encoding.to_string(), codec(&rows, encoding)?)));
    measured.collect()
}

/// Pixels as they may travel at the split `input`: before normalization (`u8`), and after (`f32`), by the encoding's name.
///
/// # Errors
/// [`ProfileError::Frame`] for rows that no answer could hold.
pub fn encoded_pixels(
    bytes: &Tensor,
    normalized: &Tensor,
) -> Result<BTreeMap<String, Encoded>, ProfileError> {
    let pixels = [(Encoding::U8, bytes), (Encoding::F32, normalized)];
    let measured = pixels
        .into_iter()
        .map(|(encoding, rows)| Ok((encoding.to_string(), codec(&some_rows(rows)?, encoding)?)));
    measured.collect()
}

fn some_rows(rows: &Tensor) -> Result<Tensor, ProfileError> {
    let count = rows.rows()?;
    let row_bytes = rows.byte_len() / count.max(1);
    let wanted = (BYTES / row_bytes.max(1)).max(ROWS).min(count);
    Ok(rows.slice_rows(0, wanted)?)
}
