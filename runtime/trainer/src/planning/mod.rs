//! Gathers what a plan rests on: the host's profile, this machine's, the link.

mod measure;

pub(crate) use measure::{measure_trainer, probe, workload};

use crate::choice::Offer;
use crate::event::notices;
use crate::measure::TrainerProfile;
use crate::pipeline::FeedPlan;
use crate::plan::{Chosen, Explanation, Layers, LinkPoint, Planner, Policy, Summary, UsableSplit};
use crate::replan::{AwaitedProfile, Watch};
use crate::setup::Divided;
use crate::sources::Sources;
use crate::{Event, Events, Job, ProfileState, TrainerError};
use frostline_client::{ClientError, Hosts, Link, Waits};
use frostline_wire::{ErrorClass, Split};
use measure::{Measured, measure, request};
use std::collections::HashSet;
use std::time::Instant;

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

/// What has to be measured for any plan, and could not be.
pub(crate) struct Unmeasured {
    what: &'static str,
    source: TrainerError,
    /// Whether the job cannot be run either.
    fatal: bool,
}

impl Unmeasured {
    /// The link: a host that refuses to be probed may serve all the same, one that cannot be reached or trusts nobody does not.
    fn link(source: TrainerError) -> Self {
        let refused = |error: &TrainerError| match error {
            TrainerError::Client(ClientError::Refused { class, .. }) => *class != ErrorClass::Unauthorized,
            TrainerError::Client(ClientError::NoHost { source, .. }) => source.is_busy(),
            _ => false,
        };
        Self {
            what: "the link",
            fatal: !refused(&source),
            source,
        }
    }

    /// This machine, say for want of memory beside all else that it does. What the job needs as well will fail there again.
    fn trainer(source: TrainerError) -> Self {
        Self {
            what: "this machine",
            fatal: false,
            source,
        }
    }
}

/// A split by `policy`, and what watches over it. Without the hosts' profile a job starts by the rule of bytes, with the hosts taken to
/// be like this machine until it is seen what they do; where nothing can be measured at all, it stays there.
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
    events: &Events,
) -> Result<(Chosen, Option<Watch>), TrainerError> {
    let possible = fitting(job, offer, sources, feed)?;
    let (Some(guest), Some(model), Some(_)) = (&sources.guest, &sources.model, &sources.pixels) else {
        let why = "nothing was measured, because the guest makes the network's input itself";
        return Ok((offer.by_bytes(policy, &possible, why)?, None));
    };
    let possible = worthwhile(job, divided, possible)?;
    let request = request((guest, model), sources, feed, &possible);
    let here = known.measured;
    let measured = measure(
        job,
        hosts,
        divided,
        feed,
        &possible,
        &request,
        here,
        offer.object_bytes,
        events,
    )
    .await;
    let Measured {
        survey,
        link,
        shared_cores,
        lacking,
        profiled,
    } = match measured {
        Ok(measured) => measured,
        Err(unmeasured) if unmeasured.fatal => return Err(unmeasured.source),
        Err(Unmeasured { what, source, .. }) => {
            let why = format!("{what} could not be measured: {source}");
            return Ok((offer.by_bytes(policy, &possible, &why)?, None));
        }
    };
    let workload = workload(job, feed, &link, shared_cores);
    let planner = Planner {
        survey,
        splits: possible,
        workload,
        link,
        policy: policy.clone(),
        most: job.flow,
        layers: known.layers,
    };
    let Some(error) = lacking.first() else {
        return started(planner, events);
    };
    if profiled {
        let reason = format!("{error}; taken to be no slower than the slowest of the others");
        tell_missing(events, reason);
        return started(planner, events);
    }
    if refuses_layers(error) && may_stay_here(job) {
        return Ok((offer.here(&error.to_string())?, None));
    }
    let again = lacking.iter().all(ClientError::may_pass_later);
    let awaited = again.then(|| AwaitedProfile::ask(hosts, request, events));
    let then = if again {
        "; they are asked again meanwhile"
    } else {
        ""
    };
    tell_missing(
        events,
        format!(
            "the hosts have no profile ({error}): the job starts by the rule of bytes, and measures while it runs{then}"
        ),
    );
    let chosen = offer.by_bytes(
        policy,
        &planner.splits,
        &format!("the hosts have no profile: {error}"),
    )?;
    guessed(planner, chosen, awaited, events)
}

fn tell_missing(events: &Events, reason: String) {
    events(Event::Profile {
        state: ProfileState::Missing,
        reason,
    });
}

/// The split `chosen` without the hosts' profile, as a planner asks for it that takes them to be like this machine.
fn guessed(
    planner: Planner,
    chosen: Chosen,
    awaited: Option<AwaitedProfile>,
    events: &Events,
) -> Result<(Chosen, Option<Watch>), TrainerError> {
    let Some(first) = planner.candidate(&chosen.split) else {
        return Ok((chosen, None));
    };
    let chosen = planner.chosen(&first, chosen.reason);
    Ok((chosen, Some(Watch::guessed(planner, first, awaited, events))))
}

/// Whether a host that refuses the frozen layers leaves a job that can do without it: the split is open, and with the stock guest
/// everything it does there can be done here.
pub(crate) fn may_stay_here(job: &Job) -> bool {
    let open = job.split == Policy::Auto && job.guest.is_stock();
    let allowed = job
        .candidates
        .as_ref()
        .is_none_or(|only| only.contains(&Split::None));
    open && allowed
        && job
            .encoding
            .is_none_or(|encoding| encoding == frostline_wire::Encoding::F32)
}

/// Whether a host says that it does not take these layers, or cannot run them, whoever asks and whenever.
pub(crate) fn refuses_layers(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Refused {
            class: ErrorClass::TooLarge | ErrorClass::Guest,
            ..
        }
    )
}

/// Plans a job without running it: uploads what is missing, measures what was not measured yet, and chooses.
///
/// # Errors
/// As [`crate::train`]; [`TrainerError::Unplannable`] where nothing can be measured.
pub async fn plan(job: Job, hosts: impl Into<Hosts>, events: Events) -> Result<Planned, TrainerError> {
    let hosts = hosts.into().for_job(notices(&events), Waits::default());
    let prepared = crate::setup::prepare(&job, true, &hosts, &events).await?;
    let planner = prepared.watch.as_ref().and_then(Watch::planner);
    let planner = planner.ok_or_else(|| TrainerError::Unplannable {
        reason: format!("'{}', {}", prepared.chosen.split, prepared.chosen.reason),
    })?;
    let started = Instant::now();
    let plan = planner.plan().ok_or_else(|| planner.unfit())?;
    let took = started.elapsed();
    Ok(Planned {
        summary: planner.summary(&plan).ok_or_else(|| planner.unfit())?,
        explanation: planner.explain(&plan),
        link: planner.link,
        over_links: planner.over_links(),
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
    /// The link as it was measured; with several hosts, all links together.
    pub link: Link,
    /// What the best split would be worth over links of other speeds; nothing where `none` cannot be.
    pub over_links: Vec<LinkPoint>,
    /// What choosing took, measuring aside.
    pub seconds: f64,
}

/// The planner's choice in words, and what watches over it.
pub(crate) fn started(planner: Planner, events: &Events) -> Result<(Chosen, Option<Watch>), TrainerError> {
    let (first, chosen) = planner.choose()?;
    Ok((chosen, Some(Watch::measured(planner, first, events))))
}

/// The possible splits of which two batches fit the job's memory: the candidates by their shape, all where there are few.
pub(crate) fn fitting(
    job: &Job,
    offer: &Offer<'_>,
    sources: &Sources,
    feed: &FeedPlan,
) -> Result<Vec<UsableSplit>, TrainerError> {
    let mut fitting = Vec::new();
    let mut refusal = None;
    let considered = |possible: &UsableSplit| {
        let only = job.candidates.as_ref();
        only.is_none_or(|only| only.contains(&possible.split))
    };
    for possible in offer.usable()?.into_iter().filter(considered) {
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

/// `none`, `input` and the cuts that are worth measuring.
pub(crate) fn worthwhile(
    job: &Job,
    divided: &Divided,
    possible: Vec<UsableSplit>,
) -> Result<Vec<UsableSplit>, TrainerError> {
    let candidates = frostline_profile::candidates(&divided.headed, &divided.network, &job.freeze)?;
    let worthwhile: HashSet<&str> = candidates.iter().map(|cut| cut.name.as_str()).collect();
    let wanted = |possible: &UsableSplit| match &possible.split {
        Split::Cut(name) => job.candidates.is_some() || worthwhile.contains(name.as_str()),
        Split::None | Split::Input => true,
    };
    Ok(possible.into_iter().filter(wanted).collect())
}
