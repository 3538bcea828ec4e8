//! Arguments of `frostline extract`.

use super::features::FeatureCache;
use super::job::Inputs;
use clap::Args;
use frostline_job::flags::{GivenFlags, named, positive};
use frostline_job::{HostList, HostTerms, OnBadSample, PixelFlags};
use frostline_wire::Encoding;
use std::path::PathBuf;

/// Extract features of labeled images into an Arrow or Parquet file
///
/// The file contains a row per image, sorted by key. The columns are key, split (train, validation or test),
/// label (the class) and activation (a list of f32 with a fixed length). Split and label are null if the
/// location of the image does not determine them. The shape of the activations is stored in the metadata of
/// the field, as JSON. pyarrow, Hugging Face datasets, DuckDB, Lance and Polars can read these files. If the
/// command fails, no file is written.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline extract --model resnet18.onnx --data ./photos --cut layer4.0 --out features.parquet
  frostline extract --model resnet18.onnx --data s3://photos/clothing --host http://store:8080 --token-file token --out features.arrow
  duckdb -c \"select label, count(*) from 'features.parquet' group by label\"")]
pub(crate) struct Extract {
    #[command(flatten)]
    pub(crate) inputs: Inputs,
    /// Extract the output of this tensor or module, see `frostline model show`. Several names, separated by
    /// commas, are flattened and concatenated. The value output selects the output of a backbone without a
    /// classifier, with pooling for feature maps and tokens [default: the last cut before the classifier]
    #[arg(long, value_name = "CUT")]
    pub(crate) cut: Option<String>,
    /// Output file: .arrow (Arrow's file format) or .parquet
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Read labels and splits from this CSV file, with a column of keys and a column of classes like in
    /// train. Other images get no label and no split
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
    /// Images per batch, and rows per record batch in the file
    #[arg(long, default_value_t = 64, value_parser = positive)]
    pub(crate) batch: usize,
    /// Encoding of activations on the network: f32, f16 or int8, optionally with +lz4 or +zstd for
    /// compression. The file always contains f32
    #[arg(long, default_value = "f32")]
    pub(crate) encoding: Encoding,
    /// Action if an image fails to decode
    #[arg(long, default_value = "fail", value_parser = named::<OnBadSample>())]
    pub(crate) on_bad_sample: OnBadSample,
    /// Maximum number of images per request to the host
    #[arg(long, default_value_t = 32, value_parser = positive)]
    pub(crate) request_samples: usize,
    /// Use this guest (a component or a core module) instead of the stock one
    #[arg(long, value_name = "FILE")]
    pub(crate) guest: Option<PathBuf>,
    /// Text passed to the guest unchanged. The stock guest expects a preprocessing recipe as JSON
    #[arg(long, value_name = "TEXT")]
    pub(crate) parameters: Option<String>,
    /// Device of the embedded host (cpu or cuda:0)
    #[arg(long, value_name = "DEVICE", default_value = "cpu", conflicts_with = "host")]
    pub(crate) device: String,
    #[command(flatten)]
    pub(crate) cache: FeatureCache,
    #[command(flatten)]
    pub(crate) pixels: GivenFlags<PixelFlags>,
    #[command(flatten)]
    pub(crate) terms: GivenFlags<HostTerms>,
    #[command(flatten)]
    pub(crate) host: HostList,
}
