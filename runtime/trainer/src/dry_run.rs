use crate::event::notices;
use crate::host_loads::HostLoads;
use crate::plan::{Explanation, LinkPoint, Summary};
use crate::replan::Watch;
use crate::setup::prepare;
use crate::{Event, Events, Job, TrainerError};
use frostline_client::{DatasetError, Hosts, Link};
use std::time::Instant;

/// The share that a plan holds out of data which nothing divides: training names its own, and no split depends on it much.
const USUAL_SHARE: f64 = 0.2;

/// What [`plan`] found.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedJob {
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

/// Plans a job without running it: uploads what is missing, measures what was not measured yet, and chooses.
///
/// # Errors
/// As [`crate::train`]; [`TrainerError::Unplannable`] where nothing can be measured.
pub async fn plan(job: Job, hosts: impl Into<Hosts>, events: Events) -> Result<PlannedJob, TrainerError> {
    let mut job = job.checked().await?;
    let hosts = hosts.into().for_job(notices(&events));
    let prepared = match prepare(&job, true, &hosts, &events).await {
        Err(TrainerError::Dataset(DatasetError::NotDivided { .. })) if job.spec.validation.is_none() => {
            events(Event::Warning {
                message: format!(
                    "the data are not divided; planned with --validation {USUAL_SHARE}, which training requires"
                ),
            });
            job.spec.validation = Some(USUAL_SHARE);
            prepare(&job, true, &hosts, &events).await?
        }
        prepared => prepared?,
    };
    let planner = prepared.watch.as_ref().and_then(Watch::planner);
    let planner = planner.ok_or_else(|| TrainerError::Unplannable {
        reason: format!("'{}', {}", prepared.chosen.split, prepared.chosen.reason),
    })?;
    let started = Instant::now();
    let plan = planner.plan()?;
    let took = started.elapsed();
    let candidate = &plan.chosen.candidate;
    let flow = planner.flow(candidate);
    // By now the layers have run there.
    let share = HostLoads::ask(&hosts).await;
    let source = prepared
        .offer
        .at(&candidate.split, candidate.encoding, flow.request_samples)?;
    let known = || share.engine_batch(&source);
    Ok(PlannedJob {
        summary: Summary {
            grant: share.grant().or(planner.grant),
            engine_batch: job.spec.terms.fixed_batch.or_else(known),
            ..plan.summary(flow, &planner.layers)
        },
        explanation: plan.explain(&planner.layers, &planner.modules),
        link: planner.link,
        over_links: planner.over_links(),
        seconds: took.as_secs_f64(),
    })
}
