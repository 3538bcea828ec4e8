use crate::{
    Guest, JobSpec, OnBadSample, ProfileFolder, RunFolder, SettingError, TrainerError, model_metadata,
    whole_file,
};
use frostline_client::Part;
use frostline_engine::Device;
use frostline_features::{Cache, folder_of_user};
use frostline_graph::{Interface, Model, Network};
use frostline_job::{CacheLimit, NewHead, Unlisted};
use frostline_job::{Conflict, PixelFlags};
use frostline_tensor::Terms;
use frostline_wire::Layout;
use std::path::{Path, PathBuf};

/// A fine-tuning job: settings plus loaded files.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its settings.
    pub spec: JobSpec,
    /// The pretrained network.
    pub model: Model,
    /// The freeze cut. Layers up to this tensor are frozen, and later layers are trained. At the network's
    /// input, all layers are trained.
    pub freeze: String,
    /// The guest that serves the frozen layers.
    pub guest: Guest,
    /// Device of the trainer.
    pub device: Device,
    /// Profiles of this machine, by default in the cache folder of the user. If `None`, the machine is measured for
    /// each job.
    pub cache: Option<ProfileFolder>,
    /// Feature cache for later epochs and jobs. If `None`, features are not cached.
    pub features: Option<Cache>,
    /// True if host and trainer are known to use the same cores, as in a single process.
    pub shared_cores: bool,
    /// The run folder. If `None`, the job cannot be resumed.
    pub run: Option<RunFolder>,
}

impl Job {
    /// Creates a job with default settings and no feature cache. Hosts store the network as `model_name`.
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
            cache: folder_of_user().map(ProfileFolder::new),
            features: None,
            shared_cores: false,
            run: None,
        }
    }

    /// Reads the files that `spec` names.
    ///
    /// # Errors
    /// Returns [`TrainerError::File`] if a file cannot be used, [`TrainerError::Setting`] if the device is
    /// invalid or the network has no default freeze cut, [`TrainerError::Pixels`] if the preprocessing next
    /// to the model cannot be used, and [`TrainerError::Graph`] if the network cannot be analyzed.
    pub fn open(spec: JobSpec) -> Result<Self, TrainerError> {
        let file = spec.model.clone().unwrap_or_default();
        let interface = Interface {
            image_size: spec.image_size,
            output: spec.output.clone(),
        };
        let model = Model::read_joined(&file, &interface);
        let model = model.and_then(|model| match spec.head {
            NewHead::Replace | NewHead::Keep => Ok(model),
            NewHead::Linear => model.with_linear_head(),
        });
        let mut model = model.map_err(|source| TrainerError::Model {
            file: file.clone(),
            source,
        })?;
        if spec.guest.is_none() {
            model_metadata::check_takes_images(&model)?;
        }
        model_metadata::read_pixels_beside(&mut model, file.as_ref(), &spec.pixels)?;
        let input = model.input_name()?.to_owned();
        let (model, freeze) = match spec.freeze.as_deref() {
            Some(cut) if cut == "none" || cut == input => (model, input),
            names => frozen_up_to(model, names)?,
        };
        let device = spec.device.parse();
        let device = device.map_err(|error: frostline_engine::ParseDeviceError| {
            SettingError::new("device", spec.device.clone(), error.to_string())
        })?;
        Ok(Self {
            guest: Guest::read(spec.guest.as_deref(), spec.parameters.as_deref())?,
            features: feature_cache(spec.feature_cache, spec.feature_folder.as_deref()),
            model,
            freeze,
            device,
            cache: folder_of_user().map(ProfileFolder::new),
            shared_cores: false,
            run: None,
            spec,
        })
    }

    /// Name of the network on a host. This is the file stem of the model.
    pub fn model_name(&self) -> String {
        let stem = self.spec.model.as_deref().and_then(Path::file_stem);
        stem.unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Priority, batch size and precision requested from the hosts.
    pub(crate) fn terms(&self) -> Terms {
        (&self.spec.terms).into()
    }

    /// Paths for the tuned model. The path requested by the user is first, the run folder second.
    pub(crate) fn output_paths(&self) -> Vec<PathBuf> {
        let in_run = self.run.as_ref().map(RunFolder::model);
        let out = &self.spec.out;
        let mut targets: Vec<PathBuf> = out.iter().cloned().collect();
        targets.extend(in_run.filter(|model| out.as_ref() != Some(model)));
        targets
    }
}

/// Returns the network and the name of its cut at `names`, see [`Model::with_cut`]. Without names, this is the
/// default freeze cut.
///
/// # Errors
/// Returns [`TrainerError::Graph`] if there is no such cut, and the errors of [`last_cut_before_head`].
pub fn frozen_up_to(model: Model, names: Option<&str>) -> Result<(Model, String), TrainerError> {
    let Some(names) = names else {
        let last = last_cut_before_head(&model)?;
        return Ok((model, last));
    };
    Ok(model.with_cut(names)?)
}

/// Returns the default freeze cut, which is the input of the classifier.
///
/// # Errors
/// Returns [`TrainerError::Setting`] if the network has no such cut, and [`TrainerError::Graph`] if it cannot
/// be analyzed.
pub fn last_cut_before_head(model: &Model) -> Result<String, TrainerError> {
    let network = model.network()?;
    let cut = network.cuts.iter().rev().find(|cut| cut.before_head);
    let cut = cut.ok_or_else(|| missing_cut(model, &network))?;
    Ok(cut.name.clone())
}

/// Explains a missing default freeze cut, with advice.
fn missing_cut(model: &Model, network: &Network) -> SettingError {
    if model.nodes().iter().any(|node| {
        let operator = node.op_type.as_str();
        operator.starts_with("QLinear")
            || operator.ends_with("Integer")
            || operator.ends_with("QuantizeLinear")
    }) {
        freeze_not_given(
            "a quantized network cannot be trained; fine-tune the f32 export, then quantize the tuned model",
        )
    } else if network.head.is_none() {
        freeze_not_given("the network does not end in a replaceable classifier; add a classifier")
            .with_conflict(Conflict::NoHead)
    } else {
        freeze_not_given("the network has no cut before the classifier, so no layers can be frozen")
    }
}

fn freeze_not_given(must: &str) -> SettingError {
    SettingError::new("freeze", "not given", must)
}

/// Opens the feature cache from the settings. Returns `None` if it is off or no folder is known.
pub fn feature_cache(limit: Option<CacheLimit>, folder: Option<&Path>) -> Option<Cache> {
    let limit = match limit {
        Some(CacheLimit::Off) => return None,
        Some(CacheLimit::Bytes(bytes)) => Some(bytes),
        None => None,
    };
    Cache::with_defaults(folder.map(Path::to_owned), limit)
}

/// Evaluates a whole model on data. This is the input of `frostline eval`.
#[derive(Debug, Clone)]
pub struct EvaluationJob {
    /// The network. Tuned models contain their preprocessing and output names in the metadata
    /// (`frostline.classes`, `frostline.labels` or `frostline.targets`).
    pub model: Model,
    /// Name of the network on the host. See [`Job::model_name()`].
    pub model_name: String,
    /// Guest that makes the rows, required if the model was trained on rows of a custom guest. By default it
    /// receives the parameters used in training.
    pub guest: Option<Guest>,
    /// Data root as seen by the host.
    pub root: String,
    /// Part of the data to measure. `None` selects the samples held out by the model's training. If they are
    /// unknown, it selects a part like [`Evaluated::DefaultPart`].
    ///
    /// [`Evaluated::DefaultPart`]: frostline_client::Evaluated::DefaultPart
    pub part: Option<Part>,
    /// Layout of the data.
    pub layout: Layout,
    /// Local file with labels. See [`JobSpec::labels`].
    pub labels: Option<PathBuf>,
    /// Handling of images that the table does not list.
    pub unlisted: Unlisted,
    /// Samples per forward pass.
    pub batch: usize,
    /// Handling of samples after a decoding failure.
    pub on_bad_sample: OnBadSample,
    /// CSV file for the predictions of all samples (see `docs/results.md`).
    pub predictions: Option<PathBuf>,
    /// Preprocessing flags. Missing values default to the model's metadata and then to the ImageNet recipe.
    pub pixels: PixelFlags,
    /// Device of the trainer.
    pub device: Device,
    /// Number of threads in the engine and in the image decoder of the trainer. 0 uses all cores.
    pub threads: usize,
    /// Maximum number of pixels of an image that the trainer decodes. See
    /// [`HostList::image_pixels`](frostline_job::HostList::image_pixels).
    pub image_pixels: Option<u64>,
}

impl EvaluationJob {
    /// Evaluates the tuned `model` of `job` on the test part.
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
            image_pixels: job.spec.hosts.image_pixels,
        }
    }

    /// Refuses invalid settings and an unwritable predictions file.
    pub(crate) fn check(&self) -> Result<(), TrainerError> {
        SettingError::at_least_one("the batch size", self.batch)?;
        let parameters = self.guest.as_ref().and_then(|guest| guest.parameters.as_deref());
        self.pixels.check_excludes_parameters(parameters)?;
        self.predictions.as_ref().map_or(Ok(()), |path| {
            whole_file::check(path).map_err(TrainerError::unwritten("predictions", path))
        })
    }
}
