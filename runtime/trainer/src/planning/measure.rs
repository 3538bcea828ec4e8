//! What is measured before a job starts, and what stands in for what cannot be.

use super::{Here, Unmeasured};
use crate::measure::{
    Together, TrainerProfile, TrainerTask, profiles, reach, read_objects, requested, trainer_profile,
};
use crate::pipeline::FeedPlan;
use crate::plan::{Slowdown, Survey, UsableSplit, Workload};
use crate::setup::{Divided, session_options};
use crate::sources::Sources;
use crate::{Event, Events, Job, Measuring, TrainerError};
use frostline_client::{ClientError, Hosts, Link};
use frostline_wire::{Pin, Platform, ProfileRequest, Split};

/// Real samples whose sizes and decoding are measured: their mean is within a few percent of all, and they take a second.
const SAMPLES: usize = 8;

/// How long a host may let a measurement wait for its turn: what is left of the time it is given ([`frostline_client::Deadlines`]) measures the
/// largest of the paper's networks.
const WAIT_SECONDS: u64 = 30;

/// What a plan rests on.
pub(super) struct Measured {
    pub(super) survey: Survey,
    pub(super) link: Link,
    pub(super) shared_cores: bool,
    /// Why hosts have no profile, by host; where none has one, they are taken to be like this machine.
    pub(super) lacking: Vec<ClientError>,
    /// Whether any host has one.
    pub(super) profiled: bool,
}

/// Measures the link to all hosts, what the network takes there, and what it takes here.
///
/// # Errors
/// [`Unmeasured`] when the link or this machine cannot be measured: then there is nothing to plan by.
#[expect(
    clippy::too_many_arguments,
    reason = "everything a plan rests on meets here, once"
)]
pub(super) async fn measure(
    job: &Job,
    hosts: &Hosts,
    divided: &Divided,
    feed: &FeedPlan,
    possible: &[UsableSplit],
    request: &ProfileRequest,
    here: Option<Here>,
    object_bytes: u64,
    events: &Events,
) -> Result<Measured, Unmeasured> {
    events(Event::Measuring {
        what: Measuring::Link,
    });
    let reached = hosts.each(reach).await;
    let together = Together::of(&reached.map_err(|error| Unmeasured::link(error.into()))?);
    let together = together.ok_or_else(|| Unmeasured::link(TrainerError::Ended { part: "survey" }))?;
    let (profile, lacking) = profiles(hosts, request, events).await;
    let (link, trainer) = match here {
        Some(here) => (here.link, here.trainer),
        None => {
            let trainer = measure_trainer(job, hosts, divided, possible, &request.model.sha256, feed, events);
            (
                as_told(job, together.link),
                trainer.await.map_err(Unmeasured::trainer)?,
            )
        }
    };
    let profiled = profile.is_some();
    let host = profile.unwrap_or_else(|| trainer.as_host());
    let shared_cores = job.shared_cores || same_machine(hosts, &host.platform, &trainer.platform);
    let survey = Survey {
        host,
        trainer,
        object_bytes: object_bytes as f64,
        // On one machine they share its cores, and together do no more than one.
        hosts: if shared_cores { 1 } else { together.count },
        neighbours: together.neighbours,
        slowdown: Slowdown::default(),
    };
    Ok(Measured {
        survey,
        link,
        shared_cores,
        lacking,
        profiled,
    })
}

/// What the hosts are asked to measure.
pub(super) fn request(
    (guest, model): (&Pin, &Pin),
    sources: &Sources,
    feed: &FeedPlan,
    possible: &[UsableSplit],
) -> ProfileRequest {
    ProfileRequest {
        root: sources.root.clone(),
        guest: guest.clone(),
        model: model.clone(),
        parameters: sources.parameters.clone(),
        cuts: cuts(possible),
        samples: requested(&feed.train.spread(SAMPLES)),
        wait_seconds: Some(WAIT_SECONDS),
    }
}

/// The cuts among `possible`.
fn cuts(possible: &[UsableSplit]) -> Vec<String> {
    let name = |possible: &UsableSplit| match &possible.split {
        Split::Cut(name) => Some(name.clone()),
        Split::None | Split::Input => None,
    };
    possible.iter().filter_map(name).collect()
}

/// The link as it is, to all hosts at once, or as the job says.
pub(crate) async fn probe(job: &Job, hosts: &Hosts, events: &Events) -> Result<Link, TrainerError> {
    events(Event::Measuring {
        what: Measuring::Link,
    });
    let links = hosts.each(|client| async move { client.probe().await });
    let together = links.await?.into_iter().reduce(Link::joined);
    Ok(as_told(
        job,
        together.ok_or(TrainerError::Ended { part: "probe" })?,
    ))
}

fn as_told(job: &Job, link: Link) -> Link {
    Link {
        bytes_per_second: job.link_bytes_per_second.unwrap_or(link.bytes_per_second),
        ..link
    }
}

/// What the splits in `possible` take on this machine; `frozen` is the SHA-256 of the frozen layers.
pub(crate) async fn measure_trainer(
    job: &Job,
    hosts: &Hosts,
    divided: &Divided,
    possible: &[UsableSplit],
    frozen: &str,
    feed: &FeedPlan,
    events: &Events,
) -> Result<TrainerProfile, TrainerError> {
    events(Event::Measuring {
        what: Measuring::Trainer,
    });
    let task = TrainerTask {
        model: divided.headed.clone(),
        frozen_sha256: frozen.to_owned(),
        freeze: job.freeze.clone(),
        cuts: cuts(possible),
        pixels: divided.pixels,
        batch: feed.batch.min(feed.train.len()),
        optimizer: job.optimizer,
        options: session_options(job.device, job.threads),
    };
    let objects = feed.train.spread(SAMPLES);
    let (root, wanted) = (&job.root, &objects);
    let read = hosts.first(|client| async move { read_objects(&client, root, wanted).await });
    let objects = async { Ok(read.await?) };
    trainer_profile(task, job.cache.as_ref(), objects).await
}

/// The job, for predictions.
pub(crate) fn workload(job: &Job, feed: &FeedPlan, link: &Link, shared_cores: bool) -> Workload {
    let steps = (feed.train.len().div_ceil(feed.batch) * job.epochs as usize) as u64;
    Workload {
        batch: feed.batch.min(feed.train.len()).max(1),
        iterations: steps.max(1),
        link_bytes_per_second: link.bytes_per_second,
        shared_cores,
        request_share: (job.flow.request_samples as f64 / feed.batch as f64).min(1.0),
    }
}

/// Whether hosts and trainer most likely compute on the same cores: on one machine, on the processor, over loopback.
fn same_machine(hosts: &Hosts, host: &Platform, trainer: &Platform) -> bool {
    let loopback = hosts.are_loopback();
    loopback && host.machine == trainer.machine && host.device == "cpu" && trainer.device == "cpu"
}
