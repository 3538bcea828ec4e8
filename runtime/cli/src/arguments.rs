//! What can be typed: commands, flags, their help.

use clap::{Args, Parser, Subcommand, ValueEnum};
use frostline_wire::{Encoding, UnknownEncoding};
use std::path::PathBuf;

/// Fine-tune vision models on images in an object store, with the frozen layers run beside the data.
#[derive(Debug, Parser)]
#[command(
    name = "frostline",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print JSON, one object a line, instead of text for people
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Log more: -v for what happens, -vv for details (RUST_LOG overrides)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Train(Train),
    Plan(Plan),
    Eval(Eval),
    Profile(Profile),
    Serve(Serve),
    /// Upload, list and show guests on a host
    #[command(subcommand)]
    Guest(Guest),
    /// Show models and their cuts
    #[command(subcommand)]
    Model(Model),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  frostline completions bash > ~/.local/share/bash-completion/completions/frostline"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Fine-tune a model on a folder or bucket of labelled images
///
/// The data are laid out as train/<class>/*.jpg and validation/<class>/*.jpg, or as <class>/*.jpg together with --validation.
/// Without --host, a storage host is started inside this process on a loopback port.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline train --model squeezenet1_1.onnx --data ./photos --freeze 52 --out tuned.onnx
  frostline train --model resnet18.onnx --data s3://photos/clothing --host http://store:8080 --token-file token \\
      --freeze layer4.0 --epochs 20 --batch 64 --out tuned.onnx
  frostline train --model resnet18.onnx --data s3://photos/clothing --host http://store-1:8080 --host http://store-2:8080 \\
      --token-file token --freeze layer4.0 --out tuned.onnx")]
pub(crate) struct Train {
    /// The pretrained network, an ONNX classifier
    #[arg(long, value_name = "FILE")]
    pub(crate) model: PathBuf,
    /// Where the images are: a path, file://, s3://bucket/prefix
    #[arg(long, value_name = "URL")]
    pub(crate) data: String,
    /// Freeze the network up to this cut and train what follows; by default the last cut before the classifier
    #[arg(long, value_name = "CUT")]
    pub(crate) freeze: Option<String>,
    /// Where to divide the network between host and trainer: auto, none, input, a cut at or before the freeze cut, or a rule as for
    /// `frostline plan --policy`
    #[arg(long, value_name = "CUT", default_value = "auto")]
    pub(crate) split: String,
    /// Where the tuned model is written
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Passes over the training images
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) epochs: u32,
    /// Images per training step
    #[arg(long, default_value_t = 64, value_parser = positive)]
    pub(crate) batch: usize,
    /// Learning rate; by default 0.003 for sgd and 0.001 for adamw
    #[arg(long)]
    pub(crate) lr: Option<f32>,
    /// The optimiser
    #[arg(long, value_enum, default_value_t = OptimizerName::Sgd)]
    pub(crate) optimizer: OptimizerName,
    /// Momentum, for sgd
    #[arg(long, default_value_t = 0.9)]
    pub(crate) momentum: f64,
    /// Weight decay; by default 0 for sgd and 0.01 for adamw
    #[arg(long)]
    pub(crate) weight_decay: Option<f64>,
    /// Seeds the shuffle, the new classifier's weights and the choice of validation images
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// How activations travel: auto, or f32, u8 (pixels, for --split input, exact there), f16 or int8, each with +lz4 or +zstd
    /// to compress them. auto never takes int8, which loses the most
    #[arg(long, default_value = "auto", value_parser = encoding)]
    pub(crate) encoding: EncodingChoice,
    /// Share of each class to validate with (0 to 1), for data without train/ and validation/
    #[arg(long, value_name = "SHARE")]
    pub(crate) validation: Option<f64>,
    /// What to do about an image that cannot be decoded
    #[arg(long, value_enum, default_value_t = BadSample::Fail)]
    pub(crate) on_bad_sample: BadSample,
    /// Images per request to the host, at most
    #[arg(long, default_value_t = 32, value_parser = positive)]
    pub(crate) request_samples: usize,
    /// Batches extracted ahead while one trains, at most
    #[arg(long, default_value_t = 3, value_parser = positive)]
    pub(crate) prefetch: usize,
    /// Use this guest (a component or a core module) instead of the stock one
    #[arg(long, value_name = "FILE")]
    pub(crate) guest: Option<PathBuf>,
    /// Text passed to the guest as it is; the stock guest takes a preprocessing recipe as JSON
    #[arg(long, value_name = "TEXT")]
    pub(crate) parameters: Option<String>,
    #[command(flatten)]
    pub(crate) compute: Compute,
    #[command(flatten)]
    pub(crate) host: HostsFlags,
}

/// Show where a job would divide the network, and why
///
/// Measures host, trainer and link unless that was done before, and predicts the time of an iteration at every split.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline plan --model resnet18.onnx --freeze layer4.0 --data s3://photos/clothing --host http://store:8080 --token-file token
  frostline plan --simulate measured.json --policy hapi-time --json")]
pub(crate) struct Plan {
    /// The pretrained network, an ONNX classifier
    #[arg(long, value_name = "FILE")]
    pub(crate) model: Option<PathBuf>,
    /// Where the images are: a path, file://, s3://bucket/prefix
    #[arg(long, value_name = "URL")]
    pub(crate) data: Option<String>,
    /// Freeze the network up to this cut; by default the last cut before the classifier
    #[arg(long, value_name = "CUT")]
    pub(crate) freeze: Option<String>,
    /// The rule that chooses: auto, freeze, none, hapi-size, hapi-time, or a split
    #[arg(long, value_name = "RULE", default_value = "auto")]
    pub(crate) policy: String,
    /// Plan on measurements from a JSON file, without host or data
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "data", "host"])]
    pub(crate) simulate: Option<PathBuf>,
    /// Consider only these splits
    #[arg(long, value_name = "CUTS", value_delimiter = ',')]
    pub(crate) candidates: Vec<String>,
    /// Take this for the link instead of measuring it
    #[arg(long, value_name = "NUMBER")]
    pub(crate) link_bytes_per_second: Option<f64>,
    /// Passes over the training images
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) epochs: u32,
    /// Images per training step
    #[arg(long, default_value_t = 64, value_parser = positive)]
    pub(crate) batch: usize,
    /// How activations travel, instead of what suits the link
    #[arg(long, default_value = "auto", value_parser = encoding)]
    pub(crate) encoding: EncodingChoice,
    /// Share of each class to validate with (0 to 1), for data without train/ and validation/
    #[arg(long, value_name = "SHARE")]
    pub(crate) validation: Option<f64>,
    #[command(flatten)]
    pub(crate) compute: Compute,
    #[command(flatten)]
    pub(crate) host: HostsFlags,
}

/// Measure a model's accuracy on labelled images
///
/// Measures the validation/ part of the data if there is one, else all of it.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  frostline eval --model tuned.onnx --data ./photos")]
pub(crate) struct Eval {
    /// The network, an ONNX classifier
    #[arg(long, value_name = "FILE")]
    pub(crate) model: PathBuf,
    /// Where the images are: a path, file://, s3://bucket/prefix
    #[arg(long, value_name = "URL")]
    pub(crate) data: String,
    /// Images per forward pass
    #[arg(long, default_value_t = 64, value_parser = positive)]
    pub(crate) batch: usize,
    /// What to do about an image that cannot be decoded
    #[arg(long, value_enum, default_value_t = BadSample::Fail)]
    pub(crate) on_bad_sample: BadSample,
    #[command(flatten)]
    pub(crate) compute: Compute,
    #[command(flatten)]
    pub(crate) host: HostsFlags,
}

/// Measure what a network takes at each place it could be divided
///
/// Prints, for every candidate cut, the bytes of an image there, the compute up to there and the memory it takes, as measured on the
/// host with some of the images. Without --host, a storage host is started inside this process.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline profile --model resnet18.onnx --data ./photos --plot resnet18.svg
  frostline profile --model resnet18.onnx --freeze layer4.0 --data s3://photos/clothing --host http://store:8080 --token-file token")]
pub(crate) struct Profile {
    /// The network, an ONNX classifier
    #[arg(long, value_name = "FILE")]
    pub(crate) model: PathBuf,
    /// Where the images are: a path, file://, s3://bucket/prefix
    #[arg(long, value_name = "URL")]
    pub(crate) data: String,
    /// The last cut to measure; by default the last cut before the classifier
    #[arg(long, value_name = "CUT")]
    pub(crate) freeze: Option<String>,
    /// Draw sizes and compute into this SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Where the embedded host computes: cpu or cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "cpu", conflicts_with = "host")]
    pub(crate) device: String,
    #[command(flatten)]
    pub(crate) host: HostFlags,
}

/// Run a storage host
///
/// Every flag can stand in the configuration file; a flag given here wins. The tenant's token is read from the token file,
/// which is created on the first start.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline serve --config host.toml
  frostline serve --data s3://photos/acme --state /var/lib/frostline --token-file /etc/frostline/token --listen 127.0.0.1:8080")]
pub(crate) struct Serve {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// A data root the tenant may read; may be repeated
    #[arg(long, value_name = "URL")]
    pub(crate) data: Vec<String>,
    /// Where guests, models and compiled artefacts are kept
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) state: Option<PathBuf>,
    /// The tenant's token
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Where networks run: cpu or cuda:0
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Engine worker threads
    #[arg(long)]
    pub(crate) lanes: Option<usize>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Guest {
    /// Upload a guest
    #[command(
        after_help = "Example:\n  frostline guest push mine guest.wasm --host http://store:8080 --token-file token"
    )]
    Push {
        /// Its name on the host: [a-z0-9][a-z0-9._-]{0,62}
        name: String,
        /// A component, or a core module from wasm32-unknown-unknown
        file: PathBuf,
        #[command(flatten)]
        host: RemoteHost,
    },
    /// List the guests on a host
    #[command(after_help = "Example:\n  frostline guest list --host http://store:8080 --token-file token")]
    List {
        #[command(flatten)]
        host: RemoteHost,
    },
    /// Show one guest
    #[command(
        after_help = "Example:\n  frostline guest show prefix --host http://store:8080 --token-file token"
    )]
    Show {
        /// Its name
        name: String,
        #[command(flatten)]
        host: RemoteHost,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Model {
    /// Show a model's cuts: name, shape, bytes per image, share of compute
    #[command(after_help = "\
Examples:
  frostline model show squeezenet1_1.onnx
  frostline model show squeezenet1_1 --host http://store:8080 --token-file token")]
    Show {
        /// An ONNX file, or with --host a model's name there
        model: String,
        #[command(flatten)]
        host: HostFlags,
    },
}

/// Where the trainer itself computes.
#[derive(Debug, Args)]
pub(crate) struct Compute {
    /// Where the trainer computes: cpu or cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub(crate) device: String,
    /// Threads the trainer computes with; 0 takes all cores
    #[arg(long, default_value_t = 0)]
    pub(crate) threads: usize,
}

/// Running hosts, or none.
#[derive(Debug, Args)]
pub(crate) struct HostsFlags {
    /// A running storage host; without it one is started inside this process. May be repeated, for hosts that serve the same data:
    /// each object is read at one of them, and when one fails the others do its work
    #[arg(long, value_name = "URL", requires = "token_file")]
    pub(crate) host: Vec<String>,
    /// File with the token for the hosts
    #[arg(long, value_name = "FILE", requires = "host")]
    pub(crate) token_file: Option<PathBuf>,
}

/// A running host, or none.
#[derive(Debug, Args)]
pub(crate) struct HostFlags {
    /// A running storage host; without it one is started inside this process
    #[arg(long, value_name = "URL", requires = "token_file")]
    pub(crate) host: Option<String>,
    /// File with the token for the host
    #[arg(long, value_name = "FILE", requires = "host")]
    pub(crate) token_file: Option<PathBuf>,
}

/// A running host.
#[derive(Debug, Args)]
pub(crate) struct RemoteHost {
    /// The storage host
    #[arg(long, value_name = "URL")]
    pub(crate) host: String,
    /// File with the token for the host
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum OptimizerName {
    /// Stochastic gradient descent with momentum
    Sgd,
    /// Adam with decoupled weight decay
    Adamw,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EncodingChoice {
    Auto,
    Fixed(Encoding),
}

impl EncodingChoice {
    pub(crate) fn fixed(self) -> Option<Encoding> {
        match self {
            Self::Auto => None,
            Self::Fixed(encoding) => Some(encoding),
        }
    }
}

fn encoding(word: &str) -> Result<EncodingChoice, UnknownEncoding> {
    match word {
        "auto" => Ok(EncodingChoice::Auto),
        word => word.parse().map(EncodingChoice::Fixed),
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum BadSample {
    /// End the job and name the object
    Fail,
    /// Leave the image out, report it, and never ask for it again
    Skip,
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
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
            for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
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
