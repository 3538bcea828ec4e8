//! `frostline man`, which generates manual pages from the command-line arguments.

use crate::arguments::Arguments;
use crate::output::stdout;
use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_mangen::Man;
use std::io::Write;
use std::path::Path;

/// Prints the manual page of the main command.
pub(crate) fn print() -> Result<()> {
    let mut page = Vec::new();
    Man::new(Arguments::command()).render(&mut page)?;
    stdout().write_all(&page)?;
    Ok(())
}

/// Writes a manual page for each command, such as `frostline-admin-tenant-add.1`.
pub(crate) fn write_all(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), directory))
        .with_context(|| format!("cannot write manual pages to {}", directory.display()))
}
