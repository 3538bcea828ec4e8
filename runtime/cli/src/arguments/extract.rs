//! `frostline extract`.

use super::features::FeatureCache;
use super::job::Inputs;
use clap::Args;
use frostline_job::flags::{Given, named, positive};
use frostline_job::{HostList, HostTerms, OnBadSample, PixelFlags};
use frostline_wire::Encoding;
use std::path::PathBuf;

/// Extract features of labeled images into an Arrow or Parquet file
///
/// One row an image, ascending by its key: key, split (train, validation or test) and label (its class), null where its place says none, and
/// activation, all of its f32 in a list of fixed length; their shape is in the field's metadata, as JSON.
/// pyarrow, Hugging Face datasets, DuckDB, Lance and Polars read such files. The file is written whole or not at all.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline extract --model resnet18.onnx --data ./photos --cut layer4.0 --out features.parquet
  frostline extract --model resnet18.onnx --data s3://photos/clothing --host http://store:8080 --token-file token --out features.arrow
  duckdb -c \"select label, count(*) from 'features.parquet' group by label\"")]
pub(crate) struct Extract {
    #[command(flatten)]
    pub(crate) inputs: Inputs,
    /// Where the activations are taken: a tensor, or a module as `frostline model show` lists it; by default the last cut before the
    /// classifier. output: the features that a backbone without a classifier ends in, pooled where those are feature maps or tokens
    #[arg(long, value_name = "CUT")]
    pub(crate) cut: Option<String>,
    /// The file to write: .arrow (Arrow's file format) or .parquet
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Take label and split from this CSV file, a column of keys and one of classes, as train does: images without a line have none
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
    /// Images asked for together, and rows of a record batch
    #[arg(long, default_value_t = 64, value_parser = positive)]
    pub(crate) batch: usize,
    /// How activations travel: f32, f16 or int8, each with +lz4 or +zstd to compress them; they are written as f32
    #[arg(long, default_value = "f32")]
    pub(crate) encoding: Encoding,
    /// What to do about an image that cannot be decoded
    #[arg(long, default_value = "fail", value_parser = named::<OnBadSample>())]
    pub(crate) on_bad_sample: OnBadSample,
    /// Images per request to the host, at most
    #[arg(long, default_value_t = 32, value_parser = positive)]
    pub(crate) request_samples: usize,
    /// Use this guest (a component or a core module) instead of the stock one
    #[arg(long, value_name = "FILE")]
    pub(crate) guest: Option<PathBuf>,
    /// Text passed to the guest as it is; the stock guest takes a preprocessing recipe as JSON
    #[arg(long, value_name = "TEXT")]
    pub(crate) parameters: Option<String>,
    /// Where the embedded host computes: cpu or cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "cpu", conflicts_with = "host")]
    pub(crate) device: String,
    #[command(flatten)]
    pub(crate) cache: FeatureCache,
    #[command(flatten)]
    pub(crate) pixels: Given<PixelFlags>,
    #[command(flatten)]
    pub(crate) terms: Given<HostTerms>,
    #[command(flatten)]
    pub(crate) host: HostList,
}
