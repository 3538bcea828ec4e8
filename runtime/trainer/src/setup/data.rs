use crate::compute::blocking;
use crate::evaluation::labels;
use crate::evaluation::{Divided, Division, ListedSamples};
use crate::measure::mean_size;
use crate::pipeline::{FeedPlan, Part};
use crate::recipe::views;
use crate::standard::{Moments, Standard};
use crate::{Event, Events, Job, Sampling, SettingError, TrainerError, notes};
use frostline_client::{Dataset, DatasetError, Hosts, LabelTable, Listing, Samples, Task};
use frostline_job::NewHead;
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
    /// Of each the output of the model whose weights it starts from; none starts afresh.
    pub(super) kept: Vec<Option<usize>>,
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
        let table = labels::table(
            (job.spec.labels.as_deref(), job.spec.unlisted),
            &job.spec.data,
            &listing,
            &hosts,
            task,
        )
        .await?;
        let for_dataset = job.clone();
        let divided = blocking(move || divide(&for_dataset, listing, table)).await?;
        let DividedData {
            dataset,
            feed,
            object_bytes,
            earlier,
        } = divided;
        earlier.report(events);
        let kept = known_outputs(job, dataset.task, &dataset.classes, events)?;
        if dataset.left_out.objects > 0 {
            events(Event::LeftOut(dataset.left_out.clone()));
        }
        for side in &dataset.one_sided {
            let message = side.to_string();
            events(Event::Warning { message });
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
            outputs: outputs(&dataset, kept),
            division: Division::from_dataset(&dataset, job.spec.validation, job.spec.division_seed())
                .map(|division| earlier.mark(division)),
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

/// Of each class the output of the model that knows it, where the job keeps the model's classifier; what does not agree is said.
fn known_outputs(
    job: &Job,
    task: Task,
    classes: &[String],
    events: &Events,
) -> Result<Vec<Option<usize>>, TrainerError> {
    if job.spec.head != NewHead::Keep {
        return Ok(vec![None; classes.len()]);
    }
    let refused = |must: String| SettingError {
        what: "--head",
        value: "keep".to_owned(),
        must,
    };
    if job.spec.recipe.standardize {
        let must =
            "a classifier that is kept reads features as they are; leave out --standardize or --head keep";
        return Err(refused(must.to_owned()).into());
    }
    let Some((known_task, known)) = notes::outputs(&job.model) else {
        let must =
            "the model does not name its classes, as models do that frostline tuned; leave out --head keep";
        return Err(refused(must.to_owned()).into());
    };
    if known_task != task {
        let must = format!("the model gives {known_task}, the data have {task}; leave out --head keep");
        return Err(refused(must).into());
    }
    let place = |class: &String| known.iter().position(|known| known == class);
    let kept: Vec<Option<usize>> = classes.iter().map(place).collect();
    if kept.iter().all(Option::is_none) {
        let must = format!(
            "the model knows none of the data's {task}, it knows {}; leave out --head keep",
            first_few(&known)
        );
        return Err(refused(must).into());
    }
    let added: Vec<String> = classes
        .iter()
        .filter(|class| !known.contains(class))
        .cloned()
        .collect();
    let dropped: Vec<String> = known
        .into_iter()
        .filter(|class| !classes.contains(class))
        .collect();
    for (which, becomes) in [
        (added, "new to the model: trained afresh"),
        (dropped, "not in the data: left out of the model"),
    ] {
        if !which.is_empty() {
            let message = format!("{task} {}: {}", becomes, first_few(&which));
            events(Event::Warning { message });
        }
    }
    Ok(kept)
}

/// Some names, for a message.
fn first_few(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    let more = if names.len() > SHOWN { ", .." } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// How many training samples say yes to each output; of numbers, 0.
fn outputs(dataset: &Dataset, kept: Vec<Option<usize>>) -> Outputs {
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
        kept,
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

/// Data in parts.
struct DividedData {
    dataset: Dataset,
    feed: FeedPlan,
    object_bytes: u64,
    earlier: EarlierTraining,
}

/// What is known of the images that a model was trained on before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EarlierTraining {
    /// None of them is validated with.
    Known,
    /// Some of them may be.
    Unknown,
}

impl EarlierTraining {
    fn report(self, events: &Events) {
        if self == Self::Unknown {
            let message = "the data have changed since the model was trained on a part of them: validation may include images of that part; \
                           name the parts train/ and validation/ yourself";
            events(Event::Warning {
                message: message.to_owned(),
            });
        }
    }

    /// What a tuned model carries of the `division` it was made with.
    fn mark(self, division: Division) -> Division {
        match self {
            Self::Known => division,
            Self::Unknown => division.with_unknown_past(),
        }
    }
}

/// What the model, where its classifier is kept, was trained on before of `data`, which are a `dataset` now.
///
/// # Errors
/// [`TrainerError::Setting`] where it was trained on images that the job would validate with: its accuracy would mean nothing.
fn earlier_training(
    job: &Job,
    data: ListedSamples<'_>,
    dataset: &Dataset,
) -> Result<EarlierTraining, TrainerError> {
    let keeps = job.spec.head == NewHead::Keep && job.spec.validation.is_some();
    let Some(before) = notes::division(&job.model).filter(|_| keeps) else {
        return Ok(EarlierTraining::Known);
    };
    let known = notes::outputs(&job.model).map(|(_, names)| names);
    let only = known.filter(|_| dataset.task == Task::Classes);
    let trained = match before.reproduce_classes(data, only.as_deref()) {
        Divided::Same { trained, .. } => trained,
        Divided::Others => return Ok(EarlierTraining::Unknown),
        Divided::Already => return Ok(EarlierTraining::Known),
    };
    let validated = dataset.validation.iter();
    let leaked = validated
        .filter(|(sample, _)| trained.contains(&sample.sample.key))
        .count();
    if leaked == 0 {
        return Ok(EarlierTraining::Known);
    }
    let count = dataset.validation.len();
    let must = format!(
        "the model was trained on {leaked} of the {count} images that this would validate with; {} divides as its training did",
        before.flags()
    );
    let value = job.spec.validation.map(|share| share.to_string());
    Err(TrainerError::from(SettingError {
        what: "--validation",
        value: value.unwrap_or_default(),
        must,
    }))
}

fn divide(job: &Job, listing: Listing, table: Option<LabelTable>) -> Result<DividedData, TrainerError> {
    let data = ListedSamples {
        root: &job.spec.data,
        listing,
        table,
        files: job.guest.takes(),
    };
    let listed = data.clone();
    let dataset = data.divide(job.spec.validation, job.spec.division_seed())?;
    let earlier = earlier_training(job, listed, &dataset)?;
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
    Ok(DividedData {
        dataset,
        feed,
        object_bytes,
        earlier,
    })
}
