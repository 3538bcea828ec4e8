use crate::{
    Guest, JobSpec, OnBadSample, ProfileCache, RunFolder, SettingError, Team, TrainerError, notes, whole_file,
};
use frostline_client::Part;
use frostline_engine::Device;
use frostline_features::Cache;
use frostline_graph::onnx::NodeProto;
use frostline_graph::{Model, Network};
use frostline_job::PixelFlags;
use frostline_job::{CacheLimit, NewHead, Unlisted};
use frostline_tensor::Terms;
use frostline_wire::Layout;
use std::path::{Path, PathBuf};

/// A fine-tuning job: its settings, and what they name.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its settings.
    pub spec: JobSpec,
    /// The pretrained network.
    pub model: Model,
    /// The freeze cut: the network is frozen up to this tensor and trained after it. The network's input freezes nothing.
    pub freeze: String,
    /// The guest that serves the frozen layers.
    pub guest: Guest,
    /// Where the trainer computes.
    pub device: Device,
    /// Where what this machine takes is remembered; `None` measures it anew.
    pub cache: Option<ProfileCache>,
    /// The feature cache, for later epochs and jobs; `None` disables it.
    pub features: Option<Cache>,
    /// Where these rows are kept for other machines too; `None` for this one alone.
    pub team: Option<Team>,
    /// Whether host and trainer are known to compute on the same cores, as in one process.
    pub shared_cores: bool,
    /// The run folder; `None` cannot be resumed.
    pub run: Option<RunFolder>,
}

impl Job {
    /// A job with the defaults, whose rows are not kept. The host calls the network `model_name`.
    pub fn new(model: Model, model_name: String, freeze: String, data: String, out: PathBuf) -> Self {
        Self {
            spec: JobSpec {
                model: Some(PathBuf::from(model_name)),
                data,
                out: Some(out),
                ..JobSpec::default()
            },
            model,
            freeze,
            guest: Guest::stock(),
            device: Device::Cpu,
            cache: ProfileCache::of_user(),
            features: None,
            team: None,
            shared_cores: false,
            run: None,
        }
    }

    /// Reads the files that `spec` names.
    ///
    /// # Errors
    /// [`TrainerError::File`] for files that cannot be used, [`TrainerError::Setting`] for a device that is none, and
    /// [`TrainerError::Graph`] for a network without a cut to freeze up to.
    pub fn open(spec: JobSpec) -> Result<Self, TrainerError> {
        let file = spec.model.clone().unwrap_or_default();
        let model = Model::read_sized(&file, spec.image_size);
        let model = model.and_then(|model| match spec.head {
            NewHead::Replace | NewHead::Keep => Ok(model),
            NewHead::Linear => model.with_linear_head(),
        });
        let mut model = model.map_err(|error| TrainerError::file("model", &file, &error))?;
        notes::read_pixels_beside(&mut model, file.as_ref(), &spec.pixels)?;
        let freeze = match spec.freeze.as_deref() {
            Some("none") => model.input_name()?.to_owned(),
            Some(cut) => cut.to_owned(),
            None => last_cut_before_head(&model)?,
        };
        let device = spec.device.parse();
        let device = device.map_err(|error: frostline_engine::ParseDeviceError| SettingError {
            what: "--device",
            value: spec.device.clone(),
            must: error.to_string(),
        })?;
        Ok(Self {
            guest: Guest::read(spec.guest.as_deref(), spec.parameters.as_deref())?,
            features: feature_cache(spec.feature_cache, spec.feature_folder.as_deref()),
            model,
            freeze,
            device,
            cache: ProfileCache::of_user(),
            team: None,
            shared_cores: false,
            run: None,
            spec,
        })
    }

    /// What to call the network on a host: its file's stem.
    pub fn model_name(&self) -> String {
        let stem = self.spec.model.as_deref().and_then(Path::file_stem);
        stem.unwrap_or_default().to_string_lossy().into_owned()
    }

    /// How its work stands to other work on the hosts.
    pub(crate) fn terms(&self) -> Terms {
        (&self.spec.terms).into()
    }

    /// Refuses what no job can be.
    pub(crate) fn check(&self) -> Result<(), TrainerError> {
        self.spec.check()?;
        crate::recipe::step_settings(&self.spec.recipe)
            .check()
            .map_err(|source| TrainerError::Unfollowable { source })?;
        Ok(self.terms().check()?)
    }

    /// Where the model is to be written: first where others look for it.
    pub(crate) fn targets(&self) -> Vec<PathBuf> {
        let in_run = self.run.as_ref().map(RunFolder::model);
        let out = &self.spec.out;
        let mut targets: Vec<PathBuf> = out.iter().cloned().collect();
        targets.extend(in_run.filter(|model| out.as_ref() != Some(model)));
        targets
    }
}

/// The cut that feeds the classifier: the default freeze cut.
///
/// # Errors
/// [`TrainerError::Graph`], and [`TrainerError::Setting`] for a network without such a cut.
pub fn last_cut_before_head(model: &Model) -> Result<String, TrainerError> {
    let network = model.network()?;
    let cut = network.cuts.iter().rev().find(|cut| cut.before_head);
    let cut = cut.ok_or_else(|| SettingError {
        what: "--freeze",
        value: "not given".to_owned(),
        must: why_no_cut(model, &network).to_owned(),
    })?;
    Ok(cut.name.clone())
}

/// Why a network has no cut to freeze up to, with what to do.
fn why_no_cut(model: &Model, network: &Network) -> &'static str {
    let quantized = |node: &NodeProto| {
        let operator = node.op_type.as_str();
        operator.starts_with("QLinear")
            || operator.ends_with("Integer")
            || operator.ends_with("QuantizeLinear")
    };
    if model.nodes().iter().any(quantized) {
        "the network is quantized, which cannot be trained: fine-tune its f32 export, and quantize the tuned model"
    } else if network.head.is_none() {
        "the network ends in no classifier that could be replaced; --head linear puts one behind the features it ends in"
    } else {
        "the network has no cut before its classifier, so there is nothing to freeze"
    }
}

/// The cache of features that settings name; `None` where it is off, or where nobody says where it is.
pub fn feature_cache(limit: Option<CacheLimit>, folder: Option<&Path>) -> Option<Cache> {
    let limit = match limit {
        Some(CacheLimit::Off) => return None,
        Some(CacheLimit::Bytes(bytes)) => Some(bytes),
        None => None,
    };
    Cache::within(folder.map(Path::to_owned), limit)
}

/// Evaluates a whole model on data: the input of `frostline eval`.
#[derive(Debug, Clone)]
pub struct EvaluationJob {
    /// The network, usually a tuned one that carries its classes (`frostline.classes` in its metadata; or `frostline.labels`, or
    /// `frostline.targets`) and preprocessing.
    pub model: Model,
    /// What to call it on the host, as for [`Job::model_name()`].
    pub model_name: String,
    /// Makes the rows, where the model was trained on rows of its own making. Without parameters it is told what it was told then.
    pub guest: Option<Guest>,
    /// The data root, as the host is to open it.
    pub root: String,
    /// What of it is measured; `None` takes what the model's training held out, else the parts in [`Evaluated::Usual`]'s order.
    ///
    /// [`Evaluated::Usual`]: frostline_client::Evaluated::Usual
    pub part: Option<Part>,
    /// How samples lie there.
    pub layout: Layout,
    /// A local file with the labels, as for [`JobSpec::labels`].
    pub labels: Option<PathBuf>,
    /// What to do about images that the table has no line for.
    pub unlisted: Unlisted,
    /// Samples per forward pass.
    pub batch: usize,
    /// What to do about a sample that cannot be decoded.
    pub on_bad_sample: OnBadSample,
    /// Where to write what the model says of each sample, as CSV (see `docs/results.md`).
    pub predictions: Option<PathBuf>,
    /// Preprocessing; what it leaves open is as in the model's own note, else in ImageNet's recipe.
    pub pixels: PixelFlags,
    /// Where the trainer computes.
    pub device: Device,
    /// Threads of the trainer's engine; 0 takes all cores.
    pub threads: usize,
}

impl EvaluationJob {
    /// Measures what `job` came to.
    pub(crate) fn of_tuned(job: &Job, model: Model) -> Self {
        Self {
            model,
            model_name: job.model_name(),
            guest: job.spec.guest.is_some().then(|| job.guest.clone()),
            root: job.spec.data.clone(),
            part: Some(Part::Test),
            layout: job.spec.layout,
            labels: job.spec.labels.clone(),
            unlisted: job.spec.unlisted,
            batch: job.spec.recipe.batch,
            on_bad_sample: job.spec.on_bad_sample,
            predictions: None,
            pixels: PixelFlags::default(),
            device: job.device,
            threads: job.spec.threads,
        }
    }

    /// Refuses what no evaluation can be, and a place for its predictions that cannot be written to.
    pub(crate) fn check(&self) -> Result<(), TrainerError> {
        SettingError::at_least_one("the batch size", self.batch)?;
        let parameters = self.guest.as_ref().and_then(|guest| guest.parameters.as_deref());
        self.pixels.check_beside(parameters)?;
        let writable = |path: &PathBuf| {
            whole_file::check(path).map_err(|source| TrainerError::Predictions {
                path: path.clone(),
                source,
            })
        };
        self.predictions.as_ref().map_or(Ok(()), writable)
    }
}
