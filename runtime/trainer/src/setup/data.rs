use super::earlier_training::{EarlierTraining, trained_images};
use super::trained_images::TrainedImages;
use crate::evaluation::{Division, ListedSamples, labels};
use crate::event::{first_few, warn};
use crate::measure::mean_size;
use crate::pipeline::{FeedPlan, Part};
use crate::recipe::views;
use crate::{Event, Events, Job, ListedData, Sampling, SettingError, TrainerError, blocking, model_metadata};
use frostline_client::{Dataset, DatasetError, Hosts, LabelTable, Listing, Samples, Task, is_same_name};
use frostline_compute::{Moments, Standard};
use frostline_job::{Conflict, NewHead};
use std::sync::Arc;

/// Divided data of a job.
#[derive(Clone)]
pub(crate) struct JobData {
    /// Names of the outputs.
    pub(crate) classes: Vec<String>,
    pub(super) outputs: Outputs,
    pub(crate) feed: FeedPlan,
    /// Samples that measure the tuned model at the end; empty unless requested.
    pub(crate) test: Arc<Samples>,
    /// Division to record in the tuned model. `None` if the data came divided.
    pub(crate) division: Option<Division>,
    /// Images to record in the tuned model.
    pub(crate) trained_images: TrainedImages,
    /// Mean size of the objects, in bytes.
    pub(super) object_bytes: u64,
    /// Bytes received for the listing.
    pub(crate) listed: u64,
}

/// Outputs of the network.
#[derive(Debug, Clone)]
pub(super) struct Outputs {
    /// Number of training samples by class or label. All counts are 0 for numbers.
    pub(super) samples: Vec<usize>,
    /// For each output, the output of the original model to copy weights from. `None` selects fresh weights.
    pub(super) copied_from: Vec<Option<usize>>,
    pub(super) train_samples: usize,
    /// Mean and deviation of the target numbers over the training samples. `None` if the task is not
    /// regression.
    pub(super) numbers: Option<Standard>,
}

impl JobData {
    /// Lists and divides the data, and reports it with events.
    pub(super) async fn list(job: &Job, hosts: &Hosts, events: &Events) -> Result<Self, TrainerError> {
        let hosts = hosts.metered();
        let listing = hosts.listing(&job.spec.data, job.spec.layout).await?;
        let task = labels::task(job.spec.recipe.loss);
        let table = labels::table(
            (job.spec.labels.as_deref(), job.spec.unlisted),
            &job.spec.data,
            &listing,
            &hosts,
            task,
        )
        .await?;
        let for_dataset = job.clone();
        let divided = blocking(move || divide(&for_dataset, listing, table));
        let (dataset, feed, earlier) = divided.await?;
        let sizes = dataset.train.sizes().chain(dataset.validation.sizes());
        let object_bytes = mean_size(sizes);
        earlier.report(events);
        let kept = kept_outputs(job, dataset.task, &dataset.classes, events)?;
        if dataset.left_out.objects > 0 {
            events(Event::LeftOut(dataset.left_out.clone()));
        }
        for warning in &dataset.warnings {
            warn(events, warning.to_string());
        }
        events(Event::Dataset(ListedData {
            task: dataset.task,
            classes: dataset.classes.clone(),
            train: dataset.train.len(),
            validation: dataset.validation.len(),
            steps_per_epoch: feed.batches(Part::Train),
            epochs: job.spec.recipe.epochs,
        }));
        if feed.batches(Part::Train) == 1 {
            warn(events, single_step(job.spec.recipe.batch, dataset.train.len()));
        }
        Ok(Self {
            outputs: outputs(&dataset, kept),
            division: earlier.record(
                job,
                Division::from_dataset(&dataset, job.spec.validation, job.spec.division_seed()),
            ),
            trained_images: trained_images(job, &dataset),
            classes: dataset.classes,
            test: if job.spec.test {
                dataset.test
            } else {
                Arc::default()
            },
            feed,
            object_bytes,
            listed: hosts.bytes_received(),
        })
    }
}

fn single_step(batch: usize, train: usize) -> String {
    format!(
        "each epoch is a single step: the batch is {batch} and the data has {train} training images; use a smaller batch for more steps"
    )
}

/// Number of names in a message.
const SHOWN: usize = 8;

/// Maps each class to the model's output for that class if the job keeps the model's classifier. Warns about
/// new and dropped classes.
///
/// # Errors
/// Returns [`TrainerError::Setting`] if the classifier cannot be kept.
fn kept_outputs(
    job: &Job,
    task: Task,
    classes: &[String],
    events: &Events,
) -> Result<Vec<Option<usize>>, TrainerError> {
    if job.spec.head != NewHead::Keep {
        return Ok(vec![None; classes.len()]);
    }
    if job.spec.recipe.standardize {
        let must = "cannot standardize a kept classifier; disable either setting";
        let error = SettingError::new("head", "keep", must);
        return Err(error.with_conflict(Conflict::KeptStandardized).into());
    }
    let Some((known_task, known)) = model_metadata::outputs(&job.model) else {
        let must = "the model metadata contains no class names; use a model that frostline tuned, or replace the classifier";
        return Err(head_not_kept(must).into());
    };
    if known_task != task {
        let must =
            format!("the model predicts {known_task}, but the data has {task}; replace the classifier");
        return Err(head_not_kept(must).into());
    }
    let kept: Vec<Option<usize>> = classes
        .iter()
        .map(|class| known.iter().position(|known| is_same_name(known, class)))
        .collect();
    if kept.iter().all(Option::is_none) {
        let must = format!(
            "the model has none of the {task} in the data, only {}; replace the classifier",
            first_few(known.iter(), SHOWN)
        );
        return Err(head_not_kept(must).into());
    }
    let added: Vec<String> = std::iter::zip(classes, &kept)
        .filter(|(_, output)| output.is_none())
        .map(|(class, _)| class.clone())
        .collect();
    let dropped: Vec<String> = (0..)
        .zip(known)
        .filter(|(output, _)| !kept.contains(&Some(*output)))
        .map(|(_, class)| class)
        .collect();
    for (which, becomes) in [
        (added, "not in the model, trained from scratch"),
        (dropped, "not in the data, left out of the model"),
    ] {
        if !which.is_empty() {
            warn(
                events,
                format!("{task} {becomes}: {}", first_few(which.iter(), SHOWN)),
            );
        }
    }
    Ok(kept)
}

fn head_not_kept(must: impl Into<String>) -> SettingError {
    SettingError::new("head", "keep", must).with_conflict(Conflict::HeadNotKept)
}

/// Counts the positive training samples of each output; all counts are 0 for numbers.
fn outputs(dataset: &Dataset, copied_from: Vec<Option<usize>>) -> Outputs {
    let mut samples = vec![0; dataset.classes.len()];
    for index in 0..dataset.train.len() {
        let class = dataset.train.label(index).map(|class| class as usize);
        let flags = dataset
            .train
            .values(index)
            .filter(|_| dataset.task == Task::Labels);
        let yes = flags
            .into_iter()
            .flatten()
            .enumerate()
            .filter(|(_, flag)| **flag > 0.5);
        for output in yes.map(|(output, _)| output).chain(class) {
            samples
                .get_mut(output)
                .into_iter()
                .for_each(|count: &mut usize| *count += 1);
        }
    }
    Outputs {
        samples,
        copied_from,
        train_samples: dataset.train.len(),
        numbers: numbers(dataset),
    }
}

/// Mean and deviation of the target numbers over the training samples. Returns `None` if the task is not
/// regression.
fn numbers(dataset: &Dataset) -> Option<Standard> {
    let mut moments = Moments::default();
    for index in (0..dataset.train.len()).filter(|_| dataset.task == Task::Numbers) {
        let values = dataset.train.values(index).unwrap_or_default();
        moments.add_values(values, values.len(), 1);
    }
    (dataset.task == Task::Numbers).then(|| moments.standard())
}

/// Divides the data and plans the batches.
fn divide(
    job: &Job,
    listing: Listing,
    table: Option<LabelTable>,
) -> Result<(Dataset, FeedPlan, EarlierTraining), TrainerError> {
    let data = ListedSamples {
        root: &job.spec.data,
        listing,
        table,
        files: job.guest.takes(),
    };
    let listed = data.clone();
    let dataset = data.divide(job.spec.validation, job.spec.division_seed())?;
    let earlier = EarlierTraining::find(job, listed, &dataset)?;
    if dataset.task != Task::Classes && job.spec.recipe.sampling == Sampling::Balanced {
        let must = "balanced sampling requires a class for each sample; use class_weights instead";
        return Err(SettingError::new("sampling", "balanced", must).into());
    }
    if job.spec.test && dataset.test.is_empty() {
        let root = job.spec.data.clone();
        return Err(TrainerError::Dataset(DatasetError::NoPart {
            root,
            part: frostline_client::Part::Test,
        }));
    }
    let train = Arc::clone(&dataset.train);
    let validation = Arc::clone(&dataset.validation);
    let feed = FeedPlan {
        task: dataset.task,
        epochs: job.spec.recipe.epochs,
        initial_train_pass: job.spec.recipe.standardize,
        seed: job.spec.recipe.seed,
        sampling: job.spec.recipe.sampling,
        views: views(&job.spec.recipe),
        ahead: job.spec.prefetch,
        memory_bytes: job.spec.memory_bytes,
        ..FeedPlan::new(train, validation, job.spec.recipe.batch)
    };
    Ok((dataset, feed, earlier))
}
