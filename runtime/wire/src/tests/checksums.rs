//! Tests with corrupted rows.

use super::encodings::{as_received, mixed, sample};
use super::{LIMIT, Rows, Value, decode_so, encode_by, positions};
use crate::{ActivationReader, ActivationWriter, Compression, FrameError, RowFormat, Values};
use arrow_ipc::reader::StreamReader;
use bytes::Bytes;

fn checked(format: &RowFormat, compression: Compression, rows: &Rows) -> Vec<u8> {
    let writer = ActivationWriter::new(format.clone(), compression).unwrap();
    encode_by(writer, format, std::slice::from_ref(rows))
}

fn formats() -> Vec<(RowFormat, Rows)> {
    let mut all = vec![(
        RowFormat::Object,
        Rows::from([
            (1, Value::Object(b"one".to_vec())),
            (2, Value::Object(Vec::new())),
        ]),
    )];
    for format in [
        RowFormat::Tensor(Values::F32, vec![2, 3]),
        RowFormat::Tensor(Values::F16, vec![4]),
        RowFormat::Tensor(Values::Int8, vec![2, 2]),
        mixed(),
    ] {
        let rows = sample(&format);
        all.push((format, rows));
    }
    let bytes = |seed: u8| Value::U8(vec![seed, 7, 255]);
    let rows = Rows::from([(0, bytes(1)), (9, bytes(2))]);
    all.push((RowFormat::Tensor(Values::U8, vec![3]), rows));
    all
}

#[test]
fn a_changed_row_costs_none_of_the_others() {
    let format = RowFormat::Tensor(Values::F32, vec![3]);
    let row = |value: f32| Value::F32(vec![value; 3]);
    let rows = Rows::from([(4, row(1.0)), (6, row(2.7)), (8, row(3.0))]);
    let mut bytes = checked(&format, Compression::None, &rows);
    let value = 2.7_f32.to_le_bytes();
    let place = bytes.windows(4).position(|window| window == value).unwrap();
    bytes[place] ^= 1;
    let mut reader = ActivationReader::new(format, positions(&rows), LIMIT);
    let batches = reader.push(Bytes::from(bytes)).unwrap();
    let outcomes: Vec<_> = batches.iter().flat_map(|batch| batch.rows()).collect();
    let [Ok(first), Err(FrameError::Checksum { position: 6 }), Ok(last)] = outcomes.as_slice() else {
        panic!("{outcomes:?}");
    };
    assert_eq!((first.position, last.position), (4, 8));
    assert_eq!(reader.missing(), [6]);
    reader.finish().unwrap();
}

#[test]
fn changed_rows_cannot_go_on_for_ever() {
    let format = RowFormat::Tensor(Values::F32, vec![1]);
    let rows = Rows::from([(0, Value::F32(vec![1.7]))]);
    let mut writer = ActivationWriter::new(format.clone(), Compression::None).unwrap();
    let mut reader = ActivationReader::new(format, [0], LIMIT);
    let value = 1.7_f32.to_le_bytes();
    let refused = (0..3).find_map(|_| {
        let tensor = frostline_tensor::Tensor::f32([1, 1], vec![1.7]).unwrap();
        let mut bytes = writer.tensor(&positions(&rows), tensor).unwrap().concat();
        let place = bytes.windows(4).position(|window| window == value).unwrap();
        bytes[place] ^= 1;
        reader.push(Bytes::from(bytes)).err()
    });
    assert!(matches!(refused, Some(FrameError::Malformed { .. })));
}

#[test]
fn a_reader_of_others_finds_one_column_more() {
    for (format, rows) in formats() {
        let bytes = checked(&format, Compression::None, &rows);
        let batches = StreamReader::try_new(bytes.as_slice(), None).unwrap();
        let columns = batches.schema().fields().len();
        assert_eq!(batches.schema().fields()[columns - 1].name(), "checksum");
        let read: usize = batches.map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(read, rows.len());
    }
}

mod long {
    use super::*;

    #[test]
    fn no_flipped_bit_makes_another_row() {
        for (format, rows) in formats() {
            for compression in Compression::ALL {
                let bytes = checked(&format, compression, &rows);
                let sent = as_received(&format, &rows);
                let (read, end) = decode_so(&format, compression, &positions(&rows), [bytes.as_slice()]);
                assert_eq!((read, end), (sent.clone(), Ok(())), "{format} {compression:?}");
                for place in 0..bytes.len() {
                    let mut altered = bytes.clone();
                    altered[place] ^= 1 << (place * 5 % 8);
                    let (read, _) = decode_so(&format, compression, &positions(&rows), [altered.as_slice()]);
                    for (position, value) in read {
                        assert_eq!(
                            Some(&value),
                            sent.get(&position),
                            "byte {place} of {format} {compression:?}, position {position}"
                        );
                    }
                }
            }
        }
    }
}
