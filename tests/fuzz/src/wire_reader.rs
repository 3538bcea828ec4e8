//! Fuzz target for Arrow frames of answers, in every format and compression, split into chunks.

use bytes::Bytes;
use frostline_tensor::{OpError, Tensor};
use frostline_wire::{
    ActivationReader, ActivationWriter, Compression, RowFailure, RowFormat, TensorFormat, Values,
};

/// Maximum size of a frame, in bytes.
const FRAME: usize = 1 << 16;
/// Number of values per row.
const ROW: usize = 4;
/// Number of requested rows.
const ROWS: u32 = 3;

const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

fn formats() -> [RowFormat; 6] {
    [
        RowFormat::Object,
        RowFormat::Tensor(Values::F32, vec![ROW]),
        RowFormat::Tensor(Values::U8, vec![ROW]),
        RowFormat::Tensor(Values::F16, vec![ROW]),
        RowFormat::Tensor(Values::Int8, vec![2, 2]),
        RowFormat::Tensors(vec![
            tensor("x", Values::F16, vec![1]),
            tensor("y", Values::Int8, vec![]),
            tensor("ids", Values::I32, vec![1]),
            tensor("mask", Values::U8, vec![ROW - 3]),
        ]),
    ]
}

fn tensor(name: &str, values: Values, shape: Vec<usize>) -> TensorFormat {
    TensorFormat {
        name: name.to_owned(),
        values,
        shape,
    }
}

/// Reads the bytes as an answer in each format and compression.
///
/// # Panics
/// Panics if a row is unexpected or repeated, or a complete answer misses rows.
pub fn wire_reader(data: &[u8]) {
    for format in formats() {
        for compression in COMPRESSIONS {
            read(data, &format, compression);
        }
    }
}

fn read(data: &[u8], format: &RowFormat, compression: Compression) {
    let mut reader = ActivationReader::new(format.clone(), 0..ROWS, FRAME).compressed(compression);
    let mut seen = Vec::new();
    for piece in data.chunks(data.len().div_ceil(3).max(1)) {
        let Ok(batches) = reader.push(Bytes::copy_from_slice(piece)) else {
            return;
        };
        for row in batches.iter().flat_map(|batch| batch.rows()).flatten() {
            assert!(
                row.position < ROWS && !seen.contains(&row.position),
                "{}",
                row.position
            );
            seen.push(row.position);
        }
    }
    let missing = reader.missing().len();
    assert_eq!(seen.len() + missing, ROWS as usize);
}

/// Returns complete answers in each format. They contain failures.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let kinds = formats()
        .into_iter()
        .flat_map(|format| COMPRESSIONS.map(|compression| (format.clone(), compression)));
    kinds
        .filter_map(|(format, compression)| answer(&format, compression))
        .collect()
}

fn answer(format: &RowFormat, compression: Compression) -> Option<Vec<u8>> {
    let mut writer = ActivationWriter::new(format.clone(), compression).ok()?;
    let failed = RowFailure {
        position: 2,
        error: OpError::runtime("broken"),
    };
    let mut pieces = match format {
        RowFormat::Object => writer
            .objects(&[(0, Bytes::from_static(b"a")), (1, Bytes::from_static(b"bc"))])
            .ok()?,
        RowFormat::Tensor(Values::U8, _) => {
            let data = frostline_tensor::Data::U8(vec![7; 2 * ROW]);
            writer
                .tensor(&[0, 1], Tensor::new(vec![2, ROW], data).ok()?)
                .ok()?
        }
        RowFormat::Tensor(Values::Int8, _) => {
            let values = (0..2 * ROW).map(|value| value as f32).collect();
            writer
                .tensor(&[0, 1], Tensor::f32(vec![2, 2, 2], values).ok()?)
                .ok()?
        }
        RowFormat::Tensor(..) | RowFormat::Tensors(_) => {
            let values = (0..2 * ROW).map(|value| value as f32).collect();
            writer
                .tensor(&[0, 1], Tensor::f32(vec![2, ROW], values).ok()?)
                .ok()?
        }
    };
    pieces.extend(writer.failures(&[failed]).ok()?);
    pieces.extend(writer.finish().ok()?);
    Some(pieces.concat())
}
