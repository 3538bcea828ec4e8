//! Gathers what a plan rests on: the host's profile, this machine's, the link.

use crate::choice::{Chosen, Offer};
use crate::client::{Link, Waits};
use crate::pipeline::FeedPlan;
use crate::plan::{Explanation, Layers, Policy, Seen, Summary, Survey, Workload};
use crate::planner::Planner;
use crate::profile::{Together, TrainerTask, look, read_objects, requested, trainer_profile};
use crate::setup::{Divided, session_options};
use crate::sources::Sources;
use crate::{ClientError, Event, Events, Hosts, Job, Measuring, Possible, TrainerError, TrainerProfile};
use frostline_wire::{ErrorClass, Pin, Place, ProfileRequest, Split};
use std::collections::HashSet;
use std::time::Instant;

/// Real samples whose sizes and decoding are measured: their mean is within a few percent of all, and they take a second.
const SAMPLES: usize = 8;

/// What is known before a job is measured.
#[derive(Default)]
pub(crate) struct Known {
    /// Link and trainer, where they were measured already.
    pub(crate) measured: Option<Here>,
    /// Where the frozen layers are.
    pub(crate) layers: Layers,
}

/// What can be measured without the frozen layers on the host.
pub(crate) struct Here {
    pub(crate) link: Link,
    pub(crate) trainer: TrainerProfile,
}

/// A split by `policy`, and the planner that watches over it; where nothing can be measured, the split with the fewest bytes.
///
/// # Errors
/// [`TrainerError`]; [`TrainerError::Policy`] when no split fits the policy, [`TrainerError::Memory`] when none fits the memory.
#[expect(clippy::too_many_arguments, reason = "all that was prepared meets here, once")]
pub(crate) async fn choose(
    job: &Job,
    policy: &Policy,
    hosts: &Hosts,
    divided: &Divided,
    offer: &Offer<'_>,
    sources: &Sources,
    feed: &FeedPlan,
    known: Known,
) -> Result<(Chosen, Option<Planner>), TrainerError> {
    let (Some(guest), Some(model), Some(_)) = (&sources.guest, &sources.model, &sources.pixels) else {
        let why = "nothing was measured, because the guest makes the network's input itself";
        return Ok((offer.unmeasured(policy, why)?, None));
    };
    let possible = fitting(job, offer, sources, feed)?;
    let measured = measure(
        job,
        hosts,
        divided,
        offer,
        (guest, model),
        sources,
        feed,
        possible,
        known.measured,
    )
    .await;
    let planner = match measured {
        Ok(planner) => planner.with_layers(known.layers),
        Err(TrainerError::Client(ClientError::Refused {
            class: ErrorClass::Request | ErrorClass::NotFound,
            message,
            ..
        })) => {
            return Ok((
                offer.unmeasured(policy, &format!("nothing was measured: {message}"))?,
                None,
            ));
        }
        Err(error) => return Err(error),
    };
    started(planner, policy)
}

/// Plans a job without running it: uploads what is missing, measures what was not measured yet, and chooses.
///
/// # Errors
/// As [`crate::train`]; [`TrainerError::Unplannable`] where nothing can be measured.
pub async fn plan(job: Job, hosts: impl Into<Hosts>, events: Events) -> Result<Planned, TrainerError> {
    let hosts = hosts.into().for_job(&events, Waits::default());
    let prepared = crate::setup::prepare(&job, true, &hosts, &events).await?;
    let planner = prepared.planner.ok_or_else(|| TrainerError::Unplannable {
        reason: prepared.chosen.reason.clone(),
    })?;
    let started = Instant::now();
    let unfit = || TrainerError::Policy {
        policy: job.split.to_string(),
    };
    let plan = planner.plan().ok_or_else(unfit)?;
    let took = started.elapsed();
    let chosen = plan.chosen().ok_or_else(unfit)?;
    let flow = planner.flow(&chosen.candidate);
    Ok(Planned {
        summary: planner.summary(&plan, flow).ok_or_else(unfit)?,
        explanation: planner.explain(&plan),
        workload: *planner.workload(),
        link: planner.link(),
        seconds: took.as_secs_f64(),
    })
}

/// What [`plan`] found.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// The choice and all candidates.
    pub summary: Summary,
    /// The same in words.
    pub explanation: Explanation,
    /// The job it is for.
    pub workload: Workload,
    /// The link as it was measured; with several hosts, all links together.
    pub link: Link,
    /// What choosing took, measuring aside.
    pub seconds: f64,
}

/// The planner's choice in words, and the planner on its way.
pub(crate) fn started(
    mut planner: Planner,
    policy: &Policy,
) -> Result<(Chosen, Option<Planner>), TrainerError> {
    let unfit = || TrainerError::Policy {
        policy: policy.to_string(),
    };
    let plan = planner.plan().ok_or_else(unfit)?;
    let candidate = plan.chosen().ok_or_else(unfit)?.candidate.clone();
    let Explanation { headline, layers, .. } = planner.explain(&plan);
    let chosen = Chosen {
        split: candidate.split.clone(),
        encoding: candidate.encoding,
        bytes_per_sample: candidate.bytes_per_sample,
        reason: [Some(headline), layers]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("; "),
        flow: planner.flow(&candidate),
    };
    planner.start(candidate);
    Ok((chosen, Some(planner)))
}

/// The possible splits of which two batches fit the job's memory: the candidates by their shape, all where there are few.
pub(crate) fn fitting(
    job: &Job,
    offer: &Offer<'_>,
    sources: &Sources,
    feed: &FeedPlan,
) -> Result<Vec<Possible>, TrainerError> {
    let mut fitting = Vec::new();
    let mut refusal = None;
    let considered = |possible: &Possible| {
        let only = job.candidates.as_ref();
        only.is_none_or(|only| only.contains(&possible.split))
    };
    for possible in offer.possible()?.into_iter().filter(considered) {
        let encoding = possible.encodings.first().copied().unwrap_or_default();
        match feed.check_memory(&sources.at(&possible.split, encoding, job.flow.request_samples)?) {
            Ok(()) => fitting.push(possible),
            Err(error) => refusal = Some(error),
        }
    }
    match refusal {
        Some(error) if fitting.is_empty() => Err(error),
        _ => Ok(fitting),
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "everything a plan rests on meets here, once"
)]
pub(crate) async fn measure(
    job: &Job,
    hosts: &Hosts,
    divided: &Divided,
    offer: &Offer<'_>,
    (guest, model): (&Pin, &Pin),
    sources: &Sources,
    feed: &FeedPlan,
    possible: Vec<Possible>,
    here: Option<Here>,
) -> Result<Planner, TrainerError> {
    let possible = worthwhile(job, divided, possible)?;
    let objects = feed.train.spread(SAMPLES);
    let request = ProfileRequest {
        root: sources.root.clone(),
        guest: guest.clone(),
        model: model.clone(),
        parameters: sources.parameters.clone(),
        cuts: cuts(&possible),
        samples: requested(&objects),
        wait_seconds: None,
    };
    hosts.tell(Event::Measuring {
        what: Measuring::Host,
    });
    let looks = hosts.each(|host| look(hosts.client(&host), &request)).await?;
    let together = Together::of(looks).ok_or(TrainerError::Ended { part: "survey" })?;
    let host = together.slowest;
    let (link, trainer) = match here {
        Some(here) => (here.link, here.trainer),
        None => {
            let trainer = measure_trainer(job, hosts, divided, &possible, &model.sha256, feed).await?;
            (as_told(job, together.link), trainer)
        }
    };
    let shared_cores = job.shared_cores || same_machine(hosts, &host.place, &trainer.place);
    let survey = Survey {
        host,
        trainer,
        object_bytes: offer.object_bytes as f64,
        // On one machine they share its cores, and together do no more than one.
        hosts: if shared_cores { 1 } else { together.count },
        neighbours: together.neighbours,
        seen: Seen::default(),
    };
    Ok(Planner::new(
        survey,
        possible,
        workload(job, feed, &link, shared_cores),
        link,
        job.split.clone(),
        job.flow,
    ))
}

/// `none`, `input` and the cuts that are worth measuring.
pub(crate) fn worthwhile(
    job: &Job,
    divided: &Divided,
    possible: Vec<Possible>,
) -> Result<Vec<Possible>, TrainerError> {
    let candidates = frostline_profile::candidates(&divided.headed, &divided.network, &job.freeze)?;
    let worthwhile: HashSet<&str> = candidates.iter().map(|cut| cut.name.as_str()).collect();
    let wanted = |possible: &Possible| match &possible.split {
        Split::Cut(name) => job.candidates.is_some() || worthwhile.contains(name.as_str()),
        Split::None | Split::Input => true,
    };
    Ok(possible.into_iter().filter(wanted).collect())
}

/// The cuts among `possible`.
fn cuts(possible: &[Possible]) -> Vec<String> {
    let name = |possible: &Possible| match &possible.split {
        Split::Cut(name) => Some(name.clone()),
        Split::None | Split::Input => None,
    };
    possible.iter().filter_map(name).collect()
}

/// The link as it is, to all hosts at once, or as the job says.
pub(crate) async fn probe(job: &Job, hosts: &Hosts) -> Result<Link, TrainerError> {
    hosts.tell(Event::Measuring {
        what: Measuring::Link,
    });
    let links = hosts.each(|host| {
        let client = hosts.client(&host);
        async move { client.probe().await }
    });
    let together = links.await?.into_iter().reduce(Link::beside);
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
    possible: &[Possible],
    frozen: &str,
    feed: &FeedPlan,
) -> Result<TrainerProfile, TrainerError> {
    hosts.tell(Event::Measuring {
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
    let objects = hosts.first(|client| async move { read_objects(&client, root, wanted).await });
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
fn same_machine(hosts: &Hosts, host: &Place, trainer: &Place) -> bool {
    let loopback = hosts.are_loopback();
    loopback && host.machine == trainer.machine && host.device == "cpu" && trainer.device == "cpu"
}
