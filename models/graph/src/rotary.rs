//! Finds tables of sines and cosines, with which rotary position embeddings turn queries and keys.

use crate::onnx::TensorProto;
use crate::onnx::data_type::is_float;
use crate::tensors::{from_proto, numbers};
use bytes::Bytes;
use std::collections::{BTreeMap, HashSet};

/// Maximum deviation of the sum of squares from 1. Stored tables can be f16.
const TOLERANCE: f64 = 4e-3;

/// Returns the names of float tensors that consist of sines and cosines of the same angles: the two halves of the
/// last axis of one tensor, or two tensors of the same shape. Networks do not learn such tables.
///
/// Reads little more than the first row of other tensors.
pub(crate) fn rotary_tables(tensors: &[TensorProto]) -> HashSet<&str> {
    let mut names = HashSet::new();
    let mut by_shape: BTreeMap<&[i64], Vec<&TensorProto>> = BTreeMap::new();
    let tables = tensors
        .iter()
        .filter(|tensor| is_float(tensor.data_type) && tensor.dims.len() > 1);
    for tensor in tables {
        if is_table(tensor) {
            names.insert(tensor.name.as_str());
            continue;
        }
        let same_shape = by_shape.entry(&tensor.dims).or_default();
        let pair = same_shape.iter().find(|other| are_tables(tensor, other));
        names.extend(pair.into_iter().flat_map(|other| [&*other.name, &*tensor.name]));
        same_shape.push(tensor);
    }
    names
}

/// True if the halves of all rows are sines and cosines.
fn is_table(tensor: &TensorProto) -> bool {
    let mut rows = rows(tensor).peekable();
    rows.peek().is_some()
        && rows.all(|row| {
            row.is_some_and(|row| {
                let (sines, cosines) = row.split_at(row.len() / 2);
                !row.is_empty() && are_sines_and_cosines(sines, cosines)
            })
        })
}

/// True if the tensors, which have the same shape, are sines and cosines. Constant tensors, such as scales of ones and
/// biases of zeros, are not.
fn are_tables(one: &TensorProto, other: &TensorProto) -> bool {
    let mut varies = false;
    let matching = rows(one).zip(rows(other)).all(|(one, other)| {
        let (Some(one), Some(other)) = (one, other) else {
            return false;
        };
        varies |= one.iter().any(|value| (value.abs() - 0.5).abs() < 0.45);
        are_sines_and_cosines(&one, &other)
    });
    matching && varies
}

/// Reads the rows along the last axis. A row is `None` if it is not stored.
fn rows(tensor: &TensorProto) -> impl Iterator<Item = Option<Vec<f64>>> {
    let count = |dims: &[i64]| {
        dims.iter()
            .map(|size| usize::try_from(*size).unwrap_or(0))
            .product()
    };
    let (elements, row): (usize, usize) = (
        count(&tensor.dims),
        count(tensor.dims.last_chunk::<1>().map_or(&[], |last| last)),
    );
    let rows = elements.checked_div(row).unwrap_or(0);
    (0..rows).map(move |index| {
        let from = index * row;
        let size = tensor.raw_data.len() / elements;
        let stored = TensorProto {
            dims: vec![row as i64],
            data_type: tensor.data_type,
            raw_data: match tensor.raw_data.len() {
                0 => Bytes::new(),
                _ => tensor.raw_data.slice(from * size..(from + row) * size),
            },
            float_data: tensor
                .float_data
                .get(from..from + row)
                .unwrap_or_default()
                .to_vec(),
            ..TensorProto::default()
        };
        numbers(from_proto(&stored).ok()?.data())
    })
}

fn are_sines_and_cosines(one: &[f64], other: &[f64]) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(one, other)| (one * one + other * other - 1.0).abs() <= TOLERANCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::initializer;
    use frostline_tensor::Tensor;

    fn table(name: &str, dims: &[usize], values: impl Fn(usize) -> f32) -> TensorProto {
        let count = dims.iter().product();
        initializer(
            name,
            &Tensor::f32(dims.to_vec(), (0..count).map(values).collect()).unwrap(),
        )
    }

    #[test]
    fn tables_of_sines_and_cosines_are_found() {
        let angle = |index: usize| index as f32 * 0.7;
        let tensors = [
            table("halves", &[5, 8], |index| {
                let angle = angle(index / 8 * 4 + index % 4);
                if index % 8 < 4 { angle.sin() } else { angle.cos() }
            }),
            table("sin", &[1, 3, 4], |index| angle(index).sin()),
            table("weight", &[1, 3, 4], |index| angle(index).sin() * 0.9),
            table("cos", &[1, 3, 4], |index| angle(index).cos()),
            table("vector", &[4], |index| [0.6, 0.8, 0.8, 0.6][index]),
            table("ones", &[1, 4], |_| 1.0),
            table("zeros", &[1, 4], |_| 0.0),
            table("large", &[2, 2], |index| index as f32),
        ];
        let mut found: Vec<_> = rotary_tables(&tensors).into_iter().collect();
        found.sort_unstable();
        assert_eq!(found, ["cos", "halves", "sin"]);
    }
}
