//! The `frostline` command.
fn main() {}
