use crate::compute::blocking;
use crate::measure::mean_size;
use crate::pipeline::{FeedPlan, Part};
use crate::{Event, Events, Job, TrainerError};
use frostline_client::{Dataset, Hosts, Listing};
use std::sync::Arc;

/// A job's data: listed, and divided into classes, parts and batches.
pub(super) struct Data {
    pub(super) classes: Vec<String>,
    /// Training samples of each class.
    pub(super) counts: Vec<usize>,
    pub(super) feed: FeedPlan,
    /// Mean size of the objects, in bytes.
    pub(super) object_bytes: u64,
    /// Bytes received for the listing.
    pub(super) listed: u64,
}

impl Data {
    /// Lists the data, and tells what they are.
    pub(super) async fn list(job: &Job, hosts: &Hosts, events: &Events) -> Result<Self, TrainerError> {
        let hosts = hosts.metered();
        let listing = hosts.listing(&job.root, job.layout).await?;
        let for_dataset = job.clone();
        let (dataset, feed, object_bytes) = blocking(move || divide(&for_dataset, listing)).await?;
        if dataset.left_out.objects > 0 {
            events(Event::LeftOut(dataset.left_out.clone()));
        }
        events(Event::Dataset {
            classes: dataset.classes.clone(),
            train: dataset.train.len(),
            validation: dataset.validation.len(),
            steps_per_epoch: feed.batches(Part::Train),
        });
        Ok(Self {
            counts: counts(&dataset),
            classes: dataset.classes,
            feed,
            object_bytes,
            listed: hosts.bytes_received(),
        })
    }
}

/// Training samples of each class.
fn counts(dataset: &Dataset) -> Vec<usize> {
    let mut counts = vec![0; dataset.classes.len()];
    for index in 0..dataset.train.len() {
        let class = dataset
            .train
            .label(index)
            .and_then(|class| counts.get_mut(class as usize));
        class.into_iter().for_each(|count: &mut usize| *count += 1);
    }
    counts
}

fn divide(job: &Job, listing: Listing) -> Result<(Dataset, FeedPlan, u64), TrainerError> {
    let files = job.guest.takes();
    let dataset = Dataset::from_listing(&job.root, listing, job.validation_share, job.recipe.seed, files)?;
    let (train, validation) = (Arc::clone(&dataset.train), Arc::clone(&dataset.validation));
    let feed = FeedPlan {
        epochs: job.recipe.epochs,
        seed: job.recipe.seed,
        sampling: job.recipe.sampling,
        ahead: job.flow.ahead,
        memory_bytes: job.memory_bytes,
        ..FeedPlan::new(train, validation, job.recipe.batch)
    };
    let sizes = dataset.train.sizes().chain(dataset.validation.sizes());
    let object_bytes = mean_size(sizes);
    Ok((dataset, feed, object_bytes))
}
