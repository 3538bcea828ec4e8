//! Arguments of the `frostline guest` commands for guest authors, which do not need a host.

use super::interface::InterfaceFlags;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Authoring {
    New(NewGuest),
    Build(BuildGuest),
    Check(CheckGuest),
    Run(RunGuest),
}

/// Create a starter project for a guest
///
/// The project contains the interface and the SDK and can be built without changes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline guest new mine
  frostline guest new mine --language c --path guests/mine")]
pub(crate) struct NewGuest {
    /// Name of the guest (lower-case letters, digits and hyphens)
    pub(crate) name: String,
    /// Programming language of the project
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    pub(crate) language: Language,
    /// Project folder [default: the name of the guest]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) path: Option<PathBuf>,
}

/// Programming language of a starter project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// Rust, with the crate frostline-guest
    Rust,
    /// C, with clang and no libc
    C,
}

/// Build a guest and convert it to a component
///
/// Runs cargo for wasm32-unknown-unknown, or clang if the project is written in C.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  frostline guest build mine")]
pub(crate) struct BuildGuest {
    /// The project's folder
    #[arg(default_value = ".", value_name = "DIRECTORY")]
    pub(crate) path: PathBuf,
}

/// Check a guest in the same way as a host
///
/// Exits with 1 if a host would refuse the guest.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline guest check guest.wasm
  frostline guest check guest.wasm --model resnet18.onnx")]
pub(crate) struct CheckGuest {
    /// Component, or core module for wasm32-unknown-unknown
    pub(crate) file: PathBuf,
    /// Also check this network like a host does, and show how the guest would process it
    #[arg(long, value_name = "FILE")]
    pub(crate) model: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) interface: InterfaceFlags,
    /// Text passed to the guest unchanged
    #[arg(long, value_name = "TEXT", default_value = "", requires = "model")]
    pub(crate) parameters: String,
}

/// Run a guest without a host, and show the activations and the resource usage
///
/// Prints the first values of each activation, and the log lines of the guest to standard error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline guest run guest.wasm --data ./photos --keys train/cat/1.jpg,train/cat/2.jpg --model resnet18.onnx --split layer3.1
  frostline guest run guest.wasm --data ./photos --keys train/cat/1.jpg --model resnet18.onnx --out rows.parquet")]
pub(crate) struct RunGuest {
    /// Component, or core module for wasm32-unknown-unknown
    pub(crate) file: PathBuf,
    /// Location of the objects (path, file:// or s3://bucket/prefix)
    #[arg(long, value_name = "URL")]
    pub(crate) data: String,
    /// Keys of the samples, relative to the data
    #[arg(long, value_name = "KEYS", value_delimiter = ',', required = true)]
    pub(crate) keys: Vec<String>,
    /// ONNX file of the network
    #[arg(long, value_name = "FILE")]
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) interface: InterfaceFlags,
    /// Run the network up to this cut [default: the last cut before the classifier]
    #[arg(long, value_name = "CUT")]
    pub(crate) split: Option<String>,
    /// Text passed to the guest unchanged
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) parameters: String,
    /// Device that runs the network (cpu or cuda:0)
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub(crate) device: String,
    /// Write all activations to this file: .arrow (Arrow's file format) or .parquet, with the columns of
    /// `frostline extract`
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}
