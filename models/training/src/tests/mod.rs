mod harness;
mod networks;
mod operators;
mod optimizers;
mod refusals;
mod steps;
mod table;
