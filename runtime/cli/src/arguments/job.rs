//! Commands on a network and images, and the flags they share.

use super::host::HostFlags;
use super::sweep::Sweep;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use frostline_client::Part;
use frostline_job::flags::{Given, named, positive};
use frostline_job::{HostList, JobSpec, OnBadSample, PixelFlags, Unlisted};
use frostline_wire::Layout;
use std::path::PathBuf;

/// Fine-tune a model on a folder or bucket of labeled images
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
    pub(crate) job: JobFlags,
    /// Train with each of several values of a setting of the recipe, or of freeze, as in lr=0.1,0.03,0.01; several of these flags try every combination. The frozen
    /// layers run once for all of them, as their rows are kept; the best model is the one that is written
    #[arg(long, value_name = "SETTING=VALUES", conflicts_with_all = ["resume", "dry_run"])]
    pub(crate) sweep: Vec<Sweep>,
    /// Print the job with all its defaults, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Where runs are kept, each in a folder of its own with its settings, events, checkpoints and model
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub(crate) runs: PathBuf,
    /// Resume this run, a folder, from its newest checkpoint; without a folder, the newest unfinished one. Other flags need not be given again; one
    /// that makes it another job is refused. With --model and --data, and no folder, the newest unfinished run that is this job
    #[arg(long, value_name = "RUN", num_args = 0..=1)]
    #[allow(clippy::option_option)]
    pub(crate) resume: Option<Option<PathBuf>>,
}

/// A job: what is not given, the files say, or its default holds.
#[derive(Debug, Args)]
pub(crate) struct JobFlags {
    /// Take the job from a file, as --dry-run prints it, or from the config.json of a run; flags come before it
    #[arg(long = "job", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Take the recipe from a TOML file with these flags' names (underscores for hyphens), or from the config.json of a run; flags come before it
    #[arg(long, value_name = "FILE", help_heading = "Recipe")]
    pub(crate) recipe: Option<PathBuf>,
    /// Start from the model of this run and keep its classifier (--head keep): classes that it knows keep their weights, whatever their order
    #[arg(long, value_name = "RUN", conflicts_with_all = ["model", "file"])]
    pub(crate) init_from: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) given: Given<JobSpec>,
}

/// Show where a job would split the network, and why
///
/// Measures host, trainer and link unless that was done before, and predicts the time of an iteration at every split.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline plan --model resnet18.onnx --freeze layer4.0 --data s3://photos/clothing --host http://store:8080 --token-file token
  frostline plan --model resnet18.onnx --data ./photos --json > measured.json
  frostline plan --simulate measured.json --policy hapi-time --link-bytes-per-second 12500000 --plot speed-up.svg")]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) job: JobFlags,
    /// Plan on measurements from a JSON file, such as this command prints with --json, without host or data; what the file says, such
    /// as the batch, cannot be said by flags
    #[arg(long, value_name = "FILE", conflicts_with = "recipe")]
    pub(crate) simulate: Option<PathBuf>,
    /// Consider only these splits
    #[arg(long, value_name = "CUTS", value_delimiter = ',')]
    pub(crate) candidates: Vec<String>,
    /// Draw the best split's speed-up over the split none, for links of 1 Mbit/s to 10 Gbit/s, into this SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

/// Evaluate a model on labeled images
///
/// Measures what training held out, else the validation/, test/ or train/ part of the data, the first that is there, else all of it: accuracy, top-5 accuracy, and for each class precision,
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
    /// Measure this part of the data
    #[arg(long, value_name = "PART", value_parser = part())]
    pub(crate) part: Option<Part>,
    /// Take the labels from this CSV file, as train does
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
    /// What to do about images that the table has no line for, as in train
    #[arg(long, default_value = "fail", value_parser = named::<Unlisted>())]
    pub(crate) unlisted: Unlisted,
    /// Images per forward pass
    #[arg(long, default_value_t = 64, value_parser = positive)]
    pub(crate) batch: usize,
    /// What to do about an image that cannot be decoded
    #[arg(long, default_value = "fail", value_parser = named::<OnBadSample>())]
    pub(crate) on_bad_sample: OnBadSample,
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
    pub(crate) pixels: Given<PixelFlags>,
    #[command(flatten)]
    pub(crate) compute: Compute,
    #[command(flatten)]
    pub(crate) host: HostList,
}

/// Classify images on this machine
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
    pub(crate) pixels: Given<PixelFlags>,
    #[command(flatten)]
    pub(crate) compute: Compute,
}

/// Profile a network: bytes, compute and memory at each cut
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
    pub(crate) pixels: Given<PixelFlags>,
    #[command(flatten)]
    pub(crate) host: HostFlags,
}

fn part() -> impl TypedValueParser<Value = Part> {
    PossibleValuesParser::new(Part::ALL.map(Part::name)).try_map(|name| {
        let mut all = Part::ALL.into_iter();
        all.find(|part| part.name() == name)
            .ok_or("not a part of the data")
    })
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
    #[arg(long, default_value = "auto", value_parser = named::<Layout>())]
    pub(crate) layout: Layout,
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
