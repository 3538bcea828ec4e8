//! Real rows on the wire: their bytes, and what encoding and decoding them takes.

use crate::ProfileError;
use bytes::{Bytes, BytesMut};
use frostline_tensor::{DType, Tensor};
use frostline_wire::{ActivationReader, ActivationWriter, Encoded, Encoding, RowFormat, RowValue};
use std::collections::BTreeMap;
use std::time::Instant;

/// The encodings that activations may travel in.
const OF_ACTIVATIONS: &[Encoding] = &[Encoding::F32];

/// Bytes of rows that are encoded: enough for times that stand out of the clock's noise, few enough that the first cut of VGG19 (13 MB
/// a row) does not hold the profile up.
const BYTES: usize = 16 << 20;

/// The least rows that are encoded: how well they compress differs from sample to sample.
const ROWS: usize = 2;

/// Times each encoding is measured; the fastest counts, since only disturbances differ.
const REPETITIONS: usize = 2;

/// Activations in every encoding, by its name.
///
/// # Errors
/// [`ProfileError::Frame`] for rows that no answer could hold.
pub fn encoded_activations(rows: &Tensor) -> Result<BTreeMap<String, Encoded>, ProfileError> {
    let rows = some_rows(rows)?;
    let measured = OF_ACTIVATIONS
        .iter()
        .map(|&encoding| Ok((encoding.to_string(), measure(&rows, encoding)?)));
    measured.collect()
}

/// Pixels as they may travel at the split `input`: before normalisation (`u8`), and after (`f32`), by the encoding's name.
///
/// # Errors
/// [`ProfileError::Frame`] for rows that no answer could hold.
pub fn encoded_pixels(
    bytes: &Tensor,
    normalised: &Tensor,
) -> Result<BTreeMap<String, Encoded>, ProfileError> {
    let pixels = [(Encoding::U8, bytes), (Encoding::F32, normalised)];
    let measured = pixels
        .into_iter()
        .map(|(encoding, rows)| Ok((encoding.to_string(), measure(&some_rows(rows)?, encoding)?)));
    measured.collect()
}

fn some_rows(rows: &Tensor) -> Result<Tensor, ProfileError> {
    let count = rows.rows()?;
    let row_bytes = rows.byte_len() / count.max(1);
    let wanted = (BYTES / row_bytes.max(1)).max(ROWS).min(count);
    Ok(rows.slice_rows(0, wanted)?)
}

/// Writes `rows` as an answer's body and reads them back into a batch, as host and trainer do.
fn measure(rows: &Tensor, encoding: Encoding) -> Result<Encoded, ProfileError> {
    debug_assert_eq!(encoding == Encoding::U8, rows.dtype() == DType::U8);
    let count = rows.rows()?;
    let mut best = Encoded {
        bytes_per_sample: 0.0,
        encode_seconds_per_sample: f64::INFINITY,
        decode_seconds_per_sample: f64::INFINITY,
    };
    for _ in 0..REPETITIONS {
        let (body, encode) = encode(rows)?;
        best.bytes_per_sample = body.len() as f64 / count.max(1) as f64;
        best.encode_seconds_per_sample = best.encode_seconds_per_sample.min(encode / count.max(1) as f64);
        let decode = decode(rows, body)?;
        best.decode_seconds_per_sample = best.decode_seconds_per_sample.min(decode / count.max(1) as f64);
    }
    Ok(best)
}

fn format(rows: &Tensor) -> Result<RowFormat, ProfileError> {
    let row = rows.shape().row()?.dims().to_vec();
    Ok(match rows.dtype() {
        DType::U8 => RowFormat::U8(row),
        _ => RowFormat::F32(row),
    })
}

fn positions(rows: &Tensor) -> Result<Vec<u32>, ProfileError> {
    let count = rows.rows()?;
    Ok((0..u32::MAX).take(count).collect())
}

/// The body, and the seconds it took.
fn encode(rows: &Tensor) -> Result<(Bytes, f64), ProfileError> {
    let (positions, own) = (positions(rows)?, rows.clone());
    let started = Instant::now();
    let mut writer = ActivationWriter::new(format(rows)?)?;
    let mut pieces = writer.tensor(&positions, own)?;
    pieces.extend(writer.finish()?);
    let seconds = started.elapsed().as_secs_f64();
    let mut body = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    pieces.iter().for_each(|piece| body.extend_from_slice(piece));
    Ok((body.freeze(), seconds))
}

/// The seconds from a body to rows in one batch.
fn decode(rows: &Tensor, body: Bytes) -> Result<f64, ProfileError> {
    let mut reader = ActivationReader::new(format(rows)?, positions(rows)?, body.len());
    let mut batch: Vec<f32> = Vec::with_capacity(rows.byte_len() / rows.dtype().size().max(1));
    let mut bytes: Vec<u8> = Vec::with_capacity(if rows.dtype() == DType::U8 {
        rows.byte_len()
    } else {
        0
    });
    let started = Instant::now();
    for part in reader.push(body)? {
        for row in part.rows() {
            match row?.outcome {
                Ok(RowValue::F32(values)) => batch.extend_from_slice(values),
                Ok(RowValue::U8(values) | RowValue::Object(values)) => bytes.extend_from_slice(values),
                // None was written.
                Err(_) => {}
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    drop((batch, bytes));
    Ok(seconds)
}
