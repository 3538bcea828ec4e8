//! Flags of `frostline onnxruntime`.

use clap::Subcommand;
use std::path::PathBuf;

/// Install the ONNX Runtime library
#[derive(Debug, Subcommand)]
pub(crate) enum OnnxRuntime {
    /// Download the library with pip and verify its SHA-256
    ///
    /// Needs python3 with pip. The library of the CPU build has 29 MB. Every frostline command of this user finds it in the default folder.
    #[command(after_help = "\
Examples:
  frostline onnxruntime install
  frostline onnxruntime install --gpu --directory /opt/onnxruntime-gpu")]
    Install {
        /// The build for NVIDIA GPUs, which needs CUDA 13 and cuDNN 9
        #[arg(long)]
        gpu: bool,
        /// The folder to install into [default: frostline/onnxruntime in the user's data folder]
        #[arg(long, value_name = "DIRECTORY")]
        directory: Option<PathBuf>,
    },
}
