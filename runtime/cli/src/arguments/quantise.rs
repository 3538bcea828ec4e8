use clap::Args;
use frostline_job::flags::{Given, named};
use frostline_job::{HostList, PixelFlags, PrefixPrecision};
use frostline_wire::Layout;
use std::path::PathBuf;

/// What is to compute in int8.
#[derive(Debug, Args)]
pub(crate) struct Quantise {
    /// An ONNX file
    pub(crate) model: PathBuf,
    /// Where the images are, labelled or not: a path, file://, s3://bucket/prefix, gs://, az:// or https://
    #[arg(long, value_name = "URL")]
    pub(crate) data: String,
    /// How they lie there: auto finds out
    #[arg(long, default_value = "auto", value_parser = named::<Layout>())]
    pub(crate) layout: Layout,
    /// Where to write the network
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// The cut up to which layers compute in int8; by default the last one before the classifier
    #[arg(long, value_name = "CUT")]
    pub(crate) freeze: Option<String>,
    /// Write int8 in any case, or with auto the network as it is where int8 is not a tenth faster here or too coarse
    #[arg(long, default_value = "int8", value_parser = named::<PrefixPrecision>())]
    pub(crate) prefix_precision: PrefixPrecision,
    /// Take int8 also where activations agree less than 0.99 (cosine) with those in f32
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
