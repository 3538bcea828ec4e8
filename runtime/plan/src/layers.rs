//! Decision whether to send the frozen layers to the host, and the report of the transfer.

use crate::candidate::Ranked;
use crate::text::{rate, seconds};
use crate::{Plan, Workload};
use frostline_tensor::format_bytes;
use frostline_wire::Split;

/// Location of the frozen layers when a job starts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum LayersLocation {
    /// The host already had the layers, or this was not checked.
    #[default]
    OnHosts,
    /// The layers were sent for this job.
    Sent {
        /// Size in bytes.
        bytes: u64,
        /// Duration of the transfer.
        seconds: f64,
    },
    /// The layers stay on the trainer because sending them would take longer than the job without them.
    OnTrainer {
        /// Size in bytes.
        bytes: u64,
        /// Predicted duration of the transfer.
        seconds: f64,
        /// Link rate in bytes per second.
        rate: f64,
        /// Duration of the job without the layers on the host. With a feature cache, only the time that
        /// depends on fetching is included.
        job_seconds: f64,
    },
}

impl LayersLocation {
    /// Returns [`LayersLocation::OnTrainer`] if sending `bytes` of layers would take longer than the whole job
    /// `without` them. In this case no split that needs the layers on the host can finish earlier.
    ///
    /// Training steps on cached features are not counted, because they take the same time in both cases.
    pub(crate) fn keep_on_trainer(bytes: u64, without: &Ranked, workload: &Workload) -> Option<Self> {
        let rate = workload.link_bytes_per_second;
        let seconds = bytes as f64 / rate;
        let job_seconds = without.prediction.fetching_seconds;
        (seconds > job_seconds).then_some(Self::OnTrainer {
            bytes,
            seconds,
            rate,
            job_seconds,
        })
    }

    /// Returns the bytes and seconds of the transfer, or zeros if the layers were not sent.
    pub(crate) fn sent(&self) -> (u64, f64) {
        match *self {
            Self::Sent { bytes, seconds } => (bytes, seconds),
            Self::OnHosts | Self::OnTrainer { .. } => (0, 0.0),
        }
    }

    /// Describes the effect on the plan in one line, or returns `None` if the layers were already on the
    /// host.
    pub(crate) fn explain(&self, plan: &Plan) -> Option<String> {
        match *self {
            Self::OnHosts => None,
            Self::Sent { bytes, seconds: took } => {
                let size = format_bytes(bytes as f64);
                let took_text = seconds(took);
                let sent = format!("sending the frozen layers ({size}) took {took_text}");
                Some(match payback_iterations(took, plan) {
                    Some((iterations, split)) if plan.may_pay_back(iterations) => {
                        format!("{sent}: paid back after {iterations} iterations against '{split}'")
                    }
                    Some((_, split)) => {
                        format!("{sent}: not paid back against '{split}' in the remaining job")
                    }
                    None => sent,
                })
            }
            Self::OnTrainer {
                bytes,
                seconds: sending,
                rate: link,
                job_seconds,
            } => {
                let what = match plan.workload.reuse {
                    None => "the whole job",
                    Some(_) => "fetching all features",
                };
                Some(format!(
                    "the frozen layers ({}) stay on the trainer: sending them takes {} at {}, {what} without them takes {}",
                    format_bytes(bytes as f64),
                    seconds(sending),
                    rate(link),
                    seconds(job_seconds)
                ))
            }
        }
    }
}

/// Returns the number of iterations after which the chosen split has saved the `took` seconds for sending the
/// layers, compared with the best split that does not need them.
///
/// Returns `None` if the chosen split does not need the layers, if every split needs them, or if an iteration
/// does not save any time.
fn payback_iterations(took: f64, plan: &Plan) -> Option<(u64, Split)> {
    let chosen = &plan.chosen;
    let without = plan
        .candidates
        .iter()
        .filter(|ranked| !needs_layers(&ranked.candidate.split));
    let rival = without.min_by(|left, right| {
        let right = right.prediction.total_seconds;
        left.prediction.total_seconds.total_cmp(&right)
    })?;
    let saved = rival.prediction.steady_seconds - chosen.prediction.steady_seconds;
    let pays = needs_layers(&chosen.candidate.split) && saved > 0.0;
    pays.then(|| ((took / saved).ceil() as u64, rival.candidate.split.clone()))
}

impl Plan {
    /// Returns true if at least `iterations` iterations of the job fetch features. Without a feature cache
    /// this is always true, because the job might be repeated.
    fn may_pay_back(&self, iterations: u64) -> bool {
        let workload = self.workload.with_encoding(self.chosen.candidate.encoding);
        workload.reuse.is_none() || iterations <= workload.fetching_after(0)
    }
}

fn needs_layers(split: &Split) -> bool {
    matches!(split, Split::Cut(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Candidate, CostModel, Reuse, Stages, Work};
    use frostline_job::Policy;
    use frostline_wire::Encoding;

    fn workload(iterations: u64) -> Workload {
        Workload {
            batch: 10,
            iterations,
            epoch_iterations: iterations,
            epoch_samples: 10.0 * iterations as f64,
            link_bytes_per_second: 1e6,
            shared_cores: false,
            request_share: 1.0,
            reuse: None,
            cost: CostModel::default(),
        }
    }

    fn candidate(split: &str, link_seconds: f64) -> Candidate {
        Candidate {
            split: Split::from(split),
            encoding: Encoding::F32,
            stages: Stages {
                link_seconds,
                ..Stages::default()
            },
            work: Work::default(),
            bytes_per_sample: link_seconds * 1e5,
        }
    }

    fn plan(splits: &[(&str, f64)], iterations: u64) -> Plan {
        plan_of(splits, &workload(iterations))
    }

    fn plan_of(splits: &[(&str, f64)], workload: &Workload) -> Plan {
        let candidates = splits.iter().map(|(split, seconds)| candidate(split, *seconds));
        Plan::choose(candidates.collect(), workload, &Policy::Auto).unwrap()
    }

    fn stays(bytes: u64, iterations: u64) -> Option<LayersLocation> {
        stays_for(bytes, &workload(iterations))
    }

    fn stays_for(bytes: u64, workload: &Workload) -> Option<LayersLocation> {
        LayersLocation::keep_on_trainer(bytes, &plan_of(&[("none", 2.0)], workload).chosen, workload)
    }

    /// Ten epochs with ten iterations each.
    fn kept(reuse: Reuse) -> Workload {
        Workload {
            epoch_iterations: 10,
            reuse: Some(reuse),
            ..workload(100)
        }
    }

    #[test]
    fn layers_stay_where_the_whole_job_takes_less_than_sending_them() {
        // The job has ten iterations of 2 s. The link can transfer 20 MB in this time.
        assert!(stays(21_000_000, 10).is_some());
        assert_eq!(stays(19_000_000, 10), None);
        assert_eq!(stays(21_000_000, 100), None, "a longer job is worth more bytes");
        let why = stays(42_000_000, 10)
            .unwrap()
            .explain(&plan(&[("none", 2.0)], 10))
            .unwrap();
        assert_eq!(
            why,
            "the frozen layers (42.0 MB) stay on the trainer: sending them takes 42.00 s at 8.0 Mbit/s, the whole job without them takes 20.00 s"
        );
    }

    #[test]
    fn only_what_fetches_pays_an_upload_back() {
        // Only the first epoch fetches, with ten iterations of 2 s. The link can transfer 20 MB in this time.
        let all = kept(Reuse::default());
        let why = stays_for(21_000_000, &all)
            .unwrap()
            .explain(&plan_of(&[("none", 2.0)], &all))
            .unwrap();
        assert!(
            why.ends_with("fetching all features without them takes 20.00 s"),
            "{why}"
        );
        assert_eq!(stays_for(19_000_000, &all), None);
        let half = Reuse {
            fits: 0.5,
            ..Reuse::default()
        };
        // Half of the features are fetched again in the other nine epochs, which adds 90 s.
        assert!(stays_for(111_000_000, &kept(half)).is_some());
        assert_eq!(stays_for(109_000_000, &kept(half)), None);
        let there = Reuse {
            rows_kept_already: 1.0,
            ..Reuse::default()
        };
        assert!(stays_for(1, &kept(there)).is_some(), "all features are cached");
        let sent = LayersLocation::Sent {
            bytes: 42_100_000,
            seconds: 9.1,
        };
        let told = |workload: &Workload| {
            let plan = plan_of(&[("none", 2.0), ("features", 1.0)], workload);
            sent.explain(&plan).unwrap()
        };
        assert!(told(&all).ends_with("paid back after 10 iterations against 'none'"));
        let short = Workload {
            epoch_iterations: 9,
            ..all
        };
        assert!(
            told(&short).ends_with("not paid back against 'none' in the remaining job"),
            "{}",
            told(&short)
        );
    }

    #[test]
    fn savings_per_iteration_pay_back_the_upload() {
        let sent = LayersLocation::Sent {
            bytes: 42_100_000,
            seconds: 3.1,
        };
        assert_eq!(sent.sent(), (42_100_000, 3.1));
        let cut = plan(&[("none", 2.0), ("input", 3.0), ("features", 1.5)], 100);
        assert_eq!(
            sent.explain(&cut).unwrap(),
            "sending the frozen layers (42.1 MB) took 3.10 s: paid back after 7 iterations against 'none'"
        );
        for unpaid in [
            plan(&[("none", 1.0), ("features", 1.5)], 100),
            plan(&[("features", 1.5)], 100),
        ] {
            assert_eq!(
                sent.explain(&unpaid).unwrap(),
                "sending the frozen layers (42.1 MB) took 3.10 s"
            );
        }
        assert_eq!(LayersLocation::OnHosts.explain(&cut), None);
    }
}
