//! Explains the plan to people: the bottleneck, the alternatives, and the changes that would make an
//! alternative win.

use crate::scenario::Scenario;
use crate::text::{ordinal, rate, seconds};
use crate::{Bottleneck, Candidate, LayersLocation, Modules, Plan, Workload};
use frostline_job::Objective;
use frostline_tensor::{format_bytes, format_number};
use frostline_wire::Split;

/// A plan in words.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The chosen split with the bottleneck, the best alternative, and the duration of epochs with cached
    /// features, in a single line.
    pub headline: String,
    /// The other splits, sorted by the ratio.
    pub rivals: Vec<Rival>,
    /// Cost of the job and of the shortest job, or `None` if there are no prices.
    pub cost: Option<String>,
    /// Explanation for the transfer of the frozen layers, or `None` if the hosts already had them.
    pub layers: Option<String>,
}

/// Alternative to the chosen split.
#[derive(Debug, Clone, PartialEq)]
pub struct Rival {
    /// The split.
    pub split: Split,
    /// Predicted time relative to the chosen split, or predicted cost if the plan minimizes cost.
    ///
    /// A value below 1 means that the split is not reliably better: it is within the prediction error but
    /// would lose more in the worst case, or it has about the same cost but takes longer.
    pub ratio: f64,
    /// The smallest single change of the link, the hosts or the trainer that would make this split the better
    /// choice. `None` if the ratio is already below 1, or if no change by a factor of up to 64 is enough.
    pub wins_if: Option<String>,
}

impl Plan {
    /// Explains the plan and the transfer of the frozen layers. Splits are labeled with the names in
    /// `modules`.
    pub(crate) fn explain(&self, layers: &LayersLocation, modules: &Modules) -> Explanation {
        let chosen = &self.chosen;
        let least = chosen.candidate.objective(&self.workload).max(f64::MIN_POSITIVE);
        let others = self
            .candidates
            .iter()
            .filter(|ranked| ranked.candidate.split != chosen.candidate.split);
        let mut rivals: Vec<Rival> = others
            .map(|other| Rival {
                split: other.candidate.split.clone(),
                ratio: other.candidate.objective(&self.workload) / least,
                wins_if: wins_if(&chosen.candidate, &other.candidate, &self.workload),
            })
            .collect();
        rivals.sort_by(|left, right| left.ratio.total_cmp(&right.ratio));
        Explanation {
            headline: self.headline(rivals.first(), modules),
            rivals,
            cost: self.cost(modules),
            layers: layers.explain(self),
        }
    }

    fn headline(&self, next: Option<&Rival>, modules: &Modules) -> String {
        let chosen = &self.chosen;
        let bound = match chosen.prediction.bottleneck {
            Bottleneck::Host => "the host",
            Bottleneck::Link => "the link",
            Bottleneck::Trainer => "the trainer",
        };
        let split = modules.label(&chosen.candidate.split);
        let chosen = format!(
            "'{split}' as {}: {} per iteration, bound by {bound}, with {} per sample",
            chosen.candidate.encoding,
            seconds(chosen.prediction.iteration_seconds),
            format_bytes(chosen.candidate.bytes_per_sample)
        );
        let next = next.map(|next| {
            let split = modules.label(&next.split);
            let ratio = next.ratio;
            match self.workload.cost.objective {
                Objective::Cost if ratio < 1.0 => {
                    format!("'{split}' at {ratio:.2}x the cost is slower")
                }
                Objective::Cost => format!("next is '{split}' at {ratio:.2}x the cost"),
                Objective::Time if ratio < 1.0 => {
                    format!("'{split}' at {ratio:.2}x is within the prediction error, but has a higher risk")
                }
                Objective::Time => format!("next is '{split}' at {ratio:.2}x"),
            }
        });
        let parts = [Some(chosen), next, self.reused()];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// Describes the cost of the job and of the shortest job, or returns `None` if there are no prices.
    fn cost(&self, modules: &Modules) -> Option<String> {
        let chosen = &self.chosen;
        let job = chosen.candidate.job(&self.workload, &chosen.prediction);
        let cost = job.cost?;
        let costs = format!(
            "the job costs {} (host {}, trainer {}, link {})",
            format_number(cost.total),
            format_number(cost.host),
            format_number(cost.trainer),
            format_number(cost.link)
        );
        let Some(shortest) = &self.shortest else {
            return Some(costs);
        };
        if shortest.candidate.is_same_way(&chosen.candidate) {
            return Some(format!("{costs}. The objective time would use the same split"));
        }
        let other = shortest.candidate.job(&self.workload, &shortest.prediction);
        Some(format!(
            "{costs} and takes {}. The objective time would use '{}' as {}: {} in {}",
            seconds(job.seconds),
            modules.label(&shortest.candidate.split),
            shortest.candidate.encoding,
            format_number(other.cost?.total),
            seconds(other.seconds)
        ))
    }

    /// Describes the epochs that use cached features, or returns `None` if there are no such epochs.
    fn reused(&self) -> Option<String> {
        let prediction = &self.chosen.prediction;
        let workload = self.workload.with_encoding(self.chosen.candidate.encoding);
        let reuse = workload.reuse?;
        let [first, later] = workload.passes();
        let epoch = seconds(prediction.later_seconds * workload.epoch_iterations as f64);
        let bytes = format_bytes(workload.store_bytes() as f64);
        let rows = match 1.0 - later.fetched {
            kept if kept <= 0.0 => return None,
            kept if kept >= 1.0 => "from the feature cache".to_owned(),
            kept => format!("with {:.0} % of the features cached", 100.0 * kept),
        };
        if first.fetched <= 0.0 {
            let epoch = seconds(prediction.iteration_seconds * workload.epoch_iterations as f64);
            return Some(format!("cached features ({bytes}): {epoch} per epoch"));
        }
        let from = ordinal(u64::from(reuse.views.max(1)) + 1);
        (later.iterations > 0).then(|| format!("epochs from the {from} on take {epoch} {rows} ({bytes})"))
    }
}

/// Finds the smallest single change that makes `other` better than `chosen`. Returns `None` if `other` is
/// already better or if no change is found.
fn wins_if(chosen: &Candidate, other: &Candidate, workload: &Workload) -> Option<String> {
    const STEPS: i32 = 48;
    if is_better(other, chosen, workload, &Scenario::MEASURED) {
        return None;
    }
    // Try the powers of 2^(1/8) up to 64 and the reciprocals, starting close to 1.
    let factors = (1..=STEPS).flat_map(|step| {
        let factor = 2_f64.powf(f64::from(step) / 8.0);
        [factor, 1.0 / factor]
    });
    let mut changes = factors.flat_map(|factor| changes(factor, workload));
    let found = changes.find(|(scenario, _)| is_better(other, chosen, workload, scenario));
    found.map(|(_, change)| change)
}

fn is_better(one: &Candidate, other: &Candidate, workload: &Workload, scenario: &Scenario) -> bool {
    one.objective_in(workload, scenario) < other.objective_in(workload, scenario)
}

/// Returns the scenarios in which link, host or trainer need `factor` times as long, with descriptions.
fn changes(factor: f64, workload: &Workload) -> [(Scenario, String); 3] {
    let measured = Scenario::MEASURED;
    let link = workload.link_bytes_per_second;
    let change = if factor > 1.0 {
        format!("{factor:.1}x slower")
    } else {
        format!("{:.1}x faster", 1.0 / factor)
    };
    [
        (
            Scenario {
                link: factor,
                ..measured
            },
            format!("link {} (is {})", rate(link / factor), rate(link)),
        ),
        (
            Scenario {
                host: factor,
                ..measured
            },
            format!("host {change}"),
        ),
        (
            Scenario {
                trainer: factor,
                ..measured
            },
            format!("trainer {change}"),
        ),
    ]
}
