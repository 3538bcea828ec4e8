//! How good a model is: what it says of samples ([`predictions`]), held against what they are, as one figure and as tables.

mod division;
mod evaluate;
pub(crate) mod labels;
mod predictions;
mod scorer;
mod tables;
mod targets;
mod validation;

pub(crate) use division::{Divided, Division, ListedSamples};
pub use evaluate::evaluate;
pub(crate) use evaluate::evaluate_samples;
pub(crate) use predictions::*;
pub(crate) use scorer::Scorer;
pub use tables::{ClassFigures, ConfusedPair, LabelFigures, Tables, TargetFigures};
pub(crate) use targets::Targets;
pub(crate) use validation::{Predicting, Validation};
