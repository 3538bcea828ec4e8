//! Tests of the parts together.

mod cuts;
mod measuring;
