//! Measures the host's engine: rate of the full path relative to a bare loop, effects of killed lanes and
//! reduced memory under load, and time for a scheduling decision.

mod decision;
mod kills;
mod limits;
mod path;

use crate::report::Report;
use anyhow::Result;

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        path::run(report).await?;
        kills::run(report).await?;
        limits::run(report).await
    })?;
    decision::run(report)
}
