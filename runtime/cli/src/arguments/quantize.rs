use clap::Args;
use frostline_job::flags::{Given, named};
use frostline_job::{HostList, PixelFlags, PrefixPrecision};
use frostline_wire::Layout;
use std::path::PathBuf;

/// Flags of `frostline model quantize`.
#[derive(Debug, Args)]
pub(crate) struct Quantize {
    /// An ONNX file
    pub(crate) model: PathBuf,
    /// Where the images are, labeled or not: a path, file://, s3://bucket/prefix, gs://, az:// or https://
    #[arg(long, value_name = "URL")]
    pub(crate) data: String,
    /// How they lie there: auto finds out
    #[arg(long, default_value = "auto", value_parser = named::<Layout>())]
    pub(crate) layout: Layout,
    /// Where to write the network
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Quantize the layers up to this cut; by default the last one before the classifier
    #[arg(long, value_name = "CUT")]
    pub(crate) freeze: Option<String>,
    /// int8 writes int8 or fails; auto writes f32 if int8 is too imprecise or less than 1.1 times as fast here
    #[arg(long, default_value = "int8", value_parser = named::<PrefixPrecision>())]
    pub(crate) prefix_precision: PrefixPrecision,
    /// Accept a cosine similarity to f32 below 0.99
    #[arg(long)]
    pub(crate) allow_imprecise: bool,
    /// Threads to compute with; 0 takes all cores
    #[arg(long, default_value_t = 0)]
    pub(crate) threads: usize,
    #[command(flatten)]
    pub(crate) pixels: Given<PixelFlags>,
    #[command(flatten)]
    pub(crate) host: HostList,
}
