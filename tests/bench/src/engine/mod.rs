//! The engine behind a host: the rate of the whole path against a bare loop, the effect of killed lanes and of halved memory under load, and
//! the time of a scheduling decision.

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
