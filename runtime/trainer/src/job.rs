use crate::{Guest, Policy, ProfileCache, Recipe, RunFolder, Team, TrainerError, Unfreezing, whole_file};
use frostline_engine::Device;
use frostline_features::Cache;
use frostline_graph::Model;
use frostline_tensor::PixelSpec;
use frostline_wire::{Encoding, Layout, Split, Terms};
use serde::Serialize;
use std::path::PathBuf;

/// A fine-tuning job: everything `frostline train` is told. [`Job::new`] fills in the defaults.
#[derive(Debug, Clone)]
pub struct Job {
    /// The pretrained network.
    pub model: Model,
    /// What to call it on the host, usually the file's stem; other characters than a name may have are replaced.
    pub model_name: String,
    /// The freeze cut: the network is frozen up to this tensor and trained after it. The network's input freezes nothing.
    pub freeze: String,
    /// Earlier freeze cuts of later epochs.
    pub unfreeze: Unfreezing,
    /// Where to divide the network between host and trainer: a rule, or a split.
    pub split: Policy,
    /// How activations travel; `None` takes u8 for the split `input`, f32 for a split that is given, and what suits the link where the
    /// split is chosen too.
    pub encoding: Option<Encoding>,
    /// The data root, as the host is to open it.
    pub root: String,
    /// How samples lie there.
    pub layout: Layout,
    /// A local file with the labels; without, `labels.csv` beside the data has them, if there is one, and else folders or shards.
    pub labels: Option<PathBuf>,
    /// The share of samples of each class to validate with, for data that are not divided into `train/` and `validation/`.
    pub validation_share: Option<f64>,
    /// How it is trained.
    pub recipe: Recipe,
    /// How its runs stand to other work on the hosts.
    pub terms: Terms,
    /// How batches are asked for; where the split is chosen, at most so.
    pub flow: Flow,
    /// Bytes that batches being fetched, waiting and training may take together.
    pub memory_bytes: u64,
    /// What to do about a sample that cannot be decoded.
    pub on_bad_sample: OnBadSample,
    /// Preprocessing; `None` takes the model's own note (`frostline.pixels` in its metadata), else ImageNet's recipe for its input size.
    pub pixels: Option<PixelSpec>,
    /// The guest that serves the frozen layers.
    pub guest: Guest,
    /// Where the trainer computes.
    pub device: Device,
    /// Threads of the trainer's engine; 0 takes all cores.
    pub threads: usize,
    /// What the link moves, in bytes per second, instead of measuring it.
    pub link_bytes_per_second: Option<f64>,
    /// The only splits to choose from; `None` considers all that can be.
    pub candidates: Option<Vec<Split>>,
    /// Where what this machine takes is remembered; `None` measures it anew.
    pub cache: Option<ProfileCache>,
    /// Where rows at the freeze cut are kept, for later epochs and jobs; `None` keeps none.
    pub features: Option<Cache>,
    /// Where these rows are kept for other machines too; `None` for this one alone.
    pub team: Option<Team>,
    /// Whether host and trainer are known to compute on the same cores, as in one process.
    pub shared_cores: bool,
    /// Where the tuned model goes; of a job with a run's folder it goes there as well, and `None` only there.
    pub out: Option<PathBuf>,
    /// Where the job keeps what it needs to go on; without, it cannot be gone on with.
    pub run: Option<RunFolder>,
    /// Which epoch's weights are written.
    pub keep: Keep,
    /// Epochs without a better one on the validation samples after which the job ends; `None` trains all.
    pub patience: Option<u32>,
    /// Whether a job that is gone on with comes to the same weights bit for bit as one that was not interrupted: the split stays, and hosts run
    /// layers in batches of one size.
    pub reproducible: bool,
}

/// Which epoch's weights are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// The best on the validation samples; of several alike the last.
    #[default]
    Best,
    /// The last.
    Last,
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

impl Job {
    /// A job with the defaults.
    ///
    /// 32 samples a request let two requests of a batch
    /// decode and compute at once while a lost one costs little. Three batches ahead keep host and link at work, each on one, while a third
    /// waits; 16 open requests cover them. 2 GiB hold three batches of 64 at a wide cut (3 MB a sample) three times over.
    pub fn new(model: Model, model_name: String, freeze: String, root: String, out: PathBuf) -> Self {
        Self {
            model,
            model_name,
            freeze,
            unfreeze: Unfreezing::default(),
            split: Policy::Auto,
            encoding: None,
            root,
            layout: Layout::Auto,
            labels: None,
            validation_share: None,
            recipe: Recipe::default(),
            terms: Terms::default(),
            flow: Flow {
                request_samples: 32,
                window: 16,
                ahead: 3,
            },
            memory_bytes: 2 << 30,
            on_bad_sample: OnBadSample::Fail,
            pixels: None,
            guest: Guest::stock(),
            device: Device::Cpu,
            threads: 0,
            link_bytes_per_second: None,
            candidates: None,
            cache: ProfileCache::of_user(),
            features: None,
            team: None,
            shared_cores: false,
            out: Some(out),
            run: None,
            keep: Keep::Best,
            patience: None,
            reproducible: false,
        }
    }
}

impl Job {
    /// Refuses what no job can be.
    pub(crate) fn check(&self) -> Result<(), TrainerError> {
        self.recipe.check()?;
        at_least_one("the number of batches ahead", self.flow.ahead)?;
        at_least_one("the number of samples per request", self.flow.request_samples)?;
        at_least_one("the number of open requests", self.flow.window)?;
        self.terms.check()?;
        if let Some(patience) = self.patience {
            at_least_one("the patience, in epochs,", patience as usize)?;
        }
        self.check_reproducible()
    }

    fn check_reproducible(&self) -> Result<(), TrainerError> {
        let refused = |what: &'static str, value: &str, must: &'static str| {
            Err(TrainerError::Setting {
                what,
                value: value.to_owned(),
                must,
            })
        };
        if self.reproducible && self.terms.shared_runs {
            let must = "a reproducible job has its runs to itself; leave --shared-runs out";
            return refused("--shared-runs", "given", must);
        }
        let fixed = matches!(self.split, Policy::Fixed(_));
        if self.reproducible && !self.unfreeze.0.is_empty() && !fixed {
            let must =
                "a reproducible job that unfreezes needs one split for all epochs; name it with --split";
            return refused("--split", &self.split.to_string(), must);
        }
        Ok(())
    }

    /// Where the model is to be written: first where others look for it.
    pub(crate) fn targets(&self) -> Vec<PathBuf> {
        let in_run = self.run.as_ref().map(RunFolder::model);
        let mut targets: Vec<PathBuf> = self.out.iter().cloned().collect();
        targets.extend(in_run.filter(|model| self.out.as_ref() != Some(model)));
        targets
    }
}

/// Refuses a setting that is 0.
pub(crate) fn at_least_one(what: &'static str, value: usize) -> Result<(), TrainerError> {
    match value {
        0 => Err(TrainerError::Setting {
            what,
            value: "0".to_owned(),
            must: "it must be at least 1",
        }),
        _ => Ok(()),
    }
}

/// Measures a whole model on data: what `frostline eval` is told.
#[derive(Debug, Clone)]
pub struct EvaluationJob {
    /// The network, usually a tuned one that carries its classes (`frostline.classes` in its metadata; or `frostline.labels`, or
    /// `frostline.targets`) and preprocessing.
    pub model: Model,
    /// What to call it on the host, as for [`Job::model_name`].
    pub model_name: String,
    /// Makes the rows, where the model was trained on rows of its own making. Without parameters it is told what it was told then.
    pub guest: Option<Guest>,
    /// The data root, as the host is to open it. Its `validation/` part is measured if there is one, else all of it.
    pub root: String,
    /// How samples lie there.
    pub layout: Layout,
    /// A local file with the labels, as for [`Job::labels`].
    pub labels: Option<PathBuf>,
    /// Samples per forward pass.
    pub batch: usize,
    /// What to do about a sample that cannot be decoded.
    pub on_bad_sample: OnBadSample,
    /// Where to write what the model says of each sample, as CSV (see `docs/results.md`).
    pub predictions: Option<PathBuf>,
    /// Preprocessing; `None` takes the model's own note, else ImageNet's recipe.
    pub pixels: Option<PixelSpec>,
    /// Where the trainer computes.
    pub device: Device,
    /// Threads of the trainer's engine; 0 takes all cores.
    pub threads: usize,
}

impl EvaluationJob {
    /// Refuses what no evaluation can be, and a place for its predictions that cannot be written to.
    pub(crate) fn check(&self) -> Result<(), TrainerError> {
        at_least_one("the batch size", self.batch)?;
        let writable = |path: &PathBuf| {
            whole_file::check(path).map_err(|source| TrainerError::Predictions {
                path: path.clone(),
                source,
            })
        };
        self.predictions.as_ref().map_or(Ok(()), writable)
    }
}

/// What to do about a sample that cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnBadSample {
    /// End the job and name the object.
    #[default]
    Fail,
    /// Leave it out from now on and report it.
    Skip,
}
