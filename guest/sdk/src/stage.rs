//! Running the layers between two places of the extraction's model.

use crate::bindings::wasi::nn::graph::load_by_name;
use crate::{ErrorCode, Failure, Tensor};

/// The name under which the host keeps the layers from the model's input to `to`.
///
/// For the split of a job, [`Job::stage`](crate::Job) already is this name.
pub fn up_to(to: &str) -> String {
    escape(to)
}

/// The name under which the host keeps the layers after tensor `from`, up to `to`.
pub fn between(from: &str, to: &str) -> String {
    format!("{}..{}", escape(from), escape(to))
}

/// Runs a stage on a batch, which it consumes, also when it fails.
///
/// `name` is [`Job::stage`](crate::Job), or made by [`up_to`] or [`between`]; `input` is the tensor the stage takes.
///
/// # Errors
/// `not-found` when the model has no such stage; else what the host's engine says.
pub fn run(name: &str, input: &str, batch: Tensor) -> Result<Tensor, Failure> {
    let context = load_by_name(name)?.init_execution_context()?;
    let outputs = context.compute(vec![(input.to_owned(), batch)])?;
    match outputs.into_iter().next() {
        Some((_, tensor)) => Ok(tensor),
        None => Err(Failure::new(
            ErrorCode::RuntimeError,
            format!("stage {name} returned no tensor"),
        )),
    }
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
