//! Tests of encodings, and of malicious compressed streams.

use super::{LIMIT, Rows, Value, decode_so, divided, encode_so, part, positions};
use crate::{
    ActivationReader, ActivationWriter, Compression, FrameError, RowFailure, RowFormat, RowValue, Values,
};
use bytes::Bytes;
use frostline_tensor::{Affine, OpError, Tensor, dequantize, quantize};
use half::f16;

/// Computes the expected rows value by value, independently of the writer.
pub(super) fn as_received(format: &RowFormat, sent: &Rows) -> Rows {
    let received = |value: &Value| match (format, value) {
        (RowFormat::Tensor(encoding, shape), Value::F32(values)) => {
            Value::F32(as_decoded(*encoding, shape, values))
        }
        (RowFormat::Tensors(tensors), Value::F32(values)) => {
            let mut rest = values.as_slice();
            let mut row = Vec::new();
            for tensor in tensors {
                let (own, after) = rest.split_at(tensor.shape.iter().product());
                row.extend(as_decoded(tensor.values, &tensor.shape, own));
                rest = after;
            }
            Value::F32(row)
        }
        (_, value) => value.clone(),
    };
    sent.iter()
        .map(|(position, value)| (*position, received(value)))
        .collect()
}

fn as_decoded(encoding: Values, shape: &[usize], values: &[f32]) -> Vec<f32> {
    match encoding {
        Values::F16 => as_halves(values),
        Values::Int8 => {
            let slices = shape.first().filter(|first| values.len() / **first >= 64);
            as_eight_bits(values, slices.copied().unwrap_or(1))
        }
        Values::I32 => as_integers(values, |value| f64::from(value as i32)),
        Values::U8 => as_integers(values, |value| f64::from(value as u8)),
        Values::F32 => values.to_vec(),
    }
}

/// Integers have no negative zero. If a value is not an integer of this type, all values are exact.
fn as_integers(values: &[f32], cast: fn(f32) -> f64) -> Vec<f32> {
    let integers: Vec<f32> = values.iter().map(|value| cast(*value) as f32).collect();
    match integers == values {
        true => integers,
        false => values.to_vec(),
    }
}

fn as_halves(values: &[f32]) -> Vec<f32> {
    if values
        .iter()
        .any(|value| value.is_finite() && value.abs() > 65504.0)
    {
        return values.to_vec();
    }
    values
        .iter()
        .map(|value| f16::from_f32(*value).to_f32())
        .collect()
}

fn as_eight_bits(values: &[f32], slices: usize) -> Vec<f32> {
    let slices: Option<Vec<Vec<f32>>> = values
        .chunks(values.len() / slices)
        .map(|slice| {
            let mut quantized = vec![0; slice.len()];
            let affine = quantize(slice, &mut quantized)?;
            let mut back = vec![0.0; slice.len()];
            dequantize(&quantized, affine, &mut back).then_some(back)
        })
        .collect();
    slices.map_or_else(|| values.to_vec(), |slices| slices.concat())
}

/// Returns three good rows, a row that no narrow encoding can represent, and a failed row.
pub(super) fn sample(format: &RowFormat) -> Rows {
    let width = format.width().unwrap().unwrap();
    let row = |seed: usize| {
        let value = |i: usize| (((i + seed) * 31) % 97) as f32 - 20.0;
        Value::F32((0..width).map(value).collect())
    };
    let mut odd = vec![1.0; width];
    odd[width / 2] = 1e6;
    odd[0] = f32::NAN;
    Rows::from([
        (2, row(1)),
        (3, Value::F32(odd)),
        (5, row(2)),
        (7, Value::Failed(OpError::invalid("no image"))),
        (9, row(3)),
    ])
}

/// Returns a format with a tensor of each element type.
pub(super) fn mixed() -> RowFormat {
    divided([
        part("a", Values::Int8, &[2, 64]),
        part("b", Values::I32, &[3]),
        part("c", Values::U8, &[2]),
        part("d", Values::F16, &[]),
        part("e", Values::F32, &[1]),
    ])
}

#[test]
fn a_row_that_does_not_fit_travels_exactly_among_others_that_do() {
    for format in [
        RowFormat::Tensor(Values::F16, vec![2, 64]),
        RowFormat::Tensor(Values::Int8, vec![2, 64]),
        RowFormat::Tensor(Values::Int8, vec![7]),
    ] {
        let sent = sample(&format);
        let bytes = encode_so(&format, Compression::None, std::slice::from_ref(&sent));
        let mut reader = ActivationReader::new(format.clone(), positions(&sent), LIMIT);
        let batches = reader.push(Bytes::from(bytes)).unwrap();
        let rows = batches.iter().flat_map(|batch| batch.rows());
        let exact = rows.filter_map(|row| match row.unwrap() {
            row if matches!(row.outcome, Ok(RowValue::F32(_))) => Some(row.position),
            _ => None,
        });
        assert_eq!(exact.collect::<Vec<_>>(), [3], "{format}");
        assert_eq!(reader.finish(), Ok(()));
    }
}

#[test]
fn encodings_take_the_bytes_they_promise() {
    let rows = 4;
    let width = 16 * 256;
    let values: Vec<f32> = (0..rows * width)
        .map(|i| ((i * 7919) % 1013) as f32 * 0.01)
        .collect();
    for format in [
        RowFormat::Tensor(Values::F32, vec![16, 256]),
        RowFormat::Tensor(Values::F16, vec![16, 256]),
        RowFormat::Tensor(Values::Int8, vec![16, 256]),
    ] {
        let tensor = Tensor::f32([rows, 16, 256], values.clone()).unwrap();
        let mut writer = ActivationWriter::new(format.clone(), Compression::None).unwrap();
        let mut pieces = writer.tensor(&[0, 1, 2, 3], tensor).unwrap();
        pieces.extend(writer.finish().unwrap());
        let bytes: usize = pieces.iter().map(Bytes::len).sum();
        let raw = rows * usize::try_from(format.row_bytes().unwrap().unwrap()).unwrap();
        assert!(
            bytes > raw && bytes < raw + 4096,
            "{format}: {bytes} bytes encoded, {raw} bytes raw"
        );
    }
}

/// Returns a compressed answer with a constant row, and the offset of the decompressed size of its elements.
fn compressed(compression: Compression) -> (RowFormat, Vec<u8>, usize) {
    let format = RowFormat::Tensor(Values::F32, vec![4096]);
    let rows = Rows::from([(0, Value::F32(vec![1.0; 4096]))]);
    let bytes = encode_so(&format, compression, &[rows]);
    let claim = (4096_i64 * 4).to_le_bytes();
    let at = bytes.windows(8).position(|word| word == claim).unwrap();
    (format, bytes, at)
}

#[test]
fn a_bomb_is_refused_before_it_is_decompressed() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let (format, bytes, at) = compressed(compression);
        let (rows, end) = decode_so(&format, compression, &[0], [bytes.as_slice()]);
        assert_eq!((rows.len(), end), (1, Ok(())));
        for claim in [4097 * 4, 4096 * 4 + 64, 1 << 33, i64::MAX, -2] {
            let mut altered = bytes.clone();
            altered[at..at + 8].copy_from_slice(&claim.to_le_bytes());
            let (rows, end) = decode_so(&format, compression, &[0], [altered.as_slice()]);
            let Err(FrameError::Malformed { detail }) = end else {
                panic!("{claim}: {end:?}");
            };
            assert!(
                rows.is_empty() && !detail.to_string().contains("memory"),
                "{detail}"
            );
        }
        // The size is too small. Arrow detects this during decompression.
        let mut altered = bytes;
        altered[at..at + 8].copy_from_slice(&(4095_i64 * 4).to_le_bytes());
        let (rows, end) = decode_so(&format, compression, &[0], [altered.as_slice()]);
        assert!(rows.is_empty() && end.is_err());
    }
}

#[test]
fn what_decompresses_beyond_the_limit_is_refused() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let (format, bytes, _) = compressed(compression);
        assert!(bytes.len() < 4096);
        let reader = ActivationReader::new(format, [0], 4096);
        let refused = reader.compressed(compression).push(Bytes::from(bytes));
        assert!(
            matches!(refused, Err(FrameError::TooLarge { bytes, limit: 4096 }) if bytes > 16384),
            "{refused:?}"
        );
    }
}

#[test]
fn long_texts_cannot_smuggle_a_bomb_past_the_limit() {
    let format = RowFormat::Tensor(Values::F32, vec![1]);
    let mut writer = ActivationWriter::new(format.clone(), Compression::Zstd).unwrap();
    let error = OpError::invalid("a".repeat(1 << 20));
    let mut pieces = writer.failures(&[RowFailure { position: 0, error }]).unwrap();
    pieces.extend(writer.finish().unwrap());
    let bytes = pieces.concat();
    assert!(bytes.len() < 8192);
    let mut reader = ActivationReader::new(format, [0], 1 << 16).compressed(Compression::Zstd);
    assert!(matches!(
        reader.push(Bytes::from(bytes)),
        Err(FrameError::TooLarge { .. })
    ));
}

#[test]
fn only_the_compression_asked_for_is_read() {
    for sent in Compression::ALL {
        for asked in Compression::ALL {
            let format = RowFormat::Tensor(Values::F16, vec![64]);
            let rows = Rows::from([(0, Value::F32(vec![1.0; 64]))]);
            let bytes = encode_so(&format, sent, &[rows]);
            let (_, end) = decode_so(&format, asked, &[0], [bytes.as_slice()]);
            let fits = sent == asked || sent == Compression::None;
            assert_eq!(end.is_ok(), fits, "{sent:?} read as {asked:?}: {end:?}");
        }
    }
}

#[test]
fn scales_no_encoder_writes_are_refused() {
    let format = RowFormat::Tensor(Values::Int8, vec![64]);
    let values: Vec<f32> = (0..64_u8).map(|i| f32::from(i) * 1.75 + 3.5).collect();
    let mut quantized = vec![0; 64];
    let Affine { scale, offset } = quantize(&values, &mut quantized).unwrap();
    let bytes = encode_so(
        &format,
        Compression::None,
        &[Rows::from([(0, Value::F32(values))])],
    );
    let find = |value: f32| {
        bytes
            .windows(4)
            .rposition(|word| word == value.to_le_bytes())
            .unwrap()
    };
    for (at, bad) in [
        (find(scale), f32::NAN),
        (find(scale), -1.0),
        (find(scale), f32::INFINITY),
        (find(offset), f32::NAN),
        (find(offset), f32::NEG_INFINITY),
    ] {
        let mut altered = bytes.clone();
        altered[at..at + 4].copy_from_slice(&bad.to_le_bytes());
        let (_, end) = decode_so(&format, Compression::None, &[0], [altered.as_slice()]);
        assert!(
            matches!(end, Err(FrameError::Malformed { .. })),
            "{bad} at {at}: {end:?}"
        );
    }
}

#[test]
fn tensors_of_a_row_do_not_share_a_scale() {
    let format = divided([
        part("small", Values::Int8, &[100]),
        part("large", Values::Int8, &[100]),
    ]);
    let small: Vec<f32> = (0..100_u8).map(|i| f32::from(i) * 0.01).collect();
    let large = small.iter().map(|value| value * 1000.0);
    let sent: Vec<f32> = small.iter().copied().chain(large).collect();
    let bytes = encode_so(
        &format,
        Compression::None,
        &[Rows::from([(0, Value::F32(sent.clone()))])],
    );
    let (rows, end) = decode_so(&format, Compression::None, &[0], [bytes.as_slice()]);
    assert_eq!(end, Ok(()));
    let Some(Value::F32(received)) = rows.get(&0) else {
        panic!("{rows:?}");
    };
    for (tensor, step) in [(0..100, 0.99 / 255.0), (100..200, 990.0 / 255.0)] {
        let pairs = received[tensor.clone()].iter().zip(&sent[tensor]);
        let error = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(
            error > 0.0 && error <= step * 0.51,
            "{error} for a step of {step}"
        );
    }
}

#[test]
fn integers_are_exact_and_other_values_of_their_tensors_too() {
    let format = divided([
        part("x", Values::F16, &[2]),
        part("ids", Values::I32, &[3]),
        part("mask", Values::U8, &[3]),
    ]);
    let integers = [1.0, 2.0, 100_000.0, -16_777_216.0, 2049.0, 0.0, 255.0, 1.0];
    let fractions = [1.0, 2.0, 100_000.5, 0.5, f32::INFINITY, -1.0, 256.0, 0.25];
    let sent = Rows::from([
        (0, Value::F32(integers.to_vec())),
        (1, Value::F32(fractions.to_vec())),
    ]);
    let bytes = encode_so(&format, Compression::None, std::slice::from_ref(&sent));
    let mut reader = ActivationReader::new(format.clone(), positions(&sent), LIMIT);
    let batches = reader.push(Bytes::from(bytes.clone())).unwrap();
    let rows: Vec<_> = batches.iter().flat_map(|batch| batch.rows()).collect();
    let [Ok(exact), Ok(other)] = rows.as_slice() else {
        panic!("{rows:?}");
    };
    assert!(matches!(
        exact.outcome.as_ref().unwrap(),
        RowValue::Tensors(tensors)
            if matches!(tensors[..], [RowValue::F16(_), RowValue::I32([100_000, ..]), RowValue::U8([0, 255, 1])])
    ));
    assert!(matches!(
        other.outcome.as_ref().unwrap(),
        RowValue::Tensors(tensors)
            if matches!(tensors[..], [RowValue::F16(_), RowValue::F32(_), RowValue::F32(_)])
    ));
    let (rows, end) = decode_so(&format, Compression::None, &positions(&sent), [bytes.as_slice()]);
    assert_eq!((rows, end), (sent, Ok(())));
}

mod long {
    use super::*;

    #[test]
    fn a_flipped_bit_in_any_byte_of_any_encoding_ends_without_a_panic() {
        for compression in Compression::ALL {
            for format in [
                RowFormat::Tensor(Values::F16, vec![3]),
                RowFormat::Tensor(Values::Int8, vec![2, 64]),
                mixed(),
            ] {
                let sent = sample(&format);
                let bytes = encode_so(&format, compression, std::slice::from_ref(&sent));
                for at in 0..bytes.len() {
                    let mut altered = bytes.clone();
                    altered[at] ^= 1 << (at % 8);
                    let (read, _) = decode_so(&format, compression, &positions(&sent), [altered.as_slice()]);
                    assert!(read.len() <= sent.len());
                }
            }
        }
    }

    #[test]
    fn extreme_words_in_every_encoding_end_without_a_panic() {
        for compression in Compression::ALL {
            for format in [
                RowFormat::Tensor(Values::F16, vec![3]),
                RowFormat::Tensor(Values::Int8, vec![3]),
                mixed(),
            ] {
                let sent = sample(&format);
                let bytes = encode_so(&format, compression, std::slice::from_ref(&sent));
                // The step is odd, so all offsets within a word are tested.
                for at in (0..bytes.len().saturating_sub(8)).step_by(5) {
                    for word in [i64::MIN, i64::MAX, -1, 0, 1 << 32, i64::from(i32::MAX)] {
                        let mut altered = bytes.clone();
                        altered[at..at + 8].copy_from_slice(&word.to_le_bytes());
                        let (read, _) =
                            decode_so(&format, compression, &positions(&sent), [altered.as_slice()]);
                        assert!(read.len() <= sent.len());
                    }
                }
            }
        }
    }
}
