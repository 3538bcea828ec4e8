use super::labels;
use crate::evaluation::{Divided, ListedSamples, Scorer, Validation};
use crate::event::{first_few, notices, warn};
use crate::guest::stock_description;
use crate::model_metadata::{Int8Note, ModelInput};
use crate::offer::Offer;
use crate::pipeline::{BadSamples, Feed, FeedPlan, Steering};
use crate::training::run::fetcher;
use crate::upload::{OnHosts, Upload};
use crate::{
    Evaluation, EvaluationJob, Event, Events, FetchLimits, Guest, TrainerError, blocking, model_metadata,
};
use frostline_client::{
    AssumedNames, Dataset, DatasetError, Evaluated, Hosts, LabelTable, Listing, Part, SampleFiles, Samples,
    SkippedObjects, Source, Task,
};
use frostline_compute::{Dedicated, Forward, session_options};
use frostline_graph::Network;
use frostline_rows::BatchRows;
use frostline_tensor::Tensor;
use frostline_wire::{Description, Encoding, Split, Terms};
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Same default as a training job.
const MEMORY_BYTES: u64 = 2 << 30;
const FLOW: FetchLimits = FetchLimits {
    request_samples: 32,
    window: 8,
    ahead: 2,
};

/// Measures a model on the objects of a data root. Without a guest, objects are fetched unchanged and
/// everything is computed on the trainer. With a guest, hosts compute activations as in training, and only
/// the remaining layers run on the trainer.
///
/// # Errors
/// Returns [`TrainerError::GuestNeeded`] if the model was trained on input from a guest and `job` has no
/// guest. Returns another [`TrainerError`] if the data, the hosts or the engine fail.
pub async fn evaluate(
    job: EvaluationJob,
    hosts: impl Into<Hosts>,
    events: Events,
    cancel: CancellationToken,
) -> Result<Evaluation, TrainerError> {
    let hosts = hosts.into().for_job(notices(&events));
    let evaluation = cancel.run_until_cancelled(run(&job, &hosts, &events));
    evaluation.await.unwrap_or(Err(TrainerError::Cancelled))
}

async fn run(job: &EvaluationJob, hosts: &Hosts, events: &Events) -> Result<Evaluation, TrainerError> {
    job.check()?;
    let job = job.clone();
    let (job, network) = blocking(move || with_cut_of_training(job)).await?;
    let job = &job;
    if job.guest.is_none() {
        let (recipe, source) = model_metadata::pixels(&job.model, &network, &job.pixels, false)?;
        events(Event::Pixels { recipe, source });
        if let Some(message) = model_metadata::normalized_twice(&job.model, &recipe, source) {
            warn(events, message);
        }
    }
    let (offer, split) = opened(job, network, hosts, events).await?;
    let source = offer.source_at(&split, Encoding::F32, FLOW.request_samples)?;
    let listing = hosts.listing(&job.root, job.layout).await?;
    let task = model_metadata::outputs(&job.model).map_or(Task::Classes, |(task, _)| task);
    let table = labels::table(
        (job.labels.as_deref(), job.unlisted),
        &job.root,
        &listing,
        hosts,
        task,
    )
    .await?;
    if table.is_none() && task == Task::Labels {
        return Err(TrainerError::Unlabeled {
            root: job.root.clone(),
        });
    }
    let names = outputs(job, &offer.network, &listing, table.as_ref(), events)?;
    let for_samples = job.clone();
    let known = names.clone();
    let arranged = blocking(move || divide_data(&for_samples, &known, listing, table)).await?;
    let held_out = arranged.held_out == Some(HeldOut::All);
    if arranged.left_out.objects > 0 {
        events(Event::LeftOut(arranged.left_out));
    }
    if arranged.held_out == Some(HeldOut::Unknown) {
        let message = "the model was trained on a part of other data: this evaluation may include samples that \
                       it was trained on";
        warn(events, message);
    }
    let measured = Measured {
        source,
        split,
        task,
        names,
        samples: arranged.samples,
    };
    let evaluation = measured.run(job, hosts, events).await?;
    Ok(Evaluation {
        held_out,
        int8: Int8Note::read(&job.model),
        ..evaluation
    })
}

/// Measures a tuned model on `samples` from the training job.
pub(crate) async fn evaluate_samples(
    job: &EvaluationJob,
    samples: Arc<Samples>,
    hosts: &Hosts,
    events: &Events,
) -> Result<Evaluation, TrainerError> {
    let model = job.model.clone();
    let network = blocking(move || Ok(model.network()?)).await?;
    let (offer, split) = opened(job, network, hosts, events).await?;
    let (task, names) = model_metadata::outputs(&job.model).unwrap_or_default();
    let measured = Measured {
        source: offer.source_at(&split, Encoding::F32, FLOW.request_samples)?,
        split,
        task,
        names,
        samples,
    };
    measured.run(job, hosts, events).await
}

/// The source of a guest's rows and the layers after its split.
pub(crate) struct OpenedGuest {
    pub(crate) source: Source,
    pub(crate) network: Network,
    pub(crate) scorer: Dedicated<Scorer>,
}

/// Sends the guest and the layers of a job to `hosts`, and opens the layers after the split of the training.
///
/// # Errors
/// Returns a [`TrainerError`] if the hosts refuse the guest or the model, or if the engine refuses the layers.
pub(crate) async fn open_guest(
    job: EvaluationJob,
    hosts: &Hosts,
    events: &Events,
) -> Result<OpenedGuest, TrainerError> {
    job.check()?;
    let (job, network) = blocking(move || with_cut_of_training(job)).await?;
    let (task, _) = model_metadata::outputs(&job.model).unwrap_or_default();
    let (offer, split) = opened(&job, network, hosts, events).await?;
    Ok(OpenedGuest {
        source: offer.source_at(&split, Encoding::F32, FLOW.request_samples)?,
        network: offer.network,
        scorer: open(&job, &split, task).await?,
    })
}

/// Returns the source of activations or of unchanged objects, and the split.
async fn opened(
    job: &EvaluationJob,
    network: Network,
    hosts: &Hosts,
    events: &Events,
) -> Result<(Offer, Split), TrainerError> {
    match &job.guest {
        None => {
            let (pixels, _) = model_metadata::pixels(&job.model, &network, &job.pixels, false)?;
            let description = stock_description(&network, pixels);
            Ok((offer(job, network, description), Split::None))
        }
        Some(guest) => guest_offer(guest, job, network, hosts, events).await,
    }
}

/// Input of a measurement.
struct Measured {
    source: Source,
    split: Split,
    task: Task,
    names: Vec<String>,
    samples: Arc<Samples>,
}

impl Measured {
    async fn run(
        self,
        job: &EvaluationJob,
        hosts: &Hosts,
        events: &Events,
    ) -> Result<Evaluation, TrainerError> {
        let plan = FeedPlan {
            task: self.task,
            ahead: FLOW.ahead,
            memory_bytes: MEMORY_BYTES,
            ..FeedPlan::new(Arc::default(), self.samples, job.batch)
        };
        let network = open(job, &self.split, self.task).await?;
        let bad = Arc::new(BadSamples::new(job.on_bad_sample, Arc::clone(events)));
        let steering = Arc::new(Steering::fixed(self.source));
        let fetcher = fetcher(FLOW.window, job.threads, job.image_pixels)?;
        let mut feed = Feed::start(plan.clone(), fetcher, steering, hosts.clone(), Arc::clone(&bad))?;
        let validation = Validation::run(&plan, &mut feed, &bad, &network, predict, events).await?;
        let names = self.names;
        let file = job.predictions.clone();
        blocking(move || summarize(&validation, &names, file.as_deref())).await
    }
}

/// Computes figures and tables, and writes predictions to `file` if set.
fn summarize(
    validation: &Validation,
    names: &[String],
    file: Option<&Path>,
) -> Result<Evaluation, TrainerError> {
    if let Some(file) = file {
        validation.predictions.write(names, file)?;
    }
    Ok(Evaluation {
        quality: validation.quality,
        samples: validation.predictions.len(),
        held_out: false,
        int8: None,
        tables: validation.predictions.tables(names),
    })
}

fn predict(network: &mut Scorer, _: &Split, rows: BatchRows) -> Result<Tensor, TrainerError> {
    network.run(rows.fetched().ok_or(TrainerError::Ended { part: "pipeline" })?)
}

/// Opens the layers after `split` on a dedicated thread.
async fn open(job: &EvaluationJob, split: &Split, task: Task) -> Result<Dedicated<Scorer>, TrainerError> {
    let job = job.clone();
    let split = split.clone();
    Dedicated::open(move |interrupt| {
        let model = match &split {
            Split::Cut(name) => job.model.slice(Some(name), None)?,
            Split::None | Split::Input => job.model,
        };
        let options = session_options(job.device, job.threads);
        let forward = Forward::open(&model, job.batch, &options, interrupt, "evaluating")?;
        Ok(Scorer::new(forward, &model, task))
    })
    .await
}

/// Samples to measure.
struct EvaluationData {
    samples: Arc<Samples>,
    left_out: SkippedObjects,
    /// Known only for a model with a recorded division.
    held_out: Option<HeldOut>,
}

/// Relation of the samples to the held-out part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeldOut {
    All,
    Unknown,
}

fn divide_data(
    job: &EvaluationJob,
    names: &[String],
    listing: Listing,
    table: Option<LabelTable>,
) -> Result<EvaluationData, TrainerError> {
    let files = files(job);
    let divided = model_metadata::division(&job.model).map(|division| {
        division.reproduce(ListedSamples {
            root: &job.root,
            listing: listing.clone(),
            table: table.clone(),
            files,
        })
    });
    let (evaluated, held_out) = match (&divided, job.part) {
        (Some(Divided::Same { trained, .. }), Some(Part::Train)) => (Evaluated::Keys(trained), None),
        (Some(Divided::Same { held_out, .. }), None | Some(Part::Validation)) => {
            (Evaluated::Keys(held_out), Some(HeldOut::All))
        }
        (Some(Divided::Different), None) => (Evaluated::DefaultPart, Some(HeldOut::Unknown)),
        (_, Some(part)) => (Evaluated::Part(part), None),
        (_, None) => (Evaluated::DefaultPart, None),
    };
    let found = Dataset::to_evaluate(&job.root, listing, table, names, files, evaluated);
    let (samples, left_out) = found.map_err(|error| match &error {
        DatasetError::UnknownClass { class, .. } => TrainerError::UnknownClass {
            known: knows(names, class),
            source: error,
        },
        _ => error.into(),
    })?;
    Ok(EvaluationData {
        samples: Arc::new(samples),
        left_out,
        held_out,
    })
}

fn files(job: &EvaluationJob) -> SampleFiles {
    job.guest.as_ref().map_or(SampleFiles::Images, Guest::takes)
}

/// Returns output names from the model's metadata, or else the classes of the data. Warns if the order of
/// these is an assumption.
///
/// # Errors
/// Returns [`TrainerError::Classes`] if the number of names differs from the number of outputs.
fn outputs(
    job: &EvaluationJob,
    network: &Network,
    listing: &Listing,
    table: Option<&LabelTable>,
    events: &Events,
) -> Result<Vec<String>, TrainerError> {
    let outputs = network.output.shape.dims().iter().product::<usize>();
    let known = model_metadata::outputs(&job.model).map(|(_, names)| names);
    let is_unnamed = known.is_none();
    let AssumedNames { mut names, numbered } = match known {
        Some(names) => AssumedNames {
            names,
            numbered: false,
        },
        None => Dataset::assumed_names(listing, table, files(job)),
    };
    if numbered {
        names.extend((names.len()..outputs).map(|number| number.to_string()));
    }
    if names.len() != outputs {
        return Err(TrainerError::Classes {
            classes: names.len(),
            outputs,
        });
    }
    if is_unnamed && !numbered {
        warn(events, assumption(&names));
    }
    Ok(names)
}

/// Explains which class each output is assumed to be.
fn assumption(names: &[String]) -> String {
    let named = (0..).zip(names);
    let named = named.map(|(output, name)| format!("output {output} is '{name}'"));
    format!(
        "missing class names in the model; assuming sorted class names, as in torchvision: {}",
        first_few(named, 4)
    )
}

/// Describes the known classes for an error about the unknown class `class`.
fn knows(classes: &[String], class: &str) -> String {
    const SHORT: usize = 12;
    let similar = frostline_graph::similar(class, classes.iter().map(String::as_str));
    let meant = match similar.as_slice() {
        [] => String::new(),
        similar => format!("did you mean '{}'? ", similar.join("', '")),
    };
    if classes.len() <= SHORT {
        return format!("{meant}the model has {}", classes.join(", "));
    }
    format!("{meant}the model has {} other classes", classes.len())
}

/// Offers activations from the guest, at the split used in training.
async fn guest_offer(
    guest: &Guest,
    job: &EvaluationJob,
    network: Network,
    hosts: &Hosts,
    events: &Events,
) -> Result<(Offer, Split), TrainerError> {
    let noted = match model_metadata::input(&job.model)? {
        Some(ModelInput::Guest(noted)) => Some(noted),
        Some(ModelInput::Pixels(_)) | None => None,
    };
    let pixels = model_metadata::pixels_of_job(&job.model, &network, &job.pixels, guest)?;
    let parameters = match &noted {
        Some(noted) if guest.parameters.is_none() => noted.parameters.clone(),
        _ => model_metadata::parameters(guest, pixels.as_ref().map(|(recipe, _)| recipe))?,
    };
    let guest = Upload::guest(guest).await?;
    let difference = noted
        .as_ref()
        .and_then(|noted| noted.differs(&guest.sha256, &parameters));
    if let Some(message) = difference {
        warn(events, message);
    }
    let (freeze, split) = match noted {
        Some(noted) => (noted.freeze, noted.split),
        None => before_head(&network)?,
    };
    let layers = Upload::layers(&job.model_name, job.model.clone(), &freeze).await?;
    let (on_hosts, _) = OnHosts::send(&guest, &layers, hosts, events).await?;
    let description = on_hosts.describe(&parameters, hosts).await?;
    let offer = Offer {
        freeze,
        on_hosts: Some(on_hosts),
        parameters,
        ..offer(job, network, description)
    };
    offer.fixed(&split)?;
    Ok((offer, split))
}

/// Joins the tensors at the freeze cut of the training, if a guest computed them and there are several.
fn with_cut_of_training(mut job: EvaluationJob) -> Result<(EvaluationJob, Network), TrainerError> {
    if let Some(ModelInput::Guest(noted)) = model_metadata::input(&job.model)?
        && noted.freeze.contains(',')
    {
        (job.model, _) = job.model.with_cut(&noted.freeze)?;
    }
    let network = job.model.network()?;
    Ok((job, network))
}

/// Returns the last cut before the classifier as freeze cut and split.
fn before_head(network: &Network) -> Result<(String, Split), TrainerError> {
    let cut = network.cuts.iter().rev().find(|cut| cut.before_head);
    let cut = cut.ok_or_else(|| TrainerError::Pixels {
        reason: "no cut precedes the classifier, so a guest cannot serve this network".to_owned(),
    })?;
    Ok((cut.name.clone(), Split::Cut(cut.name.clone())))
}

fn offer(job: &EvaluationJob, network: Network, description: Description) -> Offer {
    Offer {
        root: job.root.clone(),
        network,
        freeze: String::new(),
        on_hosts: None,
        parameters: String::new(),
        description,
        object_bytes: 0,
        encoding: Some(Encoding::F32),
        terms: Terms::default(),
        flow: FLOW,
    }
}
