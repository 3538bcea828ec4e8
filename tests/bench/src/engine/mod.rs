//! The engine behind a host: what the whole path keeps of a bare loop's rate, what is lost when lanes are killed or their memory is
//! halved under load, how fast it is decided what runs next, and the same path on a GPU where there is one.

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
