#[cfg(feature = "flags")]
use crate::flags::{above_zero, named, positive};
use crate::setting::settings;
use crate::{
    CacheLimit, Class, EncodingChoice, ExportPrefix, Keep, NewHead, Objective, OnBadSample, PixelFlags,
    Policy, PrefixPrecision, Prices, Recipe, Setting, SettingError, Unfreezing, Unlisted, without_secrets,
};
use frostline_tensor::{Layout, Precision, Terms};
use frostline_wire::Split;
use serde_json::{Map, Value};
use std::fs;
use std::path::{Path, PathBuf, absolute};

settings! {
    /// A fine-tuning job: everything `frostline train` is told.
    JobSpec {
        /// The network, an ONNX classifier
        Place model: Option<PathBuf> = None => arg(long, value_name = "FILE");
        /// SHA-256 of the network; recorded
        Identity model_sha256: Option<String> = None => arg(skip);
        /// Where the images are: a path, file://, s3://bucket/prefix, gs://, az:// or https://
        Identity data: String = String::new() => arg(long, value_name = "URL");
        /// How they lie there: auto finds out
        Identity layout: Layout = Layout::Auto => arg(long, value_parser = named::<Layout>());
        /// The classifier that is trained: replace the network's own; keep it, of a model that was tuned, with its weights for the classes that it
        /// knows and fresh ones for new classes; or put a linear one behind the features that the network ends in (pooled, where those are
        /// feature maps or tokens)
        Identity head: NewHead = NewHead::Replace => arg(long, value_parser = named::<NewHead>());
        /// Pixels a side of the images, for a network that is exported for any size
        Identity image_size: Option<usize> = None => arg(long, value_name = "PIXELS", value_parser = positive);
        /// Freeze the network up to this cut and train what follows; by default the last cut before the classifier. A cut is named by its
        /// tensor or by the module whose output it is, as `frostline model show` lists them. none freezes nothing: the whole network is
        /// trained, and hosts only decode
        Identity freeze: Option<String> = None => arg(long, value_name = "CUT");
        /// Freeze less from later epochs on, as in 3=layer4,6=layer3: from that epoch the network is frozen up to that earlier cut, or not
        /// at all (none), and the split follows
        Identity unfreeze: Unfreezing = Unfreezing::default() => arg(long, value_name = "EPOCH=CUT,..");
        /// Precision of the frozen layers: f32; int8, which takes a CPU half to a quarter of the time; or auto, which takes int8 if its cosine
        /// similarity to f32 is at least 0.99 and this machine computes it at least 1.1 times as fast. int8 is calibrated on training images
        Identity prefix_precision: PrefixPrecision = PrefixPrecision::F32 => arg(long, value_parser = named::<PrefixPrecision>());
        /// Accept int8 with a cosine similarity to f32 below 0.99
        Identity allow_imprecise: bool = false
            => arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set);
        /// Precision of the frozen layers in the tuned model: f32, or int8 as the job computed them
        Free export_prefix: ExportPrefix = ExportPrefix::F32 => arg(long, value_parser = named::<ExportPrefix>());
        /// How activations travel: auto, or f32, u8 (pixels, for the split input, exact there), f16 or int8, each with +lz4 or +zstd
        /// to compress them. auto never takes int8, which loses the most
        Identity encoding: EncodingChoice = EncodingChoice::Auto => arg(long);
        /// Take the labels from this CSV file: keys of images below --data, then a column with classes, or with --loss bce a column of 0 and
        /// 1 for each label, or with --loss mse columns of numbers; by default from labels.csv beside the data, or from folders or shards
        /// where there is none
        Place labels: Option<PathBuf> = None => arg(long, value_name = "FILE");
        /// What to do about images that the table has no line for: fail refuses the data, skip leaves them out
        Identity unlisted: Unlisted = Unlisted::Fail => arg(long, value_parser = named::<Unlisted>());
        /// Share of each class to validate with (0 to 1), for data without a validation/ part
        Identity validation: Option<f64> = None => arg(long, value_name = "SHARE");
        /// Measure the tuned model with the test/ part of the data too, once, at the end
        Free test: bool = false
            => arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set);
        /// Seeds the choice of validation images; by default --seed does
        Identity validation_seed: Option<u64> = None => arg(long, value_name = "SEED");
        /// Where to divide the network between host and trainer: auto, none, input, a cut at or before the freeze cut, or a rule: freeze,
        /// hapi-size, hapi-time
        Exact split: Policy = Policy::Auto => arg(long, alias = "policy", value_name = "CUT");
        /// The only splits to choose from
        Exact candidates: Option<Vec<Split>> = None => arg(skip);
        /// What --split auto minimizes: the job's time, or its cost at --prices
        Exact objective: Objective = Objective::Time => arg(long, value_parser = named::<Objective>());
        /// Prices in any currency, as in host=0.05,trainer=0.20,gb=0.09: of an hour of one host core and of one trainer core, and of a GB from
        /// host to trainer. The trainer's cores (--threads) are paid from the job's start to its end, a host's while they work for it
        Exact prices: Option<Prices> = None => arg(long, value_name = "NAME=PRICE,..");
        /// What the link moves, in bytes a second, instead of measuring it
        Free link_bytes_per_second: Option<f64> = None
            => arg(long, value_name = "NUMBER", value_parser = above_zero);
        /// How an image becomes the network's input
        Identity pixels: PixelFlags = PixelFlags::default() => command(flatten);
        /// Use this guest (a component or a core module) instead of the stock one
        Place guest: Option<PathBuf> = None => arg(long, value_name = "FILE");
        /// SHA-256 of the guest; recorded
        Identity guest_sha256: Option<String> = None => arg(skip);
        /// Text passed to the guest as it is; the stock guest takes a preprocessing recipe as JSON
        Identity parameters: Option<String> = None => arg(long, value_name = "TEXT");
        /// What to do about an image that cannot be decoded: fail ends the job and names the object, skip leaves it out
        Free on_bad_sample: OnBadSample = OnBadSample::Fail => arg(long, value_parser = named::<OnBadSample>());
        // Two requests of a batch decode and compute at once, while a lost one costs little.
        /// Images per request to the host, at most
        Free request_samples: usize = 32 => arg(long, value_name = "N", value_parser = positive);
        // They keep host and link at work, each on one, while a third waits.
        /// Batches extracted ahead while one trains, at most
        Free prefetch: usize = 3 => arg(long, value_name = "N", value_parser = positive);
        /// Requests open at once, at most
        Free window: usize = 16 => arg(long, hide = true, value_name = "N", value_parser = positive);
        // Three batches of 64 at a wide cut (3 MB a sample) three times over.
        /// Bytes that batches being fetched, waiting and training may take together
        Free memory_bytes: u64 = 2 << 30 => arg(long, hide = true, value_name = "BYTES");
        /// Where the trainer computes: cpu or cuda:0
        Identity device: String = "cpu".to_owned() => arg(long, value_name = "DEVICE");
        /// Threads the trainer computes with; 0 takes all cores
        Exact threads: usize = 0 => arg(long, value_name = "N");
        /// Disk that rows at the freeze cut may take, so that the frozen layers run once for each image, or off; those of the job used longest
        /// ago go first [default: half of what the disk has free, so that it never fills up]
        Free feature_cache: Option<CacheLimit> = None
            => arg(long, value_name = "SIZE|off", env = "FROSTLINE_FEATURE_CACHE", hide_env_values = true);
        /// The folder where rows are kept [default: frostline/features in the user's cache folder]
        Place feature_folder: Option<PathBuf> = None
            => arg(long, value_name = "DIRECTORY", env = "FROSTLINE_FEATURE_FOLDER", hide_env_values = true);
        /// Share cached features with other machines through this folder or bucket (s3://, gs://, az://): what a colleague's job kept is not
        /// computed again
        Place feature_store: Option<String> = None
            => arg(long, value_name = "URL", env = "FROSTLINE_FEATURE_STORE", hide_env_values = true);
        /// Write the tuned model here too, beside the run's folder
        Place out: Option<PathBuf> = None => arg(long, value_name = "FILE");
        /// Write a checkpoint every so many steps too; by default after each epoch and, within one, every five minutes
        Free checkpoint_steps: Option<u64> = None
            => arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..));
        /// Which epoch's weights are written: those that do best on the validation images, or the last
        Free keep: Keep = Keep::Best => arg(long, value_parser = named::<Keep>());
        /// End after so many epochs without a better one on the validation images
        Free patience: Option<u32> = None
            => arg(long, value_name = "EPOCHS", value_parser = clap::value_parser!(u32).range(1..));
        /// Come to the same weights bit for bit however often the job is interrupted, on the same machine: one split for all of it, and
        /// layers run on the hosts in batches of one size (--fixed-batch, by default 16; 32 with --device cuda:0)
        Identity reproducible: bool = false
            => arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set);
        /// How its work stands to other work on the hosts
        Identity terms: HostTerms = HostTerms::default() => command(flatten);
        /// Its hosts
        Place hosts: HostList = HostList::default() => command(flatten);
        /// How the network is trained
        Identity recipe: Recipe = Recipe::default() => command(flatten);
        /// The version of Frostline that recorded it
        Free frostline: Option<String> = None => arg(skip);
        /// When the run began, in seconds since 1970; recorded
        Free created: Option<u64> = None => arg(skip);
    }
}

settings! {
    /// How a job's work stands to other work on the hosts.
    HostTerms {
        /// Run the layers on the hosts in batches of just so many images, padded where there are fewer and never joined with others, so that
        /// activations come out bit for bit the same every time; by default the host chooses
        Identity fixed_batch: Option<usize> = None => arg(long, value_name = "N", value_parser = positive);
        /// Orders your own jobs on a host: what has more goes first (-100 to 100); it changes nothing for other tenants
        Free priority: i32 = 0 => arg(long, value_name = "N", allow_negative_numbers = true);
        /// How exactly GPUs have to compute the frozen layers: tf32 is faster on recent NVIDIA GPUs and keeps 11 bits of what it multiplies, so
        /// losses depend on where the network is divided. CPUs compute in full
        Identity precision: Precision = Precision::Full
            => arg(long, value_name = "PRECISION", value_parser = named::<Precision>());
    }
}

settings! {
    /// Running hosts, or none.
    HostList {
        /// A running storage host; without it one is started inside this process. May be repeated, for hosts that serve the same data:
        /// each object is read at one of them, and when one fails the others do its work. dns://name:8443 (dns+http:// without TLS) stands for
        /// all addresses of a name, looked up again while the job runs: hosts may join and leave it
        Place host: Vec<String> = Vec::new() => arg(long, visible_alias = "hosts", value_name = "URL");
        /// File with the token for the hosts
        Place token_file: Option<PathBuf> = None => arg(long, value_name = "FILE");
        /// File with the certificates, in PEM, that an https host is to be trusted by; by default those the system trusts
        Place ca: Option<PathBuf> = None => arg(long, value_name = "FILE");
        /// A folder above --data: without a host, links that lead out of --data are followed where they stay inside this folder, as those of
        /// DVC or Hugging Face's cache do
        Place follow_links: Option<PathBuf> = None => arg(long, value_name = "DIR", conflicts_with = "host");
    }
}

/// How batches are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// The most samples of one request; a batch is fetched by several at once.
    pub request_samples: usize,
    /// The most requests open at once.
    pub window: usize,
    /// Batches that are extracted while one trains; fewer where the memory does not hold them.
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

/// A file that is no job.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", file.display())]
pub struct SpecError {
    file: PathBuf,
    why: String,
}

impl JobSpec {
    /// Reads a job from a file: a run's `config.json`, or TOML as `train --dry-run` prints it.
    ///
    /// # Errors
    /// [`SpecError`], which names the file.
    pub fn read(file: &Path) -> Result<Self, SpecError> {
        let text = read(file)?;
        if file.extension().is_some_and(|extension| extension == "json") {
            serde_json::from_str(&text).map_err(|error| wrong(file, &error))
        } else {
            toml::from_str(&text).map_err(|error| wrong_toml(file, &text, &error))
        }
    }

    /// How batches are asked for.
    pub fn flow(&self) -> Flow {
        Flow {
            request_samples: self.request_samples,
            window: self.window,
            ahead: self.prefetch,
        }
    }

    /// What the validation images are chosen by.
    pub fn division_seed(&self) -> u64 {
        self.validation_seed.unwrap_or(self.recipe.seed)
    }

    /// As it is written: files by their whole paths, URLs without what opens them, the recipe with its rates.
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
        // A pipe, which Python hands a token over by, is no place to come back to.
        hosts.token_file.take_if(|file| file.starts_with("/dev/fd"));
        let urls = hosts.host.iter_mut().chain(spec.feature_store.as_mut());
        for url in urls.chain([&mut spec.data]) {
            *url = without_secrets(url);
        }
        spec.recipe = spec.recipe.resolved();
        spec
    }

    /// Every setting by its flag's name, those of the recipe among them.
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

    /// Refuses to minimize the cost without prices, or at prices that are all 0.
    ///
    /// # Errors
    /// [`SettingError`].
    pub fn check_objective(&self) -> Result<(), SettingError> {
        let priced = self.prices.is_some_and(|prices| prices != Prices::default());
        SettingError::unless(
            self.objective != Objective::Cost || priced,
            "--objective",
            &"cost",
            "it needs prices above 0; add --prices host=0.05,trainer=0.20,gb=0.09 with yours",
        )
    }

    /// Refuses what no job can be.
    ///
    /// # Errors
    /// [`SettingError`].
    pub fn check(&self) -> Result<(), SettingError> {
        self.recipe.check()?;
        self.pixels.check_beside(self.parameters.as_deref())?;
        self.check_objective()?;
        let least = SettingError::at_least_one;
        least("the number of batches ahead", self.prefetch)?;
        least("the number of samples per request", self.request_samples)?;
        least("the number of open requests", self.window)?;
        if let Some(patience) = self.patience {
            least("the patience, in epochs,", patience as usize)?;
        }
        SettingError::unless(
            self.export_prefix == ExportPrefix::F32 || self.prefix_precision != PrefixPrecision::F32,
            "--export-prefix",
            &"int8",
            "the job computes its frozen layers in f32; add --prefix-precision int8",
        )?;
        let fixed = matches!(self.split, Policy::Fixed(_));
        SettingError::unless(
            !self.reproducible || self.unfreeze.0.is_empty() || fixed,
            "--split",
            &self.split,
            "a reproducible job that unfreezes needs one split for all epochs; name it with --split",
        )
    }
}

impl Recipe {
    /// Reads a recipe from a file: TOML with its settings alone, or the `config.json` of a run.
    ///
    /// # Errors
    /// [`SpecError`], which names the file.
    pub fn read(file: &Path) -> Result<Self, SpecError> {
        if file.extension().is_some_and(|extension| extension == "json") {
            return Ok(JobSpec::read(file)?.recipe);
        }
        let text = read(file)?;
        toml::from_str(&text).map_err(|error| wrong_toml(file, &text, &error))
    }
}

fn read(file: &Path) -> Result<String, SpecError> {
    fs::read_to_string(file).map_err(|error| wrong(file, &error))
}

fn wrong(file: &Path, error: &dyn std::error::Error) -> SpecError {
    SpecError {
        file: file.to_owned(),
        why: error.to_string().trim_end().to_owned(),
    }
}

/// The same with the line, and for a name that nothing has the nearest one.
fn wrong_toml(file: &Path, text: &str, error: &toml::de::Error) -> SpecError {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map_or_else(String::new, |before| {
        format!("line {}: ", before.matches('\n').count() + 1)
    });
    SpecError {
        file: file.to_owned(),
        why: format!("{line}{}", meant(error.message())),
    }
}

/// serde's message of an unknown field, with what was probably meant in the place of all names.
fn meant(message: &str) -> String {
    #[cfg(feature = "flags")]
    if let Some((wrong, known)) = message
        .strip_prefix("unknown field `")
        .and_then(|rest| rest.split_once('`'))
        && let Some(near) = crate::flags::nearest(wrong, known.split('`').skip(1).step_by(2))
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

/// Numbers as they are read again: reading may err in a last digit.
fn object(spec: &JobSpec) -> Map<String, Value> {
    let text = serde_json::to_string(spec).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}
