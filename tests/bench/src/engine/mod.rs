//! The engine behind a host: the rate of the whole path against a bare loop, the effect of killed lanes and of halved memory under load,
//! the time of a scheduling decision, and the same path on a GPU if there is one.

mod decision;
mod gpu;
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
        limits::run(report).await?;
        gpu::run(report).await
    })?;
    decision::run(report)
}
