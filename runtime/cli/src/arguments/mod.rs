//! Command-line arguments and their help texts.

mod addresses;
mod admin;
mod compile;
mod doctor;
mod features;
mod guest;
mod host;
mod interface;
mod job;
mod onnxruntime;
mod overwriting;
mod report;
mod state;
mod sweep;
mod upload;

use addresses::refuse_secrets;
pub(crate) use admin::{
    AdminCommand, AdminFlags, GuestAdmin, GuestName, JobAdmin, ModelAdmin, OfTenant, Quota, TenantCommand,
    TenantName, UsageFlags,
};
pub(crate) use compile::{COMPILE_GUEST, CompileGuest, REQUIRE_WALLS};
pub(crate) use doctor::DoctorFlags;
pub(crate) use features::CacheCommand;
pub(crate) use guest::{Authoring, BuildGuest, CheckGuest, Language, NewGuest, RunGuest};
pub(crate) use host::{
    GuestCommand, HostFlags, ModelCommand, QuantizeFlags, RemoteHost, RemoteHosts, ServeFlags,
};
pub(crate) use interface::InterfaceFlags;
pub(crate) use job::{
    EvalFlags, ExtractFlags, Inputs, JobFlags, PlanFlags, PredictFlags, ProfileFlags, TrainFlags,
};
pub(crate) use onnxruntime::OnnxRuntime;
pub(crate) use report::{ReportFlags, RunsFlags};
pub(crate) use state::{HostStores, StateCommand};
pub(crate) use sweep::Sweep;
pub(crate) use upload::{OwnUpload, UploadName};

use clap::{CommandFactory, Error, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
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

impl Arguments {
    /// Parses `words`, which begin with the name of the program, and checks them as a whole.
    ///
    /// # Errors
    /// Returns a usage error, or the requested help or version.
    pub(crate) fn from_words<W: Into<OsString>>(words: impl IntoIterator<Item = W>) -> Result<Self, Error> {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let mut command = Self::command();
        refuse_secrets(&mut command, words.iter().filter_map(|word| word.to_str()))?;
        let mut matches = command.try_get_matches_from_mut(words)?;
        overwriting::check(&command, &matches)?;
        Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Train(TrainFlags),
    Plan(PlanFlags),
    Eval(EvalFlags),
    Predict(PredictFlags),
    Profile(ProfileFlags),
    Extract(ExtractFlags),
    Report(ReportFlags),
    Runs(RunsFlags),
    Serve(ServeFlags),
    /// Create, build, check and run guests, or manage guests on a host
    #[command(subcommand)]
    Guest(GuestCommand),
    /// Show models and their cuts
    #[command(subcommand)]
    Model(ModelCommand),
    #[command(subcommand)]
    Cache(CacheCommand),
    Admin(AdminFlags),
    Doctor(DoctorFlags),
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
    Routes,
    Openapi,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn outputs_that_are_inputs_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        for name in ["net.onnx", "labels.csv", "token", "plan.json"] {
            fs::write(at(name), name).unwrap();
        }
        symlink("net.onnx", at("link.onnx")).unwrap();
        let spelled = format!(
            "{}/../{}/net.onnx",
            at(""),
            folder.path().file_name().unwrap().display()
        );
        let refused = |words: &str| {
            let words = words
                .replace("NET", &at("net.onnx"))
                .replace("LINK", &at("link.onnx"))
                .replace("SPELLED", &spelled)
                .replace("IN/", &at(""));
            let error = Arguments::from_words(["frostline"].into_iter().chain(words.split(' '))).err();
            error.map(|error| error.to_string())
        };
        for (words, output, input) in [
            ("train --model NET --data IN/ --out NET", "--out", "--model"),
            ("train --model NET --data IN/ --out SPELLED", "--out", "--model"),
            ("train --model LINK --data IN/ --out NET", "--out", "--model"),
            ("train --model NET --data IN/ --out LINK", "--out", "--model"),
            (
                "train --model NET --data IN/ --out IN/labels.csv",
                "--out",
                "--data",
            ),
            (
                "eval --model NET --data IN/ --labels IN/labels.csv --predictions IN/labels.csv",
                "--predictions",
                "--",
            ),
            (
                "extract --model NET --data IN/ --out IN/token --token-file IN/token",
                "--out",
                "--token-file",
            ),
            (
                "plan --simulate IN/plan.json --plot IN/plan.json",
                "--plot",
                "--simulate",
            ),
            ("profile --model NET --data IN/ --plot LINK", "--plot", "--model"),
            ("model quantize NET --data IN/ --out LINK", "--out", "<MODEL>"),
        ] {
            let said = refused(words).unwrap_or_else(|| panic!("{words}"));
            assert!(said.contains("would overwrite"), "{words}: {said}");
            let (first, second) = said.split_once("would overwrite").unwrap();
            assert!(first.contains(output) && second.contains(input), "{said}");
        }
        for words in [
            "train --model NET --data IN/ --out IN/tuned.onnx",
            "train --model NET --data IN/ --out IN/plan.json",
            "eval --model NET --data IN/ --predictions IN/predictions.csv",
        ] {
            assert_eq!(refused(words), None, "{words}");
        }
    }

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
