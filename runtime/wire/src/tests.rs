//! Tests of writer and reader: round trips, and truncated, modified or malicious streams.

mod checksums;
mod encodings;

use crate::{
    ActivationReader, ActivationWriter, Compression, FrameError, RowFailure, RowFormat, RowValue,
    TensorFormat, Values,
};
use bytes::Bytes;
use frostline_tensor::{Data, OpError, OpErrorCode, Tensor};
use proptest::prelude::*;
use std::collections::BTreeMap;

const LIMIT: usize = 1 << 20;

#[derive(Debug, Clone)]
enum Value {
    Object(Vec<u8>),
    /// Input of the writer, or decoded output.
    F32(Vec<f32>),
    U8(Vec<u8>),
    Failed(OpError),
}

impl PartialEq for Value {
    /// Compares bits. All NaN values are equal.
    fn eq(&self, other: &Self) -> bool {
        let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        match (self, other) {
            (Self::F32(left), Self::F32(right)) => {
                left.len() == right.len() && left.iter().zip(right).all(same)
            }
            (Self::Object(left), Self::Object(right)) | (Self::U8(left), Self::U8(right)) => left == right,
            (Self::Failed(left), Self::Failed(right)) => left == right,
            _ => false,
        }
    }
}

type Rows = BTreeMap<u32, Value>;

/// Returns the format of rows with these tensors.
pub(crate) fn divided<const N: usize>(tensors: [TensorFormat; N]) -> RowFormat {
    RowFormat::Tensors(tensors.to_vec())
}

/// Returns the format of one of the tensors in a row.
pub(crate) fn part(name: &str, values: Values, shape: &[usize]) -> TensorFormat {
    TensorFormat {
        name: name.to_owned(),
        values,
        shape: shape.to_vec(),
    }
}

fn encode(format: &RowFormat, batches: &[Rows]) -> Vec<u8> {
    encode_so(format, Compression::None, batches)
}

fn encode_so(format: &RowFormat, compression: Compression, batches: &[Rows]) -> Vec<u8> {
    let writer = ActivationWriter::new(format.clone(), compression).unwrap();
    encode_by(writer, format, batches)
}

fn encode_by(mut writer: ActivationWriter, format: &RowFormat, batches: &[Rows]) -> Vec<u8> {
    let mut pieces = Vec::new();
    for rows in batches {
        let good: Vec<u32> = rows
            .iter()
            .filter(|(_, value)| !matches!(value, Value::Failed(_)))
            .map(|(p, _)| *p)
            .collect();
        let failed: Vec<RowFailure> = rows
            .iter()
            .filter_map(|(&position, value)| match value {
                Value::Failed(error) => Some(RowFailure {
                    position,
                    error: error.clone(),
                }),
                _ => None,
            })
            .collect();
        pieces.extend(
            match format.shape() {
                None => writer.objects(&objects(rows)),
                Some(shape) => {
                    let dims: Vec<usize> = std::iter::once(good.len()).chain(shape.iter().copied()).collect();
                    writer.tensor(&good, Tensor::new(dims, elements(format, rows)).unwrap())
                }
            }
            .unwrap(),
        );
        pieces.extend(writer.failures(&failed).unwrap());
    }
    pieces.extend(writer.finish().unwrap());
    pieces.concat()
}

fn objects(rows: &Rows) -> Vec<(u32, Bytes)> {
    rows.iter()
        .filter_map(|(&position, value)| match value {
            Value::Object(bytes) => Some((position, Bytes::from(bytes.clone()))),
            _ => None,
        })
        .collect()
}

fn elements(format: &RowFormat, rows: &Rows) -> Data {
    let floats = rows.values().filter_map(|value| {
        if let Value::F32(v) = value {
            Some(v.clone())
        } else {
            None
        }
    });
    let bytes = rows.values().filter_map(|value| {
        if let Value::U8(v) = value {
            Some(v.clone())
        } else {
            None
        }
    });
    match format {
        RowFormat::Tensor(Values::U8, _) => Data::U8(bytes.flatten().collect()),
        _ => Data::F32(floats.flatten().collect()),
    }
}

/// Decodes `chunks`. Returns the received rows and the final result.
fn decode<'a>(
    format: &RowFormat,
    positions: &[u32],
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Rows, Result<(), FrameError>) {
    decode_so(format, Compression::None, positions, chunks)
}

fn decode_so<'a>(
    format: &RowFormat,
    compression: Compression,
    positions: &[u32],
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Rows, Result<(), FrameError>) {
    let reader = ActivationReader::new(format.clone(), positions.iter().copied(), LIMIT);
    let mut reader = reader.compressed(compression);
    let mut rows = Rows::new();
    for chunk in chunks {
        let batches = match reader.push(Bytes::copy_from_slice(chunk)) {
            Ok(batches) => batches,
            Err(error) => return (rows, Err(error)),
        };
        for row in batches.iter().flat_map(|batch| batch.rows()) {
            let row = match row {
                Err(FrameError::Checksum { .. }) => continue,
                row => row.unwrap(),
            };
            let value = match row.outcome {
                Ok(RowValue::Object(bytes)) => Value::Object(bytes.to_vec()),
                Ok(RowValue::U8(bytes)) => Value::U8(bytes.to_vec()),
                Ok(value) => {
                    let mut values = vec![0.0; format.width().unwrap().unwrap_or(0)];
                    assert!(value.read_into(&mut values));
                    Value::F32(values)
                }
                Err(error) => Value::Failed(error),
            };
            assert_eq!(rows.insert(row.position, value), None);
        }
    }
    (rows, reader.finish())
}

fn format() -> impl Strategy<Value = RowFormat> {
    let shape = || prop::collection::vec(1_usize..4, 0..3);
    prop_oneof![
        Just(RowFormat::Object),
        shape().prop_map(|shape| Values::F32.rows(shape)),
        shape().prop_map(|shape| Values::U8.rows(shape)),
        shape().prop_map(|shape| Values::F16.rows(shape)),
        shape().prop_map(|shape| Values::Int8.rows(shape)),
        (1_usize..4).prop_map(|slices| RowFormat::Tensor(Values::Int8, vec![slices, 8, 8])),
        prop::collection::vec((part_values(), shape()), 1..5).prop_map(|tensors| {
            let tensors = tensors.into_iter().enumerate();
            let tensors = tensors.map(|(number, (values, shape))| part(&number.to_string(), values, &shape));
            RowFormat::Tensors(tensors.collect())
        }),
    ]
}

/// Element types of tensors in a row.
fn part_values() -> impl Strategy<Value = Values> {
    prop::sample::select(vec![
        Values::F32,
        Values::F16,
        Values::Int8,
        Values::I32,
        Values::U8,
    ])
}

fn compression() -> impl Strategy<Value = Compression> {
    prop::sample::select(Compression::ALL.to_vec())
}

/// Typical activations, activations with zeros, integers, and arbitrary bits.
fn floats(width: usize) -> impl Strategy<Value = Vec<f32>> {
    prop_oneof![
        3 => prop::collection::vec(-1e3_f32..1e3, width),
        1 => prop::collection::vec((-300_i16..300).prop_map(f32::from), width),
        1 => prop::collection::vec(any::<u8>().prop_map(f32::from), width),
        2 => prop::collection::vec((-1.0_f32..1.0).prop_map(|value| value.max(0.0)), width),
        1 => prop::collection::vec(prop::num::f32::ANY, width),
        1 => prop::collection::vec(prop::num::f32::SUBNORMAL | prop::num::f32::ZERO, width),
    ]
}

fn value(format: RowFormat) -> BoxedStrategy<Value> {
    let width = format.width().unwrap().unwrap_or(0);
    let good = match format {
        RowFormat::Object => prop::collection::vec(any::<u8>(), 0..40)
            .prop_map(Value::Object)
            .boxed(),
        RowFormat::Tensor(Values::U8, _) => prop::collection::vec(any::<u8>(), width)
            .prop_map(Value::U8)
            .boxed(),
        _ => floats(width).prop_map(Value::F32).boxed(),
    };
    let failed = ("[a-zäöü ]{0,20}", any::<bool>()).prop_map(|(text, host_caused)| {
        Value::Failed(OpError {
            host_caused,
            ..OpError::new(OpErrorCode::InvalidEncoding, text)
        })
    });
    prop_oneof![4 => good, 1 => failed].boxed()
}

/// Generates a format and batches of rows with distinct positions.
fn answer() -> impl Strategy<Value = (RowFormat, Vec<Rows>)> {
    format().prop_flat_map(|format| {
        let rows = prop::collection::btree_map(any::<u32>(), value(format.clone()), 0..12);
        (Just(format), rows, 1_usize..4).prop_map(|(format, rows, batches)| {
            let mut parts = vec![Rows::new(); batches];
            for (index, (position, value)) in rows.into_iter().enumerate() {
                parts[index % batches].insert(position, value);
            }
            (format, parts)
        })
    })
}

fn merged(batches: &[Rows]) -> Rows {
    batches
        .iter()
        .flatten()
        .map(|(position, value)| (*position, value.clone()))
        .collect()
}

fn positions(rows: &Rows) -> Vec<u32> {
    rows.keys().copied().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_wherever_the_chunks_are_cut(
        (format, batches) in answer(),
        compression in compression(),
        size in 1_usize..200,
    ) {
        let sent = merged(&batches);
        let bytes = encode_so(&format, compression, &batches);
        let (rows, end) = decode_so(&format, compression, &positions(&sent), bytes.chunks(size));
        prop_assert_eq!(end, Ok(()));
        prop_assert_eq!(rows, encodings::as_received(&format, &sent));
    }

    #[test]
    fn altered_streams_end_in_rows_or_errors_but_never_in_a_panic(
        (format, batches) in answer(),
        compression in compression(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = encode_so(&format, compression, &batches);
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        let sent = merged(&batches);
        let (rows, _) = decode_so(&format, compression, &positions(&sent), [bytes.as_slice()]);
        prop_assert!(rows.len() <= sent.len());
    }

    #[test]
    fn noise_is_refused(noise in prop::collection::vec(any::<u8>(), 0..400)) {
        let (rows, end) = decode(&RowFormat::Object, &[1], [noise.as_slice()]);
        prop_assert!(rows.is_empty() && end.is_err());
    }
}

fn sample() -> (RowFormat, Rows, Vec<u8>) {
    let format = RowFormat::Tensor(Values::F32, vec![2]);
    let failed = Value::Failed(OpError::invalid("no image"));
    let rows = Rows::from([
        (3, Value::F32(vec![1.0, 2.0])),
        (7, failed),
        (9, Value::F32(vec![3.0, 4.0])),
    ]);
    let bytes = encode(&format, std::slice::from_ref(&rows));
    (format, rows, bytes)
}

#[test]
fn every_truncation_is_incomplete_and_names_what_is_missing() {
    let (format, rows, bytes) = sample();
    for end in 0..bytes.len() {
        let (read, outcome) = decode(&format, &positions(&rows), [&bytes[..end]]);
        let expected: Vec<u32> = positions(&rows)
            .into_iter()
            .filter(|p| !read.contains_key(p))
            .collect();
        assert_eq!(
            outcome,
            Err(FrameError::Incomplete {
                missing: expected,
                end_marker: false
            }),
            "cut at {end} of {}",
            bytes.len()
        );
    }
}

#[test]
fn every_single_bit_flip_ends_without_a_panic() {
    let (format, rows, bytes) = sample();
    for bit in 0..bytes.len() * 8 {
        let mut altered = bytes.clone();
        altered[bit / 8] ^= 1 << (bit % 8);
        let (read, _) = decode(&format, &positions(&rows), [altered.as_slice()]);
        assert!(read.len() <= rows.len());
    }
}

#[test]
fn extreme_values_in_every_word_end_without_a_panic() {
    let (format, rows, bytes) = sample();
    for at in 0..bytes.len().saturating_sub(8) {
        for word in [i64::MIN, i64::MAX, -1, 0, 1 << 32, i64::from(i32::MAX)] {
            let mut altered = bytes.clone();
            altered[at..at + 8].copy_from_slice(&word.to_le_bytes());
            let (read, _) = decode(&format, &positions(&rows), [altered.as_slice()]);
            assert!(read.len() <= rows.len());
        }
    }
}

#[test]
fn positions_are_answered_once_and_only_if_asked_for() {
    let (format, rows, bytes) = sample();
    let (_, outcome) = decode(&format, &[3, 7, 8, 9], [bytes.as_slice()]);
    assert_eq!(
        outcome,
        Err(FrameError::Incomplete {
            missing: vec![8],
            end_marker: true
        })
    );
    let (_, outcome) = decode(&format, &[3, 7, 8], [bytes.as_slice()]);
    assert_eq!(outcome, Err(FrameError::UnknownPosition { position: 9 }));
    let twice = encode(&format, &[rows.clone(), rows.clone()]);
    let (_, outcome) = decode(&format, &[1, 2, 3, 4, 5, 7, 9], [twice.as_slice()]);
    assert_eq!(outcome, Err(FrameError::DuplicatePosition { position: 3 }));
}

#[test]
fn another_schema_is_refused_before_any_row() {
    let (_, rows, bytes) = sample();
    for other in [
        RowFormat::Tensor(Values::F32, vec![1, 2]),
        RowFormat::Tensor(Values::F32, vec![3]),
        RowFormat::Tensor(Values::U8, vec![2]),
        RowFormat::Object,
    ] {
        let (read, outcome) = decode(&other, &positions(&rows), [bytes.as_slice()]);
        assert!(read.is_empty());
        assert!(
            matches!(
                outcome,
                Err(FrameError::Schema { ref column, .. }) if column == "activation"
            ),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_message_over_the_limit_and_bytes_after_the_end_are_refused() {
    let (format, rows, mut bytes) = sample();
    let mut small = ActivationReader::new(format.clone(), positions(&rows), 16);
    assert!(matches!(
        small.push(Bytes::from(bytes.clone())),
        Err(FrameError::TooLarge { limit: 16, .. })
    ));
    bytes.push(0);
    let (_, outcome) = decode(&format, &positions(&rows), [bytes.as_slice()]);
    assert!(matches!(outcome, Err(FrameError::Malformed { .. })));
}
