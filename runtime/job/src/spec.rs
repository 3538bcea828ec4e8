#[cfg(feature = "flags")]
use crate::flags::{above_zero, named, positive};
use crate::setting::settings;
use crate::{
    CacheLimit, Class, Conflict, EncodingChoice, ExportPrefix, Keep, NewHead, Objective, OnBadSample,
    PixelFlags, Policy, PrefixPrecision, Prices, Recipe, Setting, SettingError, Unfreezing, Unlisted,
};
use frostline_tensor::{Layout, Precision, Terms, without_secrets};
use frostline_wire::Split;
use serde_json::{Map, Value};
use std::fs;
use std::path::{Path, PathBuf, absolute};

settings! {
    /// Settings of a fine-tuning job. `frostline train` has a flag for each setting.
    JobSpec {
        /// The network, an ONNX classifier
        Place model: Option<PathBuf> = None => arg(long, value_name = "FILE");
        /// SHA-256 of the network. Set when the job is recorded
        Identity model_sha256: Option<String> = None => arg(skip);
        /// Location of the images. Supports local paths, file://, s3://bucket/prefix, gs://, az:// and
        /// https://
        Identity data: String = String::new() => arg(long, value_name = "URL");
        /// Layout of the images. auto detects the layout
        Identity layout: Layout = Layout::Auto => arg(long, value_parser = named::<Layout>());
        /// Classifier to train. replace: the network's classifier with new weights. keep: the classifier of a
        /// tuned model, with its weights for known classes and new weights for new classes. linear: a new
        /// linear classifier on the features at the end of the network (pooled if these are feature maps or
        /// tokens)
        Identity head: NewHead = NewHead::Replace => arg(long, value_parser = named::<NewHead>());
        /// Image side in pixels, for networks that support any size
        Identity image_size: Option<usize> = None => arg(long, value_name = "PIXELS", value_parser = positive);
        /// Output to use, for networks with several outputs. Layers and inputs that only other outputs need are
        /// removed
        Identity output: Option<String> = None => arg(long, value_name = "NAME");
        /// Freeze the network up to this cut and train the remaining layers. The default is the last cut
        /// before the classifier. Cuts are named by tensor or module, as listed by frostline model show. Several
        /// names, separated by commas, are one cut through several tensors, for example for skip connections.
        /// With none, the whole network is trained and hosts only decode images
        Identity freeze: Option<String> = None => arg(long, value_name = "CUT");
        /// Move the freeze cut to an earlier layer at the start of an epoch, as in 3=layer4,6=layer3. none
        /// trains the whole network. The split is updated accordingly
        Identity unfreeze: Unfreezing = Unfreezing::default() => arg(long, value_name = "EPOCH=CUT,..");
        /// Precision of the frozen layers. int8 reduces CPU time to between a quarter and a half. auto
        /// selects int8 if its cosine similarity to f32 is at least 0.99 and it is at least 1.1 times as fast
        /// on this machine. int8 is calibrated on training images
        Identity prefix_precision: PrefixPrecision = PrefixPrecision::F32 => arg(long, value_parser = named::<PrefixPrecision>());
        /// Accept int8 with a cosine similarity to f32 below 0.99
        Identity allow_imprecise: bool = false
            => arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set);
        /// Precision of the frozen layers in the tuned model: f32, or int8 as computed in the job
        Free export_prefix: ExportPrefix = ExportPrefix::F32 => arg(long, value_parser = named::<ExportPrefix>());
        /// Encoding of activations: auto, f32, u8 (lossless for the split input), f16 or int8. Append +lz4 or
        /// +zstd for compression. auto never selects int8, which has the largest error
        Identity encoding: EncodingChoice = EncodingChoice::Auto => arg(long);
        /// Read labels from this CSV file. Column 1 contains image keys below --data. Column 2 contains
        /// classes. With --loss bce, each label has a column of 0 and 1. With --loss mse, the columns contain
        /// numbers. The default is labels.csv in the data root. If this file does not exist, folders or
        /// shards determine the classes
        Place labels: Option<PathBuf> = None => arg(long, value_name = "FILE");
        /// Policy for images without a line in the label file: fail rejects the data, skip excludes these
        /// images
        Identity unlisted: Unlisted = Unlisted::Fail => arg(long, value_parser = named::<Unlisted>());
        /// Fraction of each class for validation (0 to 1), if the data has no validation/ part
        Identity validation: Option<f64> = None => arg(long, value_name = "SHARE");
        /// Evaluate the tuned model on the test/ part of the data at the end of the job
        Free test: bool = false
            => arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set);
        /// Seed for selecting validation images. The default is --seed
        Identity validation_seed: Option<u64> = None => arg(long, value_name = "SEED");
        /// Split between host and trainer: auto, none, input, freeze, hapi-size, hapi-time, or a cut at or
        /// before the freeze cut
        Exact split: Policy = Policy::Auto => arg(long, alias = "policy", value_name = "CUT");
        /// Only consider these splits
        Exact candidates: Option<Vec<Split>> = None => arg(skip);
        /// Quantity that --split auto minimizes. cost requires --prices
        Exact objective: Objective = Objective::Time => arg(long, value_parser = named::<Objective>());
        /// Prices in any currency, as in host=0.05,trainer=0.20,gb=0.09: per hour and host core, per hour and
        /// trainer core, and per GB from host to trainer. Trainer cores (--threads) are paid for the whole
        /// job. Host cores are paid only for work on this job
        Exact prices: Option<Prices> = None => arg(long, value_name = "NAME=PRICE,..");
        /// Link throughput in bytes per second. Disables the measurement
        Free link_bytes_per_second: Option<f64> = None
            => arg(long, value_name = "NUMBER", value_parser = above_zero);
        /// Preprocessing of images
        Identity pixels: PixelFlags = PixelFlags::default() => command(flatten);
        /// Use this guest (a component or a core module) instead of the stock one
        Place guest: Option<PathBuf> = None => arg(long, value_name = "FILE");
        /// SHA-256 of the guest. Set when the job is recorded
        Identity guest_sha256: Option<String> = None => arg(skip);
        /// Text passed to the guest without changes. The stock guest expects a preprocessing recipe as JSON
        Identity parameters: Option<String> = None => arg(long, value_name = "TEXT");
        /// Policy for images that cannot be decoded: fail ends the job and reports the object, skip excludes
        /// the image
        Free on_bad_sample: OnBadSample = OnBadSample::Fail => arg(long, value_parser = named::<OnBadSample>());
        // A batch of the default size needs two requests, so hosts can decode and compute concurrently. A
        // lost request costs little.
        /// Maximum number of images per request
        Free request_samples: usize = 32 => arg(long, value_name = "N", value_parser = positive);
        // The host, the link and the queue can each contain a batch.
        /// Maximum number of batches extracted ahead of the training step
        Free prefetch: usize = 3 => arg(long, value_name = "N", value_parser = positive);
        /// Maximum number of open requests
        Free window: usize = 16 => arg(long, hide = true, value_name = "N", value_parser = positive);
        // Sufficient for three batches of 64 at a wide cut (3 MB per sample), with a factor of three.
        /// Memory limit in bytes for batches that are being fetched, waiting and being trained
        Free memory_bytes: u64 = 2 << 30 => arg(long, hide = true, value_name = "BYTES");
        /// Device for training, cpu or cuda:0
        Identity device: String = "cpu".to_owned() => arg(long, value_name = "DEVICE");
        /// Number of trainer threads. 0 uses all cores
        Exact threads: usize = 0 => arg(long, value_name = "N");
        /// Disk limit for cached features, or off. With cached features, the frozen layers run once per
        /// image. If space runs out, the features of the least recently used job are removed first [default:
        /// half of the free disk space]
        Free feature_cache: Option<CacheLimit> = None
            => arg(long, value_name = "SIZE|off", env = "FROSTLINE_FEATURE_CACHE", hide_env_values = true);
        /// Folder of cached features [default: frostline/features in the user's cache folder]
        Place feature_folder: Option<PathBuf> = None
            => arg(long, value_name = "DIRECTORY", env = "FROSTLINE_FEATURE_FOLDER", hide_env_values = true);
        /// Also write the tuned model to this file, in addition to the run folder
        Place out: Option<PathBuf> = None => arg(long, value_name = "FILE");
        /// Also write a checkpoint every N steps. By default, checkpoints are written after each epoch and
        /// every five minutes
        Free checkpoint_steps: Option<u64> = None
            => arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..));
        /// Which weights to write. best selects the best epoch on the validation images
        Free keep: Keep = Keep::Best => arg(long, value_parser = named::<Keep>());
        /// Stop if this number of epochs does not improve the validation result
        Free patience: Option<u32> = None
            => arg(long, value_name = "EPOCHS", value_parser = clap::value_parser!(u32).range(1..));
        /// Produce the same weights bit for bit on the same machine, even if the job is interrupted. The
        /// split is fixed for the whole job, and hosts run the layers in batches of a fixed size. The default
        /// of --fixed-batch is then 16 (32 with --device cuda:0)
        Identity reproducible: bool = false
            => arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set);
        /// Scheduling and precision on the hosts
        Identity terms: HostTerms = HostTerms::default() => command(flatten);
        /// Hosts of the job
        Place hosts: HostList = HostList::default() => command(flatten);
        /// Training recipe
        Identity recipe: Recipe = Recipe::default() => command(flatten);
        /// Version of Frostline that recorded the job
        Free frostline: Option<String> = None => arg(skip);
        /// Start of the run in seconds since 1970. Set when the job is recorded
        Free created: Option<u64> = None => arg(skip);
    }
}

settings! {
    /// Scheduling and precision on the hosts.
    HostTerms {
        /// Run the layers on hosts in batches of exactly N images, which are padded if necessary and never
        /// merged with other requests, so that activations are reproducible bit for bit. By default, the host
        /// chooses the size
        Identity fixed_batch: Option<usize> = None => arg(long, value_name = "N", value_parser = positive);
        /// Priority relative to your other jobs on a host (-100 to 100). Larger values run first. Other
        /// tenants are not affected
        Free priority: i32 = 0 => arg(long, value_name = "N", allow_negative_numbers = true);
        /// Precision of the frozen layers on GPUs. tf32 is faster on recent NVIDIA GPUs, but rounds factors
        /// to 11 bits, so losses depend on the split. f16 also rounds weights and activations to 11
        /// bits, and its values are limited to 65504. CPUs and trained layers always use full precision
        Identity precision: Precision = Precision::Full
            => arg(long, value_name = "PRECISION", value_parser = named::<Precision>());
    }
}

settings! {
    /// Storage hosts of a job.
    HostList {
        /// URL of a storage host. By default, one is started in this process. Repeat for several hosts that
        /// serve the same data. Each object is read by one host, and other hosts take over after a failure.
        /// dns://name:8443 (dns+http:// without TLS) includes all addresses of a name. It is resolved
        /// regularly during the job, so hosts may join and leave
        Place host: Vec<String> = Vec::new() => arg(long, visible_alias = "hosts", value_name = "URL");
        /// File with the token for the hosts
        Place token_file: Option<PathBuf> = None => arg(long, value_name = "FILE");
        /// PEM file with trusted certificates for https hosts. By default, the certificates of the system are
        /// trusted
        Place ca: Option<PathBuf> = None => arg(long, value_name = "FILE");
        /// Parent folder of --data. Without a host, links that lead out of --data are followed within this
        /// folder, as required for data from DVC or the Hugging Face cache
        Place follow_links: Option<PathBuf> = None => arg(long, value_name = "DIR", conflicts_with = "host");
        /// Maximum number of pixels of an image that this machine decodes (width times height). The default
        /// is 268435456, for photos of 200 megapixels. Storage hosts have their own limit
        Place image_pixels: Option<u64> = None => arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u64).range(1..));
    }
}

/// Limits for requesting batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchLimits {
    /// Maximum number of samples per request. A batch can be split into multiple concurrent requests.
    pub request_samples: usize,
    /// Maximum number of open requests per host.
    pub window: usize,
    /// Maximum number of batches extracted ahead of the training step. The memory limit can reduce it.
    pub ahead: usize,
}

impl From<&HostTerms> for Terms {
    fn from(terms: &HostTerms) -> Self {
        Self {
            priority: terms.priority,
            fixed_batch: terms.fixed_batch,
            precision: terms.precision,
        }
    }
}

/// A file could not be read as a job or recipe.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", file.display())]
pub struct SpecError {
    file: PathBuf,
    why: String,
}

impl JobSpec {
    /// Reads a job from the `config.json` of a run, or from TOML as printed by `train --dry-run`.
    ///
    /// # Errors
    /// Returns a [`SpecError`] with the path if the file cannot be read or parsed.
    pub fn read(file: &Path) -> Result<Self, SpecError> {
        let text = read(file)?;
        if file.extension().is_some_and(|extension| extension == "json") {
            serde_json::from_str(&text).map_err(|error| spec_error(file, &error))
        } else {
            toml::from_str(&text).map_err(|error| wrong_toml(file, &text, &error))
        }
    }

    /// Returns the limits for requesting batches.
    pub fn fetch_limits(&self) -> FetchLimits {
        FetchLimits {
            request_samples: self.request_samples,
            window: self.window,
            ahead: self.prefetch,
        }
    }

    /// Returns the seed for selecting validation images.
    pub fn division_seed(&self) -> u64 {
        self.validation_seed.unwrap_or(self.recipe.seed)
    }

    /// Returns the form in which settings are stored: absolute paths, URLs without secrets, and a recipe with
    /// explicit rates.
    #[must_use]
    pub fn recorded(&self) -> Self {
        let mut spec = self.clone();
        let hosts = &mut spec.hosts;
        let files = [
            &mut spec.model,
            &mut spec.labels,
            &mut spec.guest,
            &mut spec.out,
            &mut spec.feature_folder,
            &mut hosts.token_file,
            &mut hosts.ca,
            &mut hosts.follow_links,
        ];
        for file in files.into_iter().flatten() {
            if let Ok(whole) = absolute(&*file) {
                *file = whole;
            }
        }
        // Python passes tokens through pipes. A resumed run cannot open these paths.
        hosts.token_file.take_if(|file| file.starts_with("/dev/fd"));
        let urls = hosts.host.iter_mut().chain([&mut spec.data]);
        for url in urls {
            *url = without_secrets(url);
        }
        spec.recipe = spec.recipe.resolved();
        spec
    }

    /// Returns all settings by flag name, including those of the recipe.
    pub fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        let spec = object(self);
        for (name, class) in Self::CLASSES {
            let value = spec.get(*name).cloned().unwrap_or_default();
            let nested = match *name {
                "pixels" => PixelFlags::CLASSES,
                "terms" => HostTerms::CLASSES,
                "hosts" => HostList::CLASSES,
                "recipe" => Recipe::CLASSES,
                _ => {
                    settings.push(setting(name, *class, value));
                    continue;
                }
            };
            for (name, class) in nested {
                let value = value.get(name).cloned().unwrap_or_default();
                settings.push(setting(name, *class, value));
            }
        }
        settings
    }

    /// Checks that prices are set for the objective [`Objective::Cost`].
    ///
    /// # Errors
    /// Returns a [`SettingError`] if the prices are missing or all 0.
    pub fn check_objective(&self) -> Result<(), SettingError> {
        let priced = self.prices.is_some_and(|prices| prices != Prices::default());
        SettingError::require(
            self.objective != Objective::Cost || priced,
            "objective",
            &"cost",
            "it needs prices above 0",
        )
        .map_err(|error| error.with_conflict(Conflict::NoPrices))
    }

    /// Validates the settings.
    ///
    /// # Errors
    /// Returns a [`SettingError`] for the first invalid setting.
    pub fn check(&self) -> Result<(), SettingError> {
        self.recipe.check()?;
        self.pixels
            .check_excludes_parameters(self.parameters.as_deref())?;
        self.check_objective()?;
        let least = SettingError::at_least_one;
        least("the number of batches ahead", self.prefetch)?;
        least("the number of samples per request", self.request_samples)?;
        least("the number of open requests", self.window)?;
        if let Some(patience) = self.patience {
            least("the patience in epochs", patience as usize)?;
        }
        SettingError::require(
            self.export_prefix == ExportPrefix::F32 || self.prefix_precision != PrefixPrecision::F32,
            "export_prefix",
            &"int8",
            "the frozen layers are computed in f32; set prefix_precision to int8",
        )
        .map_err(|error| error.with_conflict(Conflict::PrefixNotInt8))?;
        let fixed = matches!(self.split, Policy::Fixed(_));
        SettingError::require(
            !self.reproducible || self.unfreeze.0.is_empty() || fixed,
            "split",
            &self.split,
            "a reproducible job with unfreeze requires a fixed split",
        )
        .map_err(|error| error.with_conflict(Conflict::NoFixedSplit))
    }
}

impl Recipe {
    /// Reads a recipe from a TOML file that contains recipe settings only, or from the `config.json` of a
    /// run.
    ///
    /// # Errors
    /// Returns a [`SpecError`] with the path if the file cannot be read or parsed.
    pub fn read(file: &Path) -> Result<Self, SpecError> {
        if file.extension().is_some_and(|extension| extension == "json") {
            return Ok(JobSpec::read(file)?.recipe);
        }
        let text = read(file)?;
        toml::from_str(&text).map_err(|error| wrong_toml(file, &text, &error))
    }
}

fn read(file: &Path) -> Result<String, SpecError> {
    fs::read_to_string(file).map_err(|error| spec_error(file, &error))
}

fn spec_error(file: &Path, error: &dyn std::error::Error) -> SpecError {
    SpecError {
        file: file.to_owned(),
        why: error.to_string().trim_end().to_owned(),
    }
}

/// Creates an error with the line number. For unknown names, the message suggests a similar name.
fn wrong_toml(file: &Path, text: &str, error: &toml::de::Error) -> SpecError {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map_or_else(String::new, |before| {
        format!("line {}: ", before.matches('\n').count() + 1)
    });
    SpecError {
        file: file.to_owned(),
        why: format!("{line}{}", with_suggestion(error.message())),
    }
}

/// Replaces the list of all names in serde's message for an unknown field by the most similar name.
fn with_suggestion(message: &str) -> String {
    #[cfg(feature = "flags")]
    if let Some((wrong, known)) = message
        .strip_prefix("unknown field `")
        .and_then(|rest| rest.split_once('`'))
        && let Some(near) = crate::flags::most_similar(wrong, known.split('`').skip(1).step_by(2))
    {
        return format!("unknown setting '{wrong}', did you mean '{near}'?");
    }
    message.to_owned()
}

fn setting(name: &str, class: Class, value: Value) -> Setting {
    Setting {
        name: name.to_owned(),
        class,
        value,
    }
}

/// Serializes and parses the settings. Parsing can change the last digit of a number, and recorded settings
/// are compared with parsed settings.
fn object(spec: &JobSpec) -> Map<String, Value> {
    let text = serde_json::to_string(spec).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}
