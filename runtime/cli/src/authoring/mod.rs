//! Commands for guest authors that need no host: create a project, build, check and run the guest.

mod build;
mod check;
mod new;
mod run;
mod starter;
mod workbench;

#[cfg(test)]
mod tests;

use crate::arguments::Authoring;
use anyhow::Result;

pub(crate) async fn run(command: Authoring, json: bool) -> Result<()> {
    match command {
        Authoring::New(flags) => new::run(&flags, json),
        Authoring::Build(flags) => build::run(&flags, json),
        Authoring::Check(flags) => check::run(&flags, json).await,
        Authoring::Run(flags) => run::run(&flags, json).await,
    }
}
