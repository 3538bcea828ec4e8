use super::interface::InterfaceFlags;
use clap::Args;
use frostline_job::flags::{GivenFlags, named};
use frostline_job::{HostList, PixelFlags, PrefixPrecision};
use frostline_wire::Layout;
use std::path::PathBuf;

/// Arguments of `frostline model quantize`.
#[derive(Debug, Args)]
pub(crate) struct Quantize {
    /// ONNX file of the network
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) interface: InterfaceFlags,
    /// Location of the labeled or unlabeled images (path, file://, s3://bucket/prefix, gs://, az:// or
    /// https://)
    #[arg(long, value_name = "URL")]
    pub(crate) data: String,
    /// Layout of the images
    #[arg(long, default_value = "auto", value_parser = named::<Layout>())]
    pub(crate) layout: Layout,
    /// Output file
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Quantize the layers up to this cut [default: the last cut before the classifier]
    #[arg(long, value_name = "CUT")]
    pub(crate) freeze: Option<String>,
    /// int8 fails if the result is too imprecise. auto writes f32 if int8 is too imprecise or less than 1.1
    /// times as fast on this machine
    #[arg(long, default_value = "int8", value_parser = named::<PrefixPrecision>())]
    pub(crate) prefix_precision: PrefixPrecision,
    /// Accept int8 with a cosine similarity to f32 below 0.99
    #[arg(long)]
    pub(crate) allow_imprecise: bool,
    /// Number of compute threads (0 uses all cores)
    #[arg(long, default_value_t = 0)]
    pub(crate) threads: usize,
    #[command(flatten)]
    pub(crate) pixels: GivenFlags<PixelFlags>,
    #[command(flatten)]
    pub(crate) host: HostList,
}
