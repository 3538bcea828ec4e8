//! Runs the layers between two cuts of the extraction's model.

use crate::bindings::wasi::nn::graph::load_by_name;
use crate::{Error, NamedTensor, Tensor};

/// Returns the name of the stage from the model's inputs to `to`.
///
/// For the split of a job, [`Job::graph`](crate::Job) already contains this name.
pub fn up_to(to: &str) -> String {
    escape(to)
}

/// Returns the name of the stage from the tensor `from` to `to`.
pub fn between(from: &str, to: &str) -> String {
    format!("{}..{}", escape(from), escape(to))
}

/// Runs a stage on named tensors, which are the inputs of the stage. Consumes the tensors, even on failure.
///
/// `name` is either [`Job::graph`](crate::Job) or the result of [`up_to`] or [`between`].
///
/// # Errors
/// Returns `not-found` if the model has no such stage, or the error of the host's engine.
pub fn run(name: &str, inputs: Vec<NamedTensor>) -> Result<Vec<NamedTensor>, Error> {
    let context = load_by_name(name)?.init_execution_context()?;
    let inputs = inputs
        .into_iter()
        .map(|(name, tensor)| (name, Tensor::into_nn(tensor)));
    let outputs = context.compute(inputs.collect())?.into_iter();
    Ok(outputs
        .map(|(name, tensor)| (name, Tensor::from_nn(tensor)))
        .collect())
}

/// Percent-encodes all but letters, digits, `-`, `_`, `~` and single dots.
fn escape(tensor: &str) -> String {
    let mut escaped = String::with_capacity(tensor.len());
    let mut previous = 0;
    for byte in tensor.bytes() {
        let plain = byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'_' | b'~')
            || (byte == b'.' && previous != b'.');
        if plain {
            escaped.push(char::from(byte));
        } else {
            escaped.push('%');
            for digit in [byte >> 4, byte & 15] {
                escaped.extend(char::from_digit(digit.into(), 16).map(|d| d.to_ascii_uppercase()));
            }
        }
        previous = byte;
    }
    escaped
}
