use crate::event::notices;
use crate::host_loads::HostLoads;
use crate::plan::{Explanation, LinkPoint, Summary};
use crate::replan::Watch;
use crate::setup::prepare;
use crate::{Events, Job, TrainerError};
use frostline_client::{Hosts, Link};
use std::time::Instant;

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
    let job = job.checked().await?;
    let hosts = hosts.into().for_job(notices(&events));
    let prepared = prepare(&job, true, &hosts, &events).await?;
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
