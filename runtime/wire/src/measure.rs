use crate::{ActivationReader, ActivationWriter, Encoded, Encoding, FrameError, RowFormat, RowValue};
use bytes::Bytes;
use frostline_tensor::Tensor;
use std::time::{Duration, Instant};

/// Repetitions stop after this long, so that profiling many cuts stays short; the fastest one counts.
const LONGEST: Duration = Duration::from_millis(40);
const REPETITIONS: usize = 5;

/// Encodes and decodes real rows, one record batch of all of them, and says what each of them weighs and takes on this
/// thread. `rows` is a batch: `u8` pixels for the values `u8`, activations as computed (`f32`) for all others.
///
/// # Errors
/// [`FrameError::Rows`] for rows of another type, or none at all; [`FrameError::Format`] for a shape Arrow cannot hold.
pub fn measure(rows: &Tensor, encoding: Encoding) -> Result<Encoded, FrameError> {
    let shape = rows.shape().row().map_err(FrameError::encode)?;
    let format = encoding.values.rows(shape.dims().to_vec());
    let count = rows.rows().map_err(FrameError::encode)?;
    if count == 0 {
        return Err(FrameError::Rows {
            expected: format,
            actual: rows.describe(),
        });
    }
    let positions: Vec<u32> = (0..u32::try_from(count).map_err(FrameError::encode)?).collect();
    let largest = format.largest_row_bytes()?.unwrap_or(0).saturating_add(1 << 10);
    let limit = usize::try_from(largest.saturating_mul(count as u64)).unwrap_or(usize::MAX);
    let mut place = Place::of(&format)?;

    let started = Instant::now();
    let (mut encode, mut decode, mut bytes) = (f64::INFINITY, f64::INFINITY, 0);
    for _ in 0..REPETITIONS {
        let copy = rows.clone();
        let before = Instant::now();
        let mut writer = ActivationWriter::compressed(format.clone(), encoding.compression)?;
        let mut pieces = writer.tensor(&positions, copy)?;
        pieces.extend(writer.finish()?);
        encode = encode.min(before.elapsed().as_secs_f64());
        bytes = pieces.iter().map(Bytes::len).sum::<usize>();

        let before = Instant::now();
        let reader = ActivationReader::new(
            format.clone(),
            positions.iter().copied(),
            limit.saturating_add(1 << 16),
        );
        read(reader.compressed(encoding.compression), pieces, &mut place)?;
        decode = decode.min(before.elapsed().as_secs_f64());
        if started.elapsed() > LONGEST {
            break;
        }
    }
    Ok(Encoded {
        bytes_per_sample: bytes as f64 / count as f64,
        encode_seconds_per_sample: encode / count as f64,
        decode_seconds_per_sample: decode / count as f64,
    })
}

/// Where a decoded row goes.
enum Place {
    F32(Vec<f32>),
    U8(Vec<u8>),
}

impl Place {
    fn of(format: &RowFormat) -> Result<Self, FrameError> {
        let width = format.width()?.unwrap_or(0);
        Ok(match format {
            RowFormat::U8(_) => Self::U8(vec![0; width]),
            _ => Self::F32(vec![0.0; width]),
        })
    }

    fn take(&mut self, value: RowValue<'_>) -> bool {
        match (self, value) {
            (Self::F32(place), value) => value.read_into(place),
            (Self::U8(place), RowValue::U8(bytes)) if place.len() == bytes.len() => {
                place.copy_from_slice(bytes);
                true
            }
            _ => false,
        }
    }
}

fn read(mut reader: ActivationReader, pieces: Vec<Bytes>, place: &mut Place) -> Result<(), FrameError> {
    for piece in pieces {
        for batch in reader.push(piece)? {
            for row in batch.rows() {
                let taken = row?.outcome.is_ok_and(|value| place.take(value));
                if !taken {
                    return Err(FrameError::malformed("a row did not come back as it was sent"));
                }
            }
        }
    }
    reader.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compression, Values};
    use frostline_tensor::Data;

    #[test]
    fn every_encoding_is_measured_and_smaller_ones_are() {
        let values: Vec<f32> = (0..4 * 4096)
            .map(|i| ((i * 37) % 101) as f32 * 0.1 - 3.0)
            .collect();
        let rows = Tensor::f32([4, 16, 256], values).unwrap();
        let bytes = |encoding: Encoding| {
            let encoded = measure(&rows, encoding).unwrap();
            assert!(encoded.encode_seconds_per_sample > 0.0 && encoded.decode_seconds_per_sample > 0.0);
            encoded.bytes_per_sample
        };
        for values in [Values::F32, Values::F16, Values::Int8] {
            let plain = bytes(Encoding::plain(values));
            let format = values.rows(vec![16, 256]);
            let raw = format.row_bytes().unwrap().unwrap() as f64;
            assert!(plain > raw && plain < raw + 1000.0, "{plain} for {raw}");
            for compression in [Compression::Lz4, Compression::Zstd] {
                assert!(bytes(Encoding::plain(values).with(compression)) < plain);
            }
        }
    }

    #[test]
    fn rows_of_another_type_are_refused() {
        let pixels = Tensor::new([1, 4], Data::U8(vec![0; 4])).unwrap();
        assert!(measure(&pixels, Encoding::U8).is_ok());
        assert!(measure(&pixels, Encoding::F16).is_err());
        assert!(measure(&Tensor::f32([0, 4], vec![]).unwrap(), Encoding::F32).is_err());
        assert!(measure(&Tensor::f32([1, 4], vec![0.0; 4]).unwrap(), Encoding::U8).is_err());
    }
}
