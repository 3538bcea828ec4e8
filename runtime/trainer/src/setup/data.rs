use crate::compute::blocking;
use crate::measure::mean_size;
use crate::pipeline::{FeedPlan, Part};
use crate::{Event, Events, Job, TrainerError};
use frostline_client::{Dataset, Hosts, Listing};
use std::sync::Arc;

/// A job's data: listed, and divided into classes, parts and batches.
pub(super) struct Data {
    pub(super) classes: Vec<String>,
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
            classes: dataset.classes,
            feed,
            object_bytes,
            listed: hosts.bytes_received(),
        })
    }
}

fn divide(job: &Job, listing: Listing) -> Result<(Dataset, FeedPlan, u64), TrainerError> {
    let files = job.guest.takes();
    let dataset = Dataset::from_listing(&job.root, listing, job.validation_share, job.seed, files)?;
    let (train, validation) = (Arc::clone(&dataset.train), Arc::clone(&dataset.validation));
    let feed = FeedPlan {
        epochs: job.epochs,
        seed: job.seed,
        ahead: job.flow.ahead,
        memory_bytes: job.memory_bytes,
        ..FeedPlan::new(train, validation, job.batch)
    };
    let sizes = dataset.train.sizes().chain(dataset.validation.sizes());
    let object_bytes = mean_size(sizes);
    Ok((dataset, feed, object_bytes))
}
