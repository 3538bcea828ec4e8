//! A whole host in this process: real HTTP, state on disk, the stock guest, a small network.

mod extraction;
mod lifecycle;
mod support;
mod uploads;
