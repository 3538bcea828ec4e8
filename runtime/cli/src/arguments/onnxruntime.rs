//! Arguments of `frostline onnxruntime`.

use clap::Subcommand;
use std::path::PathBuf;

/// Install the ONNX Runtime library
#[derive(Debug, Subcommand)]
pub(crate) enum OnnxRuntime {
    /// Download the library with pip and verify the SHA-256
    ///
    /// Requires python3 with pip. The CPU library has 29 MB. In the default folder, all frostline commands of
    /// this user find the library.
    #[command(after_help = "\
Examples:
  frostline onnxruntime install
  frostline onnxruntime install --gpu --directory /opt/onnxruntime-gpu")]
    Install {
        /// Install the build for NVIDIA GPUs, which requires CUDA 13 and cuDNN 9
        #[arg(long)]
        gpu: bool,
        /// Install into this folder [default: frostline/onnxruntime in the user's data folder]
        #[arg(long, value_name = "DIRECTORY")]
        directory: Option<PathBuf>,
    },
}
