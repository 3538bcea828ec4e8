//! Finds tables of sines and cosines, with which rotary position embeddings turn queries and keys.

use crate::onnx::TensorProto;
use crate::onnx::data_type::is_float;
use crate::tensors::{from_proto, numbers};
use bytes::Bytes;
use std::collections::{BTreeMap, HashSet};

/// Maximum deviation of the sum of squares from 1. Stored tables can be f16.
const TOLERANCE: f64 = 4e-3;

/// Minimum number of angles in a table.
const FEWEST: usize = 4;

/// Returns the names of float tensors that consist of sines and cosines of the same angles: the two halves of the
/// last axis of one tensor, or two tensors of the same shape. Networks do not learn such tables.
///
/// For most other tensors, only the first row is read.
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
        let pair = same_shape.iter().find(|other| are_pair(tensor, other));
        names.extend(pair.into_iter().flat_map(|other| [&*other.name, &*tensor.name]));
        same_shape.push(tensor);
    }
    names
}

/// True if the halves of all rows are sines and cosines.
fn is_table(tensor: &TensorProto) -> bool {
    are_tables(rows(tensor).map(|row| {
        let mut sines = row?;
        let cosines = sines.split_off(sines.len() / 2);
        Some((sines, cosines))
    }))
}

/// True if two tensors of the same shape are sines and cosines.
fn are_pair(one: &TensorProto, other: &TensorProto) -> bool {
    are_tables(rows(one).zip(rows(other)).map(|(one, other)| one.zip(other)))
}

/// True if all pairs of rows are sines and cosines of the same angles. Scales of ones with biases of zeros and one-hot
/// rows are not, and neither are a few numbers.
fn are_tables(pairs: impl Iterator<Item = Option<(Vec<f64>, Vec<f64>)>>) -> bool {
    let mut values = 0;
    let mut slanted = false;
    for pair in pairs {
        let Some((sines, cosines)) = pair.filter(|(sines, cosines)| are_sines_and_cosines(sines, cosines))
        else {
            return false;
        };
        values += sines.len();
        slanted |= sines
            .iter()
            .zip(&cosines)
            .any(|(sine, cosine)| (sine * cosine).abs() > 0.05);
    }
    slanted && values >= FEWEST
}

/// Reads the rows along the last axis. A row is `None` if it is not stored.
fn rows(tensor: &TensorProto) -> impl Iterator<Item = Option<Vec<f64>>> {
    let sizes = tensor.dims.iter().map(|&size| usize::try_from(size).unwrap_or(0));
    let row = sizes.clone().next_back().unwrap_or(0);
    let elements = sizes
        .reduce(|elements, size| elements.saturating_mul(size))
        .unwrap_or(0);
    let rows = elements.checked_div(row).unwrap_or(0);
    (0..rows).map(move |index| {
        let from = index * row;
        let to = (index + 1) * row;
        let width = tensor.raw_data.len() / elements;
        let stored = TensorProto {
            dims: vec![row as i64],
            data_type: tensor.data_type,
            raw_data: match width {
                0 => Bytes::new(),
                _ => tensor.raw_data.slice(from * width..to * width),
            },
            float_data: tensor.float_data.get(from..to).unwrap_or_default().to_vec(),
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
            table("one-hot", &[6, 2], |index| (index % 4 % 3 == 0) as u8 as f32),
            table("few", &[1, 2], |index| [0.6, 0.8][index]),
        ];
        let mut found: Vec<_> = rotary_tables(&tensors).into_iter().collect();
        found.sort_unstable();
        assert_eq!(found, ["cos", "halves", "sin"]);
    }
}
