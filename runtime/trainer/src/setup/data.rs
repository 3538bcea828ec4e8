use crate::compute::blocking;
use crate::evaluation::labels;
use crate::evaluation::{Division, ListedSamples};
use crate::measure::mean_size;
use crate::pipeline::{FeedPlan, Part};
use crate::recipe::views;
use crate::standard::{Moments, Standard};
use crate::{Event, Events, Job, Sampling, SettingError, TrainerError};
use frostline_client::{Dataset, DatasetError, Hosts, LabelTable, Listing, Samples, Task};
use std::sync::Arc;

/// A job's data: listed, and divided into classes, parts and batches.
#[derive(Clone)]
pub(crate) struct Data {
    /// Names of the outputs.
    pub(crate) classes: Vec<String>,
    pub(super) outputs: Outputs,
    pub(crate) feed: FeedPlan,
    /// Those to measure the tuned model with in the end; none where that is not wanted.
    pub(crate) test: Arc<Samples>,
    /// How the job divided them; nothing of data that came divided.
    pub(crate) division: Option<Division>,
    /// Mean size of the objects, in bytes.
    pub(super) object_bytes: u64,
    /// Bytes received for the listing.
    pub(crate) listed: u64,
}

/// What the network is to give.
#[derive(Debug, Clone)]
pub(super) struct Outputs {
    /// Training samples of each class or label; 0 of a number.
    pub(super) samples: Vec<usize>,
    /// Training samples.
    pub(super) of: usize,
    /// How each number spreads over them; of others nothing.
    pub(super) numbers: Option<Standard>,
}

impl Data {
    /// Lists the data, and tells what they are.
    pub(super) async fn list(job: &Job, hosts: &Hosts, events: &Events) -> Result<Self, TrainerError> {
        let hosts = hosts.metered();
        let listing = hosts.listing(&job.spec.data, job.spec.layout).await?;
        let task = labels::task(job.spec.recipe.loss);
        let table = labels::table(job.spec.labels.as_deref(), &job.spec.data, &listing, &hosts, task).await?;
        let for_dataset = job.clone();
        let (dataset, feed, object_bytes) = blocking(move || divide(&for_dataset, listing, table)).await?;
        if dataset.left_out.objects > 0 {
            events(Event::LeftOut(dataset.left_out.clone()));
        }
        events(Event::Dataset {
            task: dataset.task,
            classes: dataset.classes.clone(),
            train: dataset.train.len(),
            validation: dataset.validation.len(),
            steps_per_epoch: feed.batches(Part::Train),
            epochs: job.spec.recipe.epochs,
        });
        if feed.batches(Part::Train) == 1 {
            let (batch, train) = (job.spec.recipe.batch, dataset.train.len());
            let message = format!(
                "an epoch is one step: a batch takes {batch} of {train} training images; a smaller --batch trains in more steps"
            );
            events(Event::Warning { message });
        }
        Ok(Self {
            outputs: outputs(&dataset),
            division: Division::from_dataset(&dataset, job.spec.validation, job.spec.division_seed()),
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

/// How many training samples say yes to each output; of numbers, 0.
fn outputs(dataset: &Dataset) -> Outputs {
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
        of: dataset.train.len(),
        numbers: numbers(dataset),
    }
}

/// How each number spreads over the training samples; of other tasks nothing.
fn numbers(dataset: &Dataset) -> Option<Standard> {
    let mut moments = Moments::default();
    for index in (0..dataset.train.len()).filter(|_| dataset.task == Task::Numbers) {
        let values = dataset.train.values(index).unwrap_or_default();
        moments.add_values(values, values.len(), 1);
    }
    (dataset.task == Task::Numbers).then(|| moments.standard())
}

fn divide(
    job: &Job,
    listing: Listing,
    table: Option<LabelTable>,
) -> Result<(Dataset, FeedPlan, u64), TrainerError> {
    let data = ListedSamples {
        root: &job.spec.data,
        listing,
        table,
        files: job.guest.takes(),
    };
    let dataset = data.divide(job.spec.validation, job.spec.division_seed())?;
    if dataset.task != Task::Classes && job.spec.recipe.sampling == Sampling::Balanced {
        return Err(TrainerError::from(SettingError {
            what: "sampling",
            value: "balanced".to_owned(),
            must: "multi-label samples have no class to draw by; remove it, or use class_weights".to_owned(),
        }));
    }
    if job.spec.test && dataset.test.is_empty() {
        let root = job.spec.data.clone();
        return Err(TrainerError::Dataset(DatasetError::NoPart {
            root,
            part: frostline_client::Part::Test,
        }));
    }
    let (train, validation) = (Arc::clone(&dataset.train), Arc::clone(&dataset.validation));
    let feed = FeedPlan {
        task: dataset.task,
        epochs: job.spec.recipe.epochs,
        looks: job.spec.recipe.standardize,
        seed: job.spec.recipe.seed,
        sampling: job.spec.recipe.sampling,
        views: views(&job.spec.recipe),
        ahead: job.spec.prefetch,
        memory_bytes: job.spec.memory_bytes,
        ..FeedPlan::new(train, validation, job.spec.recipe.batch)
    };
    let sizes = dataset.train.sizes().chain(dataset.validation.sizes());
    let object_bytes = mean_size(sizes);
    Ok((dataset, feed, object_bytes))
}
