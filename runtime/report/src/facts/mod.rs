//! What follows from what a run folder says.

mod candidates;
mod classes;
mod curves;
mod timeline;

pub(crate) use candidates::{Compared, compared};
pub(crate) use classes::{Class, Classes};
pub(crate) use curves::{epochs_of, steps_of};
pub(crate) use timeline::{Span, Timeline};
