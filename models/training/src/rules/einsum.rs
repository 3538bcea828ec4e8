//! Einsum by sums over axes without further use and matrix products between transposes, operand by operand.

use super::linear::multiplied;
use super::movement::{reshaped, transposed};
use super::reduction::total;
use crate::TrainingError;
use crate::call::NodeCall;
use crate::tape::{Tape, Value};
use frostline_graph::equation::Equation;

/// Value with a letter for every axis.
struct Term {
    letters: Vec<char>,
    value: Value,
}

pub(super) fn einsum(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let slots = 0..call.node.input.len();
    let values = slots
        .map(|slot| call.value(slot))
        .collect::<Result<Vec<_>, _>>()?;
    let ranks: Vec<usize> = values.iter().map(Value::rank).collect();
    let equation = call.node.text("equation").unwrap_or_default();
    let parsed = Equation::parse(equation, &ranks);
    let Equation { operands, output } = parsed.ok_or_else(|| invalid(call, equation))?;
    let letters = operands.into_iter().zip(values);
    let mut terms = letters.map(|(letters, value)| Term { letters, value });
    let mut result = terms.next().ok_or_else(|| invalid(call, equation))?;
    let mut terms: Vec<Term> = terms.rev().collect();
    while let Some(next) = terms.pop() {
        result = product(tape, result, next, &|letter| {
            output.contains(letter) || terms.iter().any(|term| term.letters.contains(letter))
        });
    }
    Ok(summed(tape, result, &|letter| output.contains(letter)).arranged(tape, &output))
}

fn invalid(call: &NodeCall<'_>, equation: &str) -> TrainingError {
    call.unsupported(format!(
        "invalid equation '{equation}', or an axis that occurs twice in a term"
    ))
}

impl Term {
    /// Returns the value with the axes in the order of `letters`.
    fn arranged(&self, tape: &mut Tape, letters: &[char]) -> Value {
        let places = letters.iter();
        let axes = places.filter_map(|letter| self.letters.iter().position(|other| other == letter));
        transposed(tape, &self.value, axes.collect())
    }

    fn length(&self, letter: char) -> Option<usize> {
        let axis = self.letters.iter().position(|other| *other == letter)?;
        self.value.shape().get(axis).copied()
    }

    fn letters_with(&self, test: impl Fn(&char) -> bool) -> Vec<char> {
        self.letters.iter().copied().filter(test).collect()
    }
}

/// Returns the lengths of the axes `letters` of any of the terms.
fn lengths(terms: [&Term; 2], letters: &[char]) -> Vec<usize> {
    let lengths = letters
        .iter()
        .map(|letter| terms.iter().find_map(|term| term.length(*letter)).unwrap_or(1));
    lengths.collect()
}

/// Sums over all axes except the `wanted` axes.
fn summed(tape: &mut Tape, term: Term, wanted: &dyn Fn(&char) -> bool) -> Term {
    let places = term.letters.iter().enumerate();
    let gone: Vec<usize> = places
        .filter(|(_, letter)| !wanted(letter))
        .map(|(axis, _)| axis)
        .collect();
    Term {
        value: total(tape, term.value, gone),
        letters: term.letters.into_iter().filter(wanted).collect(),
    }
}

/// Multiplies two terms and keeps the axes that are `wanted` later.
fn product(tape: &mut Tape, left: Term, right: Term, wanted: &dyn Fn(&char) -> bool) -> Term {
    let others = right.letters.clone();
    let left = summed(tape, left, &|letter| wanted(letter) || others.contains(letter));
    let right = summed(tape, right, &|letter| {
        wanted(letter) || left.letters.contains(letter)
    });
    let shared = left.letters_with(|letter| right.letters.contains(letter) && wanted(letter));
    let summed = left.letters_with(|letter| right.letters.contains(letter) && !wanted(letter));
    let rows = left.letters_with(|letter| !right.letters.contains(letter));
    let columns = right.letters_with(|letter| !left.letters.contains(letter));
    let terms = [&left, &right];
    let [batch, m, k, n] =
        [&shared, &rows, &summed, &columns].map(|letters| lengths(terms, letters).iter().product::<usize>());
    let matrices = left.arranged(tape, &[shared.as_slice(), &rows, &summed].concat());
    let matrices = reshaped(tape, &matrices, &[batch, m, k]);
    let others = right.arranged(tape, &[shared.as_slice(), &summed, &columns].concat());
    let others = if shared.is_empty() {
        reshaped(tape, &others, &[k, n])
    } else {
        reshaped(tape, &others, &[batch, k, n])
    };
    let result = multiplied(tape, matrices, others, &[batch, m, n]);
    let letters = [shared, rows, columns].concat();
    Term {
        value: reshaped(tape, &result, &lengths(terms, &letters)),
        letters,
    }
}
