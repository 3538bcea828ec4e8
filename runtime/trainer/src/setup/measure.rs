//! Measurements before a job starts.

use super::context::{LinkAndTrainer, Setup};
use crate::measure::{HostConditions, TrainerTask, probe, profiles, read, trainer_profile};
use crate::recipe::{step_settings, views};
use crate::upload::OnHosts;
use crate::{Event, Measuring, TrainerError};
use frostline_client::ClientError;
use frostline_compute::session_options;
use frostline_plan::{Planner, Slowdown, Survey, TrainerProfile, UsableSplit};
use frostline_wire::{ErrorClass, Link, Platform, ProfileRequest, RequestedSample, Split};

/// Samples for measuring object sizes and decoding. The mean of eight is typically within 5 % of the overall
/// mean, and they need about a second.
const SAMPLES: usize = 8;

/// Limit in seconds for queueing before a measurement. The rest of the deadline
/// ([`frostline_client::Deadlines`]) is enough to measure the largest of the paper's networks.
const WAIT_SECONDS: u64 = 30;

/// Result of the measurements.
pub(super) struct Measurements {
    pub(super) planner: Planner,
    /// Errors of the hosts without a profile. If no host has one, the hosts are assumed to be like this
    /// machine.
    pub(super) profile_errors: Vec<ClientError>,
    /// True if any host has a profile.
    pub(super) has_profile: bool,
}

/// Failure of a measurement required by every plan.
pub(super) enum MeasurementError {
    Link(TrainerError),
    /// For example because memory is short. If the job needs as much memory itself, it fails later with its
    /// own error.
    Trainer(TrainerError),
}

impl MeasurementError {
    /// Returns the reason to continue without a plan.
    ///
    /// # Errors
    /// Returns the link's error if the hosts cannot serve the job.
    pub(super) fn reason(self) -> Result<String, TrainerError> {
        match self {
            Self::Link(error) if !may_serve(&error) => Err(error),
            Self::Link(error) => Ok(format!("cannot measure the link: {error}")),
            Self::Trainer(error) => Ok(format!("cannot measure this machine: {error}")),
        }
    }
}

/// Returns true if the hosts may serve the job after a failed probe. A busy host may, and so may a host that
/// refuses the probe. An unreachable host cannot, nor can a host that rejects the token.
fn may_serve(error: &TrainerError) -> bool {
    match error {
        TrainerError::Client(ClientError::Refused { class, .. }) => *class != ErrorClass::Unauthorized,
        TrainerError::Client(ClientError::NoHost { source, .. }) => source.is_busy(),
        _ => false,
    }
}

impl Setup<'_> {
    /// Measures the link to all hosts, the network on the hosts, and the network on this machine. Link rate
    /// and trainer profile come from an earlier measurement if one exists.
    ///
    /// # Errors
    /// Returns [`MeasurementError`] if the link or this machine cannot be measured, so that no plan is
    /// possible.
    pub(super) async fn measure(
        &self,
        splits: &[UsableSplit],
        request: &ProfileRequest,
    ) -> Result<Measurements, MeasurementError> {
        let hosts = &self.measuring;
        let events = self.events;
        let reach = HostConditions::measure(hosts, events)
            .await
            .map_err(MeasurementError::Link)?;
        let (profile, profile_errors) = profiles(hosts, request, events).await;
        let LinkAndTrainer { link, trainer } = match self.early_measurements.clone() {
            Some(measured) => measured,
            None => {
                let trainer = self.measure_trainer(splits, &request.model.sha256).await;
                LinkAndTrainer {
                    link: self.with_configured_rate(reach.link),
                    trainer: trainer.map_err(MeasurementError::Trainer)?,
                }
            }
        };
        let has_profile = profile.is_some();
        let host = profile.unwrap_or_else(|| trainer.as_host());
        let shared_cores = self.job.shared_cores
            || self.measuring.are_loopback() && share_processor(&host.platform, &trainer.platform);
        let survey = Survey {
            host,
            trainer,
            object_bytes: self.data.object_bytes as f64,
            // Hosts on a single machine share cores, so they count as a single host.
            hosts: if shared_cores { 1 } else { reach.hosts },
            neighbors: reach.neighbors,
            slowdown: Slowdown::default(),
        };
        Ok(Measurements {
            planner: self.planner(survey, splits.to_vec(), link, shared_cores),
            profile_errors,
            has_profile,
        })
    }

    /// Measures the link to all hosts at once. A rate in the job's settings overrides the measured one.
    pub(super) async fn measure_link(&self) -> Result<Link, TrainerError> {
        Ok(self.with_configured_rate(probe(&self.measuring, self.events).await?))
    }

    fn with_configured_rate(&self, link: Link) -> Link {
        Link {
            bytes_per_second: self
                .job
                .spec
                .link_bytes_per_second
                .unwrap_or(link.bytes_per_second),
            ..link
        }
    }

    /// Measures `splits` on this machine. `frozen` is the SHA-256 of the frozen layers.
    pub(super) async fn measure_trainer(
        &self,
        splits: &[UsableSplit],
        frozen: &str,
    ) -> Result<TrainerProfile, TrainerError> {
        (self.events)(Event::Measuring {
            what: Measuring::Trainer,
        });
        let job = self.job;
        let task = TrainerTask {
            model: self.network.headed.clone(),
            frozen: self.network.frozen.clone(),
            frozen_sha256: frozen.to_owned(),
            freeze: job.freeze.clone(),
            cuts: cuts(splits),
            pixels: self.network.recipe()?,
            view: views(&job.spec.recipe).for_epoch(1),
            batch: self.batch(),
            settings: step_settings(&job.spec.recipe),
            options: session_options(job.device, job.spec.threads),
            precision: job.device.precision(job.spec.terms.precision),
        };
        let wanted = self.data.feed.train.spread(SAMPLES);
        let objects = read(&self.measuring, &job.spec.data, &wanted);
        trainer_profile(task, job.cache.as_ref(), objects).await
    }

    /// The profile to request from the hosts.
    pub(super) fn profile_request(&self, on_hosts: &OnHosts, splits: &[UsableSplit]) -> ProfileRequest {
        ProfileRequest {
            root: self.job.spec.data.clone(),
            guest: on_hosts.guest.clone(),
            model: on_hosts.model.clone(),
            parameters: self.network.parameters.clone(),
            cuts: self.profiled_cuts(splits),
            samples: RequestedSample::in_order(&self.data.feed.train.spread(SAMPLES)),
            view: views(&self.job.spec.recipe).for_epoch(1),
            precision: self.job.spec.terms.precision,
            wait_seconds: Some(WAIT_SECONDS),
        }
    }

    /// Cuts that the hosts measure. A host measures decoding only together with a cut, so the first cut is
    /// measured if nothing is frozen.
    fn profiled_cuts(&self, splits: &[UsableSplit]) -> Vec<String> {
        if self.network.nothing_is_frozen(&self.job.freeze) {
            return self.network.first_cut().cloned().into_iter().collect();
        }
        cuts(splits)
    }
}

/// Returns true if a host and a trainer on the same machine compute on the same CPU or GPU.
fn share_processor(host: &Platform, trainer: &Platform) -> bool {
    host.machine == trainer.machine && host.device == trainer.device
}

/// Names of the cuts among `splits`.
fn cuts(splits: &[UsableSplit]) -> Vec<String> {
    splits
        .iter()
        .filter_map(|usable| match &usable.split {
            Split::Cut(name) => Some(name.clone()),
            Split::None | Split::Input => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_with_the_same_gpu_share_it() {
        let platform = |machine: &str, device: &str| Platform {
            machine: machine.to_owned(),
            device: device.to_owned(),
            library: String::new(),
            lanes: 1,
            threads_per_lane: 1,
            decode_threads: 16,
            rows: 32,
        };
        let share = |host: (&str, &str), trainer: (&str, &str)| {
            share_processor(&platform(host.0, host.1), &platform(trainer.0, trainer.1))
        };
        assert!(share(("EPYC, 16 cores", "cpu"), ("EPYC, 16 cores", "cpu")));
        assert!(share(("H200", "cuda:0"), ("H200", "cuda:0")));
        assert!(!share(("H200", "cuda:0"), ("H200", "cuda:1")));
        assert!(!share(("H200", "cuda:0"), ("EPYC, 16 cores", "cpu")));
    }
}
