//! Measurement of an encoding.

use crate::ProfileError;
use bytes::Bytes;
use frostline_tensor::Tensor;
use frostline_wire::{
    ActivationReader, ActivationWriter, Encoded, Encoding, FrameError, RowFormat, RowValue, TensorInfo,
    Values,
};
use std::time::{Duration, Instant};

/// Maximum time for repetitions per encoding. The fastest repetition counts.
const MAX_REPETITION_TIME: Duration = Duration::from_millis(40);
const REPETITIONS: usize = 5;

/// Encodes and decodes a record batch on this thread, and returns size and durations per row. `rows` contains
/// `u8` pixels for `u8` encodings, and `f32` activations for all others, which concatenate `tensors` if there are any.
///
/// # Errors
/// Returns [`ProfileError::Frame`] if the type is wrong or Arrow does not support the shape. Returns
/// [`ProfileError::Missing`] if `rows` is empty.
pub fn measure_encoding(
    rows: &Tensor,
    tensors: &[TensorInfo],
    encoding: Encoding,
) -> Result<Encoded, ProfileError> {
    let shape = rows.shape().row()?;
    let format = encoding.values.rows_of(shape.dims().to_vec(), tensors);
    let count = rows.rows()?;
    if count == 0 {
        return Err(ProfileError::Missing { what: "sample" });
    }
    let positions: Vec<u32> = (0..).take(count).collect();
    let limit = usize::try_from(format.message_bytes(count as u64, 0)).unwrap_or(usize::MAX);
    let mut decoded = Decoded::for_format(&format)?;

    let started = Instant::now();
    let mut encode = f64::INFINITY;
    let mut decode = f64::INFINITY;
    let mut bytes = 0;
    for _ in 0..REPETITIONS {
        let copy = rows.clone();
        let before = Instant::now();
        let mut writer = ActivationWriter::new(format.clone(), encoding.compression)?;
        let mut pieces = writer.tensor(&positions, copy)?;
        pieces.extend(writer.finish()?);
        encode = encode.min(before.elapsed().as_secs_f64());
        bytes = pieces.iter().map(Bytes::len).sum::<usize>();

        let before = Instant::now();
        let reader = ActivationReader::new(format.clone(), positions.iter().copied(), limit);
        read(reader.compressed(encoding.compression), pieces, &mut decoded)?;
        decode = decode.min(before.elapsed().as_secs_f64());
        if started.elapsed() > MAX_REPETITION_TIME {
            break;
        }
    }
    Ok(Encoded {
        bytes_per_sample: bytes as f64 / count as f64,
        encode_seconds_per_sample: encode / count as f64,
        decode_seconds_per_sample: decode / count as f64,
    })
}

/// Buffer for decoded rows.
enum Decoded {
    F32(Vec<f32>),
    U8(Vec<u8>),
}

impl Decoded {
    fn for_format(format: &RowFormat) -> Result<Self, FrameError> {
        let width = format.width()?.unwrap_or(0);
        Ok(match format {
            RowFormat::Tensor(Values::U8, _) => Self::U8(vec![0; width]),
            _ => Self::F32(vec![0.0; width]),
        })
    }

    fn copy(&mut self, value: RowValue<'_>) -> bool {
        match (self, value) {
            (Self::F32(row), value) => value.read_into(row),
            (Self::U8(row), RowValue::U8(bytes)) if row.len() == bytes.len() => {
                row.copy_from_slice(bytes);
                true
            }
            _ => false,
        }
    }
}

fn read(mut reader: ActivationReader, pieces: Vec<Bytes>, decoded: &mut Decoded) -> Result<(), FrameError> {
    for piece in pieces {
        for batch in reader.push(piece)? {
            for row in batch.rows() {
                let taken = row?.outcome.is_ok_and(|value| decoded.copy(value));
                if !taken {
                    let detail = "a decoded row differs from the encoded row".into();
                    return Err(FrameError::Malformed { detail });
                }
            }
        }
    }
    reader.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_tensor::{DType, Data};
    use frostline_wire::Compression;

    #[test]
    fn each_tensor_of_a_row_has_its_own_size() {
        let tensor = |name: &str, dtype| TensorInfo {
            name: name.to_owned(),
            dtype,
            shape: vec![4096],
        };
        let tensors = [
            tensor("x", DType::F32),
            tensor("ids", DType::I64),
            tensor("mask", DType::U8),
        ];
        let rows = Tensor::f32([2, 3 * 4096], vec![1.0; 2 * 3 * 4096]).unwrap();
        for (values, element) in [(Values::F32, 4), (Values::F16, 2), (Values::Int8, 1)] {
            let encoded = measure_encoding(&rows, &tensors, Encoding::plain(values)).unwrap();
            let bytes = f64::from((element + 4 + 1) * 4096);
            assert!(
                (bytes..bytes + 2000.0).contains(&encoded.bytes_per_sample),
                "{encoded:?}"
            );
        }
    }

    #[test]
    fn every_encoding_is_measured_and_smaller_ones_are() {
        let values: Vec<f32> = (0..4 * 4096)
            .map(|i| ((i * 37) % 101) as f32 * 0.1 - 3.0)
            .collect();
        let rows = Tensor::f32([4, 16, 256], values).unwrap();
        let bytes = |encoding: Encoding| {
            let encoded = measure_encoding(&rows, &[], encoding).unwrap();
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
        assert!(measure_encoding(&pixels, &[], Encoding::U8).is_ok());
        assert!(measure_encoding(&pixels, &[], Encoding::F16).is_err());
        assert!(measure_encoding(&Tensor::f32([0, 4], vec![]).unwrap(), &[], Encoding::F32).is_err());
        assert!(measure_encoding(&Tensor::f32([1, 4], vec![0.0; 4]).unwrap(), &[], Encoding::U8).is_err());
    }
}
