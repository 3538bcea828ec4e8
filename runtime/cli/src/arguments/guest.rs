//! Commands of a guest's author; none of them needs a host.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Authoring {
    New(NewGuest),
    Build(BuildGuest),
    Check(CheckGuest),
    Run(RunGuest),
}

/// Make a starter project for a guest
///
/// The project holds all it needs of Frostline, the interface and the SDK, and builds as it is.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline guest new mine
  frostline guest new mine --language c --path guests/mine")]
pub(crate) struct NewGuest {
    /// Its name: lower-case letters, digits and hyphens
    pub(crate) name: String,
    /// What it is written in
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    pub(crate) language: Language,
    /// The project's folder; by default the name, in this folder
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) path: Option<PathBuf>,
}

/// What a starter project is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// Rust, with the crate frostline-guest
    Rust,
    /// C, with clang and no libc
    C,
}

/// Build a guest: compile it and make a component of it
///
/// Runs cargo for wasm32-unknown-unknown, or clang where the project is in C.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  frostline guest build mine")]
pub(crate) struct BuildGuest {
    /// The project's folder
    #[arg(default_value = ".", value_name = "DIRECTORY")]
    pub(crate) path: PathBuf,
}

/// Check a guest as a host would, without one
///
/// Exits with 1 when a host would refuse it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline guest check guest.wasm
  frostline guest check guest.wasm --model resnet18.onnx")]
pub(crate) struct CheckGuest {
    /// A component, or a core module from wasm32-unknown-unknown
    pub(crate) file: PathBuf,
    /// Also check this network as a host would, and ask the guest what it does for it
    #[arg(long, value_name = "FILE")]
    pub(crate) model: Option<PathBuf>,
    /// Text passed to the guest as it is
    #[arg(long, value_name = "TEXT", default_value = "", requires = "model")]
    pub(crate) parameters: String,
}

/// Run a guest once, without a host, and show what came and what it took
///
/// The lines the guest logs are shown on standard error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline guest run guest.wasm --data ./photos --keys train/cat/1.jpg,train/cat/2.jpg --model resnet18.onnx --split layer3.1")]
pub(crate) struct RunGuest {
    /// A component, or a core module from wasm32-unknown-unknown
    pub(crate) file: PathBuf,
    /// Where the objects are: a path, file://, s3://bucket/prefix
    #[arg(long, value_name = "URL")]
    pub(crate) data: String,
    /// Keys of the samples, below the data
    #[arg(long, value_name = "KEYS", value_delimiter = ',', required = true)]
    pub(crate) keys: Vec<String>,
    /// The network, an ONNX model
    #[arg(long, value_name = "FILE")]
    pub(crate) model: PathBuf,
    /// The cut to run the network up to; by default the last one before the classifier
    #[arg(long, value_name = "CUT")]
    pub(crate) split: Option<String>,
    /// Text passed to the guest as it is
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) parameters: String,
    /// Where the network runs: cpu or cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub(crate) device: String,
}
