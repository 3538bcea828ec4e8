//! Measures the quality of a model: compares [`predictions`] with labels, and reports figures and tables.

mod division;
mod evaluate;
pub(crate) mod labels;
mod predictions;
mod scorer;
mod tables;
mod validation;

pub(crate) use division::{Divided, Division, ListedSamples};
pub use evaluate::evaluate;
pub(crate) use evaluate::{evaluate_samples, open_guest};
pub(crate) use predictions::*;
pub(crate) use scorer::Scorer;
pub use tables::{ClassFigures, ConfusedPair, LabelFigures, Tables, TargetFigures};
pub(crate) use validation::Validation;
