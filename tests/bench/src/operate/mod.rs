//! Operating a host: what it says of a store that fails, what it accounts for when it is killed, and how much one tenant makes it log.

mod faults;
mod guest;
mod http;
mod lines;
mod logging;
mod store;
mod usage;

use crate::report::Report;
use anyhow::Result;

pub(crate) const PARTS: [&str; 3] = ["faults", "usage", "lines"];

pub(crate) fn run(report: &mut Report) -> Result<()> {
    if report.has("faults") {
        faults::run(report)?;
    }
    if report.has("usage") {
        usage::run(report)?;
    }
    if report.has("lines") {
        lines::run(report)?;
    }
    Ok(())
}
