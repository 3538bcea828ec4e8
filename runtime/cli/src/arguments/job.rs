//! Arguments of the commands that need a network and images.

use super::features::CacheFlags;
use super::host::HostFlags;
use super::interface::InterfaceFlags;
use super::sweep::Sweep;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use frostline_client::Part;
use frostline_job::flags::{GivenFlags, named, positive};
use frostline_job::{HostList, HostTerms, JobSpec, OnBadSample, PixelFlags, Unlisted};
use frostline_trainer::{Guest, TrainerError};
use frostline_wire::{Encoding, Layout};
use std::path::PathBuf;

/// Fine-tune a model on a folder or bucket of labeled images
///
/// The images are stored as train/<class>/*.jpg and validation/<class>/*.jpg, as <class>/*.jpg in combination
/// with --validation, or in tar shards (train-*.tar and val-*.tar) with a .cls file for each image.
/// Alternatively, a table labels.csv contains classes, multiple labels per image, or numbers. Without --host,
/// a storage host is started inside this process on a loopback port. Ctrl-C stops the job after the current
/// step and writes a checkpoint and the best model so far. Another Ctrl-C, at least a second later, ends the
/// job immediately. Closing the terminal acts like the first Ctrl-C, except under nohup. The command trains on
/// this machine only. For training on several machines, install the Python package (`pip install frostline`)
/// and use frostline.torch in the workers of Ray Train or PyTorch's DistributedDataParallel, with the same
/// hosts.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline train --model resnet18.onnx --data ./photos --sweep lr=0.1,0.03,0.01 --sweep seed=0,1 --out best.onnx
  frostline train --model squeezenet1_1.onnx --data ./photos --freeze 52 --out tuned.onnx
  frostline train --model resnet18.onnx --data s3://photos/clothing --host http://store:8080 --token-file token \\
      --freeze layer4.0 --epochs 20 --batch 64 --out tuned.onnx
  frostline train --model resnet18.onnx --data ./xrays --labels findings.csv --loss bce --validation 0.2 --out tuned.onnx
  frostline train --model resnet18.onnx --data s3://photos/clothing --host http://store-1:8080 --host http://store-2:8080 \\
      --token-file token --freeze layer4.0 --out tuned.onnx
  frostline train --resume runs/20261123-101500-resnet18     # where Ctrl-C, a kill or an error ended it")]
pub(crate) struct TrainFlags {
    #[command(flatten)]
    pub(crate) job: JobFlags,
    /// Try several values for a setting of the recipe or for freeze, such as lr=0.1,0.03,0.01. Repeat the
    /// flag to try all combinations. The frozen layers run only once, because the features are cached. The
    /// best model is written
    #[arg(long, value_name = "SETTING=VALUES", conflicts_with_all = ["resume", "dry_run"])]
    pub(crate) sweep: Vec<Sweep>,
    /// Print the job with all defaults and exit
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Folder for runs. Each run gets a new folder with settings, events, checkpoints and the model
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub(crate) runs: PathBuf,
    /// Resume the run in this folder from the newest checkpoint. Without a folder, resume the newest
    /// unfinished run. Other flags are not needed, and flags that would change the job are refused. With
    /// --model and --data but no folder, resume the newest unfinished run of the same job
    #[arg(long, value_name = "RUN", num_args = 0..=1)]
    #[allow(clippy::option_option)]
    pub(crate) resume: Option<Option<PathBuf>>,
}

/// Settings of a job. Flags override files, and files override defaults.
#[derive(Debug, Args)]
pub(crate) struct JobFlags {
    /// Read the job from a file printed by --dry-run, or from the config.json of a run. Flags override the
    /// file
    #[arg(long = "job", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Read the recipe from a TOML file (with the flag names as keys, and underscores instead of hyphens) or
    /// from the config.json of a run. Flags override the file
    #[arg(long, value_name = "FILE", help_heading = "Recipe")]
    pub(crate) recipe: Option<PathBuf>,
    /// Start from the model of this run and keep the classifier (--head keep). Known classes keep their
    /// weights in any order
    #[arg(long, value_name = "RUN", conflicts_with_all = ["model", "file"])]
    pub(crate) init_from: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) given: GivenFlags<JobSpec>,
}

/// Show the best split of a job and the reason
///
/// Measures host, trainer and link if no measurements are available, and predicts the time of an iteration
/// for each split.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline plan --model resnet18.onnx --freeze layer4.0 --data s3://photos/clothing --host http://store:8080 --token-file token
  frostline plan --model resnet18.onnx --data ./photos --json > measured.json
  frostline plan --simulate measured.json --policy hapi-time --link-bytes-per-second 12500000 --plot speed-up.svg")]
pub(crate) struct PlanFlags {
    #[command(flatten)]
    pub(crate) job: JobFlags,
    /// Plan with measurements from a JSON file (see --json) without host or data. Settings in the file, such
    /// as the batch, cannot be changed by flags
    #[arg(long, value_name = "FILE", conflicts_with = "recipe")]
    pub(crate) simulate: Option<PathBuf>,
    /// Only consider these splits, separated by commas. If a cut contains several tensors, separate the splits by
    /// semicolons: "none;layer2,layer3;layer4"
    #[arg(long, value_name = "CUTS")]
    pub(crate) candidates: Vec<String>,
    /// Draw the speed-up of the best split over the split none, for links from 1 Mbit/s to 10 Gbit/s, to this
    /// SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

/// Evaluate a model on labeled images
///
/// Uses the images held out by training. Otherwise, uses the first part that exists of validation/, test/ and
/// train/, or else all data. For classes, prints accuracy, top-5 accuracy, precision, recall and F1 for each
/// class, and the most frequent confusions. For multiple labels, prints F1 and average precision. For
/// numbers, prints MAE, RMSE and R2.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline eval --model tuned.onnx --data ./photos
  frostline eval --model tuned.onnx --data s3://photos/clothing --host http://store:8080 --token-file token --predictions predictions.csv
  frostline eval --model tuned.onnx --data ./scans --guest own_pixels.wasm")]
pub(crate) struct EvalFlags {
    #[command(flatten)]
    pub(crate) inputs: Inputs,
    /// Measure this part of the data
    #[arg(long, value_name = "PART", value_parser = part())]
    pub(crate) part: Option<Part>,
    /// Read the labels from this CSV file, in the same format as in train
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
    /// Action if the table has no line for an image, see train
    #[arg(long, default_value = "fail", value_parser = named::<Unlisted>())]
    pub(crate) unlisted: Unlisted,
    /// Number of images per forward pass
    #[arg(long, default_value_t = 64, value_parser = positive)]
    pub(crate) batch: usize,
    /// Action if an image fails to decode
    #[arg(long, default_value = "fail", value_parser = named::<OnBadSample>())]
    pub(crate) on_bad_sample: OnBadSample,
    /// Write the predictions to this CSV file with the columns key, label, predicted, probability and rank.
    /// The rank is the position of the label among the outputs, starting at 1. For multiple labels or
    /// numbers, the columns are label:NAME, predicted:NAME and, for labels, probability:NAME
    #[arg(long, value_name = "FILE")]
    pub(crate) predictions: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) guest: TrainedGuest,
    #[command(flatten)]
    pub(crate) pixels: GivenFlags<PixelFlags>,
    #[command(flatten)]
    pub(crate) compute: Compute,
    #[command(flatten)]
    pub(crate) host: HostList,
}

/// Classify images on this machine
///
/// Runs without a storage host. Prints a line for each image, which contains the most likely classes and
/// probabilities, the decision for each label, or the predicted numbers. Unusable images are reported on
/// standard error and skipped. In this case, the exit code is 1. A guest reads all files of a folder.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline predict --model tuned.onnx cat.jpg dog.png
  frostline predict --model tuned.onnx ./photos --top 1
  frostline predict --model tuned.onnx ./photos --json > said.jsonl
  frostline predict --model tuned.onnx ./texts --guest tokens.wasm")]
pub(crate) struct PredictFlags {
    /// Images, or folders to search recursively in order of file names
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// ONNX file of the network, usually written by `frostline train`. Classes without names are called
    /// output 0, output 1, ..
    #[arg(long, value_name = "FILE")]
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) interface: InterfaceFlags,
    /// Number of most likely classes to print for each image
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = positive)]
    pub(crate) top: usize,
    /// Number of images per forward pass. Incomplete batches are padded, so that results do not depend on the
    /// other images. Use 1 for the fastest result for a single image
    #[arg(long, default_value_t = 16, value_parser = positive)]
    pub(crate) batch: usize,
    #[command(flatten)]
    pub(crate) guest: TrainedGuest,
    #[command(flatten)]
    pub(crate) pixels: GivenFlags<PixelFlags>,
    /// Maximum number of pixels of an image (width times height) [default: 268435456, for photos of 200
    /// megapixels]
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) image_pixels: Option<u64>,
    #[command(flatten)]
    pub(crate) compute: Compute,
}

/// Profile the bytes, compute and memory at each cut of a network
///
/// Measures each candidate cut on the host with some of the images, and prints the bytes per image, the
/// compute time up to the cut and the memory usage. Without --host, a storage host is started inside this
/// process.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline profile --model resnet18.onnx --data ./photos --plot resnet18.svg
  frostline profile --model resnet18.onnx --freeze layer4.0 --data s3://photos/clothing --host http://store:8080 --token-file token")]
pub(crate) struct ProfileFlags {
    #[command(flatten)]
    pub(crate) inputs: Inputs,
    /// Last cut to measure [default: the last cut before the classifier]
    #[arg(long, value_name = "CUT")]
    pub(crate) freeze: Option<String>,
    /// Draw the bytes and the compute time up to each cut to this SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Device of the embedded host (cpu or cuda:0)
    #[arg(long, value_name = "DEVICE", default_value = "cpu", conflicts_with = "host")]
    pub(crate) device: String,
    #[command(flatten)]
    pub(crate) pixels: GivenFlags<PixelFlags>,
    #[command(flatten)]
    pub(crate) host: HostFlags,
}

/// Extract features of labeled images into an Arrow or Parquet file
///
/// The file contains a row per image, sorted by key. The columns are key, split (train, validation or test),
/// label (the class) and activation (a list of f32 with a fixed length). Split and label are null if the
/// location of the image does not determine them. The shape of the activations is stored in the metadata of
/// the field, as JSON. A cut through several tensors has a column activation/NAME for each of them, and columns of
/// integers contain integers. pyarrow, Hugging Face datasets, DuckDB, Lance and Polars can read these files. If the
/// command fails, no file is written.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline extract --model resnet18.onnx --data ./photos --cut layer4.0 --out features.parquet
  frostline extract --model resnet18.onnx --data s3://photos/clothing --host http://store:8080 --token-file token --out features.arrow
  duckdb -c \"select label, count(*) from 'features.parquet' group by label\"")]
pub(crate) struct ExtractFlags {
    #[command(flatten)]
    pub(crate) inputs: Inputs,
    /// Extract the output of this tensor or module, see `frostline model show`. Several names are separated by
    /// commas. The value output selects the output of a backbone without a
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
    pub(crate) cache: CacheFlags,
    #[command(flatten)]
    pub(crate) pixels: GivenFlags<PixelFlags>,
    #[command(flatten)]
    pub(crate) terms: GivenFlags<HostTerms>,
    #[command(flatten)]
    pub(crate) host: HostList,
}

fn part() -> impl TypedValueParser<Value = Part> {
    PossibleValuesParser::new(Part::ALL.map(Part::name)).try_map(|name| {
        let mut all = Part::ALL.into_iter();
        all.find(|part| part.name() == name).ok_or("unknown part")
    })
}

/// A network and the images for training or evaluation.
#[derive(Debug, Args)]
pub(crate) struct Inputs {
    /// ONNX file of a classifier
    #[arg(long, value_name = "FILE")]
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) interface: InterfaceFlags,
    /// Location of the images (path, file://, s3://bucket/prefix, gs://, az:// or https://)
    #[arg(long, value_name = "URL")]
    pub(crate) data: String,
    /// Layout of the images (auto detects the layout)
    #[arg(long, default_value = "auto", value_parser = named::<Layout>())]
    pub(crate) layout: Layout,
}

/// Guest of a trained model.
#[derive(Debug, Args)]
pub(crate) struct TrainedGuest {
    /// Guest used in training, required if it computes the network's input differently
    #[arg(long, value_name = "FILE")]
    guest: Option<PathBuf>,
    /// Text passed to the guest unchanged [default: the text from training]
    #[arg(long, value_name = "TEXT", requires = "guest")]
    parameters: Option<String>,
}

impl TrainedGuest {
    /// Reads the guest, if one is set.
    pub(crate) fn read(&self) -> Result<Option<Guest>, TrainerError> {
        let file = self.guest.as_deref();
        let guest = file.map(|file| Guest::read(Some(file), self.parameters.as_deref()));
        guest.transpose()
    }
}

/// Compute resources of the trainer.
#[derive(Debug, Args)]
pub(crate) struct Compute {
    /// Device of the trainer (cpu or cuda:0)
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub(crate) device: String,
    /// Number of compute threads of the trainer (0 uses all cores)
    #[arg(long, default_value_t = 0)]
    pub(crate) threads: usize,
}
