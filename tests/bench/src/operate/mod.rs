//! Operating a host: what it says of a store that fails.

mod faults;
mod store;

use crate::report::Report;
use anyhow::Result;

pub(crate) const PARTS: [&str; 1] = ["faults"];

pub(crate) fn run(report: &mut Report) -> Result<()> {
    if report.has("faults") {
        faults::run(report)?;
    }
    Ok(())
}
