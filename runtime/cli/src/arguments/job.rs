//! Commands on a network and images, and the flags they share.

use super::augment::AugmentFlags;
use super::features::{FeatureFlags, TeamFlags};
use super::host::{HostFlags, HostsFlags};
use super::recipe::RecipeFlags;
use super::run::RunFlags;
use super::sweep::Sweep;
use super::value::{BadSample, EncodingChoice, LayoutName, above_zero, encoding, positive};
use clap::{Args, ValueEnum};
use frostline_trainer::{Policy, Unfreezing};
use frostline_wire::{Precision, Terms};
use std::path::PathBuf;

/// Fine-tune a model on a folder or bucket of labelled images
///
/// The data are laid out as train/<class>/*.jpg and validation/<class>/*.jpg, or as <class>/*.jpg together with --validation, or
/// in tar shards (train-*.tar and val-*.tar) with a .cls file beside each image. A table labels.csv says classes, several labels
/// or numbers instead.
/// Without --host, a storage host is started inside this process on a loopback port.
/// Ctrl-C ends it after the step under way, with a checkpoint and the best model so far; a second one ends it at once.
/// It trains on this machine alone. Several trainers are the Python package's: `pip install frostline`, then frostline.torch in each worker of
/// Ray Train or PyTorch's DistributedDataParallel, on the same hosts.
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
pub(crate) struct Train {
    #[command(flatten)]
    pub(crate) inputs: Inputs,
    #[command(flatten)]
    pub(crate) training: Training,
    /// Where to divide the network between host and trainer: auto, none, input, a cut at or before the freeze cut, or a rule as for
    /// `frostline plan --policy`
    #[arg(long, value_name = "CUT", default_value = "auto")]
    pub(crate) split: Policy,
    /// Write the tuned model here too, beside the run's folder
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Train with each of several values of lr, weight_decay or seed, as in lr=0.1,0.03,0.01; several of these flags try every combination. The frozen
    /// layers run once for all of them, as their rows are kept; the best model is the one that is written
    #[arg(long, value_name = "SETTING=VALUES", conflicts_with_all = ["resume", "dry_run"])]
    pub(crate) sweep: Vec<Sweep>,
    /// Print the job with all its defaults, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
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
    pub(crate) features: FeatureFlags,
    #[command(flatten)]
    pub(crate) team: TeamFlags,
    #[command(flatten)]
    pub(crate) terms: Runs,
    #[command(flatten)]
    pub(crate) run: RunFlags,
    #[command(flatten)]
    pub(crate) compute: Compute,
    #[command(flatten)]
    pub(crate) host: HostsFlags,
}

/// Flags of `plan` that say what is measured and how, which a file of measurements says itself.
const MEASURED: [&str; 18] = [
    "model",
    "data",
    "layout",
    "freeze",
    "unfreeze",
    // Groups of clap, which are empty where their flags are divided further.
    "RecipeFlags",
    "AugmentFlags",
    "encoding",
    "labels",
    "validation",
    "fixed_batch",
    "shared_runs",
    "priority",
    "precision",
    "device",
    "threads",
    "host",
    "token_file",
];

/// Show where a job would divide the network, and why
///
/// Measures host, trainer and link unless that was done before, and predicts the time of an iteration at every split.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline plan --model resnet18.onnx --freeze layer4.0 --data s3://photos/clothing --host http://store:8080 --token-file token
  frostline plan --model resnet18.onnx --data ./photos --json > measured.json
  frostline plan --simulate measured.json --policy hapi-time --link-bytes-per-second 12500000 --plot speed-up.svg")]
pub(crate) struct Plan {
    /// The pretrained network, an ONNX classifier
    #[arg(long, value_name = "FILE", required_unless_present = "simulate")]
    pub(crate) model: Option<PathBuf>,
    /// Where the images are: a path, file://, s3://bucket/prefix, gs://, az:// or https://
    #[arg(long, value_name = "URL", required_unless_present = "simulate")]
    pub(crate) data: Option<String>,
    /// How they lie there: auto finds out
    #[arg(long, value_enum, default_value_t = LayoutName::Auto)]
    pub(crate) layout: LayoutName,
    #[command(flatten)]
    pub(crate) training: Training,
    /// The rule that chooses: auto, freeze, none, hapi-size, hapi-time, or a split
    #[arg(long, value_name = "RULE", default_value = "auto")]
    pub(crate) policy: Policy,
    /// Plan on measurements from a JSON file, such as this command prints with --json, without host or data; what the file says, such
    /// as the batch, cannot be said by flags
    #[arg(long, value_name = "FILE", conflicts_with_all = MEASURED)]
    pub(crate) simulate: Option<PathBuf>,
    /// Consider only these splits
    #[arg(long, value_name = "CUTS", value_delimiter = ',')]
    pub(crate) candidates: Vec<String>,
    /// Take this for the link instead of what was measured
    #[arg(long, value_name = "NUMBER", value_parser = above_zero)]
    pub(crate) link_bytes_per_second: Option<f64>,
    /// Draw the best split's speed-up over the split none, for links of 1 Mbit/s to 10 Gbit/s, into this SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) features: FeatureFlags,
    #[command(flatten)]
    pub(crate) runs: Runs,
    #[command(flatten)]
    pub(crate) compute: Compute,
    #[command(flatten)]
    pub(crate) host: HostsFlags,
}

/// Measure how well a model does on labelled images
///
/// Measures the validation/ part of the data if there is one, else all of it: accuracy, top-5 accuracy, and for each class precision,
/// recall and F1, with what was confused with what; for several labels F1 and average precision, for numbers MAE, RMSE and R2.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline eval --model tuned.onnx --data ./photos
  frostline eval --model tuned.onnx --data s3://photos/clothing --host http://store:8080 --token-file token --predictions predictions.csv
  frostline eval --model tuned.onnx --data ./scans --guest own_pixels.wasm")]
pub(crate) struct Eval {
    #[command(flatten)]
    pub(crate) inputs: Inputs,
    /// Take the labels from this CSV file, as train does
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
    /// Images per forward pass
    #[arg(long, default_value_t = 64, value_parser = positive)]
    pub(crate) batch: usize,
    /// What to do about an image that cannot be decoded
    #[arg(long, value_enum, default_value_t = BadSample::Fail)]
    pub(crate) on_bad_sample: BadSample,
    /// Write what the model says of each image into this CSV file: key,label,predicted,probability,rank, where the rank is that of the
    /// label among the outputs, from 1; for several labels or numbers label:NAME, predicted:NAME and, for labels, probability:NAME
    #[arg(long, value_name = "FILE")]
    pub(crate) predictions: Option<PathBuf>,
    /// The guest the model was trained with, where that makes the network's input in its own way
    #[arg(long, value_name = "FILE")]
    pub(crate) guest: Option<PathBuf>,
    /// Text passed to the guest as it is; by default what it was told for training
    #[arg(long, value_name = "TEXT", requires = "guest")]
    pub(crate) parameters: Option<String>,
    #[command(flatten)]
    pub(crate) compute: Compute,
    #[command(flatten)]
    pub(crate) host: HostsFlags,
}

/// Tell what a model says of images on this machine
///
/// Runs here, without a host. Prints a line an image: the likeliest classes with their probabilities, or yes or no to each label, or the
/// numbers. An image that cannot be used is named on standard error, the others go on, and the exit code is 1 in the end.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline predict --model tuned.onnx cat.jpg dog.png
  frostline predict --model tuned.onnx ./photos --top 1
  frostline predict --model tuned.onnx ./photos --json > said.jsonl")]
pub(crate) struct Predict {
    /// Images, and folders whose images are taken, with those of the folders in them, in the order of their names
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// The network, usually one that `frostline train` wrote; classes of one that does not name them are called output 0, output 1, ..
    #[arg(long, value_name = "FILE")]
    pub(crate) model: PathBuf,
    /// Classes to tell of an image, the likeliest ones
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = positive)]
    pub(crate) top: usize,
    /// Images per forward pass. Fewer are filled up, so that an image's figures do not depend on the others; 1 is the fastest for a single one
    #[arg(long, default_value_t = 16, value_parser = positive)]
    pub(crate) batch: usize,
    #[command(flatten)]
    pub(crate) compute: Compute,
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
    #[command(flatten)]
    pub(crate) inputs: Inputs,
    /// The last cut to measure; by default the last cut before the classifier
    #[arg(long, value_name = "CUT")]
    pub(crate) freeze: Option<String>,
    /// Draw the bytes and the compute up to each cut into this SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Where the embedded host computes: cpu or cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "cpu", conflicts_with = "host")]
    pub(crate) device: String,
    #[command(flatten)]
    pub(crate) host: HostFlags,
}

/// A network, and the images it is trained on or measured with.
#[derive(Debug, Args)]
pub(crate) struct Inputs {
    /// The network, an ONNX classifier
    #[arg(long, value_name = "FILE")]
    pub(crate) model: PathBuf,
    /// Where the images are: a path, file://, s3://bucket/prefix, gs://, az:// or https://
    #[arg(long, value_name = "URL")]
    pub(crate) data: String,
    /// How they lie there: auto finds out
    #[arg(long, value_enum, default_value_t = LayoutName::Auto)]
    pub(crate) layout: LayoutName,
}

/// What of a job its plan depends on as well.
#[derive(Debug, Args)]
pub(crate) struct Training {
    /// Freeze the network up to this cut and train what follows; by default the last cut before the classifier. A cut is named by its
    /// tensor or by the module whose output it is, as `frostline model show` lists them. none freezes nothing: the whole network is
    /// trained, and hosts only decode
    #[arg(long, value_name = "CUT")]
    pub(crate) freeze: Option<String>,
    /// Freeze less from later epochs on, as in 3=layer4,6=layer3: from that epoch the network is frozen up to that earlier cut, or not at all
    /// (none), and the split follows
    #[arg(long, value_name = "EPOCH=CUT,..")]
    pub(crate) unfreeze: Option<Unfreezing>,
    /// How activations travel: auto, or f32, u8 (pixels, for the split input, exact there), f16 or int8, each with +lz4 or +zstd
    /// to compress them. auto never takes int8, which loses the most
    #[arg(long, default_value = "auto", value_parser = encoding)]
    pub(crate) encoding: EncodingChoice,
    /// Take the labels from this CSV file: keys of images below --data, then a column with classes, or with --loss bce a column of 0 and 1 for each
    /// label, or with --loss mse columns of numbers; by default from labels.csv beside the data, or from folders or shards where there is none
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
    /// Share of each class to validate with (0 to 1), for data without train/ and validation/
    #[arg(long, value_name = "SHARE")]
    pub(crate) validation: Option<f64>,
    #[command(flatten)]
    pub(crate) recipe: RecipeFlags,
    #[command(flatten)]
    pub(crate) augment: AugmentFlags,
}

/// How the job's runs stand to other work on the hosts.
#[derive(Debug, Args)]
pub(crate) struct Runs {
    /// Run the layers on the hosts in batches of just so many images, padded where there are fewer and never joined with others, so that
    /// activations come out bit for bit the same every time; by default the host chooses
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with = "shared_runs")]
    pub(crate) fixed_batch: Option<usize>,
    /// Let the hosts run images of this job together with images of other tenants that allow it too
    #[arg(long)]
    pub(crate) shared_runs: bool,
    /// Orders your own jobs on a host: what has more goes first (-100 to 100); it changes nothing for other tenants
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,
    /// How exactly hosts with a GPU have to compute: tf32 is faster on recent NVIDIA GPUs and keeps 11 bits of what it multiplies, so losses
    /// depend on where the network is divided. Hosts without a GPU compute in full
    #[arg(long, value_enum, default_value_t = PrecisionName::Full)]
    pub(crate) precision: PrecisionName,
}

/// The values of `--precision`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum PrecisionName {
    Full,
    Tf32,
}

impl Runs {
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            priority: self.priority,
            fixed_batch: self.fixed_batch,
            shared_runs: self.shared_runs,
            precision: match self.precision {
                PrecisionName::Full => Precision::Full,
                PrecisionName::Tf32 => Precision::Tf32,
            },
        }
    }
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
