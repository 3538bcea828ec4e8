use crate::event::notices;
use crate::host_loads::HostLoads;
use crate::replan::Watch;
use crate::setup::prepare;
use crate::{Event, Events, Explanation, Job, LinkPoint, Summary, TrainerError};
use frostline_client::{DatasetError, Hosts};
use frostline_wire::Link;
use std::time::Instant;

/// Validation fraction for planning if the data have no validation part and none was requested. Training
/// requires an explicit value, but the split depends very little on it.
const DEFAULT_VALIDATION: f64 = 0.2;

/// Result of [`plan`].
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedJob {
    /// The choice and all candidates.
    pub summary: Summary,
    /// The plan in words.
    pub explanation: Explanation,
    /// Measured link. For several hosts, this is the sum of the links.
    pub link: Link,
    /// Speed-up of the best split for other link rates. Empty if `none` is not a candidate.
    pub over_links: Vec<LinkPoint>,
    /// Seconds for choosing the split, excluding measurements.
    pub seconds: f64,
}

/// Plans a job without running it: uploads missing files, measures if no measurements are cached, and chooses
/// the split.
///
/// # Errors
/// Returns the same errors as [`crate::train`], and [`TrainerError::Unplannable`] if measuring is not
/// possible.
pub async fn plan(job: Job, hosts: impl Into<Hosts>, events: Events) -> Result<PlannedJob, TrainerError> {
    let mut job = job.checked().await?;
    let hosts = hosts.into().for_job(notices(&events));
    let prepared = match prepare(&job, true, &hosts, &events).await {
        Err(TrainerError::Dataset(DatasetError::NotDivided { .. })) if job.spec.validation.is_none() => {
            events(Event::Warning {
                message: format!(
                    "the data have no validation part; planned with a validation share of {DEFAULT_VALIDATION}, which training must be given"
                ),
            });
            job.spec.validation = Some(DEFAULT_VALIDATION);
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
    let summary = planner.summary(&plan);
    // At this point the hosts have executed the layers and can report the engine batch.
    let share = HostLoads::ask(&hosts).await;
    let source = prepared
        .offer
        .source_at(&summary.split, summary.encoding, summary.request_samples)?;
    Ok(PlannedJob {
        summary: Summary {
            grant: share.grant().or(planner.grant),
            engine_batch: job.spec.terms.fixed_batch.or_else(|| share.engine_batch(&source)),
            ..summary
        },
        explanation: planner.explain(&plan),
        link: planner.link,
        over_links: planner.over_links(),
        seconds: took.as_secs_f64(),
    })
}
