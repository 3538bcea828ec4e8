//! Tests of multiple modules.

mod cuts;
mod measuring;
