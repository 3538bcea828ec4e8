//! Command-line arguments and their help texts.

mod addresses;
mod admin;
mod compile;
mod doctor;
mod extract;
mod features;
mod guest;
mod host;
mod job;
mod onnxruntime;
mod quantize;
mod report;
mod run;
mod state;
mod sweep;
mod upload;

pub(crate) use addresses::refuse_secrets;
pub(crate) use admin::{Admin, AdminCommand, GuestAdmin, JobAdmin, ModelAdmin, Quota, Tenant, Usage};
pub(crate) use compile::{COMPILE_GUEST, CompileGuest, REQUIRE_WALLS};
pub(crate) use doctor::Doctor;
pub(crate) use extract::Extract;
pub(crate) use features::CacheCommand;
pub(crate) use guest::{Authoring, BuildGuest, CheckGuest, Language, NewGuest, RunGuest};
pub(crate) use host::{Guest, HostFlags, Model, RemoteHost, RemoteHosts, Serve};
pub(crate) use job::{Eval, Inputs, InterfaceFlags, JobFlags, Plan, Predict, Profile, Train};
pub(crate) use onnxruntime::OnnxRuntime;
pub(crate) use quantize::Quantize;
pub(crate) use report::Report;
pub(crate) use run::Runs;
pub(crate) use state::{HostStores, State};
pub(crate) use sweep::Sweep;
pub(crate) use upload::{OwnUpload, Upload};

use clap::{Parser, Subcommand};
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    failure; standard error says why, with --json as {\"error\", \"kind\", \"code\"}
  2    invalid command line
  130  interrupted; train has written a checkpoint";

/// Fine-tune vision models on images in an object store, and run the frozen layers next to the data.
#[derive(Debug, Parser)]
#[command(
    name = "frostline",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = EXIT_CODES
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print JSON lines instead of text; errors are a JSON object on standard error
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Stop at the end of standard input, for example when the parent process exits
    #[arg(long, global = true, hide = true)]
    pub(crate) until_input_ends: bool,
    /// Increase log verbosity: -v info, -vv debug (RUST_LOG overrides)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Train(Train),
    Plan(Plan),
    Eval(Eval),
    Predict(Predict),
    Profile(Profile),
    Extract(Extract),
    Report(Report),
    Runs(Runs),
    Serve(Serve),
    /// Create, build, check and run guests, or manage guests on a host
    #[command(subcommand)]
    Guest(Guest),
    /// Show models and their cuts
    #[command(subcommand)]
    Model(Model),
    #[command(subcommand)]
    Cache(CacheCommand),
    Admin(Admin),
    Doctor(Doctor),
    #[command(subcommand, name = "onnxruntime")]
    OnnxRuntime(OnnxRuntime),
    #[command(name = COMPILE_GUEST, hide = true)]
    CompileGuest(CompileGuest),
    /// Run a lane for `frostline serve`
    #[command(hide = true)]
    Lanes,
    /// Print a page of the generated reference
    #[command(hide = true)]
    Reference {
        part: ReferencePart,
    },
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  frostline completions bash > ~/.local/share/bash-completion/completions/frostline"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write a manual page for each command
    #[command(after_help = "\
Examples:
  frostline man > ~/.local/share/man/man1/frostline.1
  frostline man --directory /usr/local/share/man/man1")]
    Man {
        /// Write the pages of all commands to this folder
        #[arg(long, value_name = "DIRECTORY")]
        directory: Option<PathBuf>,
    },
}

/// Page of the generated reference.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum ReferencePart {
    Commands,
    Settings,
    Metrics,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        fn check(command: &clap::Command) {
            let typed = |sub: &&clap::Command| sub.get_name() != "help" && !sub.is_hide_set();
            for sub in command.get_subcommands().filter(typed) {
                if sub.has_subcommands() {
                    check(sub);
                } else {
                    let help = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
                    assert!(help.contains("frostline "), "{} has no example", sub.get_name());
                }
            }
        }
        check(&Arguments::command());
    }
}
