mod harness;
mod operators;
mod optimizers;
mod refusals;
mod steps;
