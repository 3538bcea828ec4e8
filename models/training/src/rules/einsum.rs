//! Einsum of two operands as one product of matrices between transposes.

use super::linear::multiplied;
use super::movement::{reshaped, transposed};
use crate::TrainingError;
use crate::call::Call;
use crate::tape::{Tape, Value};
use frostline_graph::equation::Equation;

pub(super) fn einsum(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    let (left, right) = (call.value(0)?, call.value(1)?);
    let equation = call.node.text("equation").unwrap_or_default();
    let parsed = Equation::parse(equation, &[left.rank(), right.rank()]);
    let odd = || call.unsupported(format!("its equation '{equation}' is no product of two operands"));
    let parsed = parsed.filter(|_| call.node.input.len() == 2).ok_or_else(odd)?;
    let ([a, b], output) = (parsed.operands.as_slice(), &parsed.output) else {
        return Err(odd());
    };
    let letters = |of: &[char], test: &dyn Fn(&char) -> bool| -> Vec<char> {
        of.iter().copied().filter(|letter| test(letter)).collect()
    };
    let shared = letters(output, &|letter| a.contains(letter) && b.contains(letter));
    let summed = letters(a, &|letter| b.contains(letter) && !output.contains(letter));
    let rows = letters(output, &|letter| a.contains(letter) && !b.contains(letter));
    let columns = letters(output, &|letter| b.contains(letter) && !a.contains(letter));
    if shared.len() + rows.len() + summed.len() != a.len()
        || shared.len() + summed.len() + columns.len() != b.len()
    {
        return Err(odd());
    }
    let sizes = |of: &[char]| -> Vec<usize> {
        let size = |letter: &char| {
            let place = |letters: &[char], value: &Value| {
                let axis = letters.iter().position(|other| other == letter)?;
                value.shape().get(axis).copied()
            };
            place(a, &left).or_else(|| place(b, &right)).unwrap_or(1)
        };
        of.iter().map(size).collect()
    };
    let count = |of: &[char]| sizes(of).iter().product::<usize>();
    let (batch, m, k, n) = (count(&shared), count(&rows), count(&summed), count(&columns));
    let mut arranged = |value: &Value, from: &[char], order: [&[char]; 3], dims: [usize; 3]| {
        let axes = order.concat();
        let axes = axes
            .iter()
            .filter_map(|letter| from.iter().position(|other| other == letter));
        let turned = transposed(tape, value, axes.collect());
        reshaped(tape, &turned, &dims)
    };
    let matrices = arranged(&left, a, [&shared, &rows, &summed], [batch, m, k]);
    let others = arranged(&right, b, [&shared, &summed, &columns], [batch, k, n]);
    let product = multiplied(tape, matrices, others, &[batch, m, n]);
    let order = [shared.as_slice(), &rows, &columns].concat();
    let apart = reshaped(tape, &product, &sizes(&order));
    let axes = output
        .iter()
        .filter_map(|letter| order.iter().position(|other| other == letter));
    Ok(transposed(tape, &apart, axes.collect()))
}
