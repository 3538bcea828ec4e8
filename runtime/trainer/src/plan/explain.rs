//! Why a plan is as it is, for people: the bottleneck, what the others cost, and what would have to change for one of them to win.

use super::text::{amount, rate, seconds};
use super::{Bottleneck, Candidate, Layers, Modules, Plan, Ranked, Stages, Workload};
use frostline_wire::Split;

/// A plan in words.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The chosen split, its bottleneck and the next best, in one line.
    pub headline: String,
    /// The others, the nearest first.
    pub rivals: Vec<Rival>,
    /// What sending the frozen layers came to, or why they stay here; `None` when the host had them.
    pub layers: Option<String>,
}

/// A split that was not chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Rival {
    /// The split.
    pub split: Split,
    /// Its predicted time over that of the chosen one.
    pub ratio: f64,
    /// What would make it the better one; `None` when no single change within a factor of 64 does.
    pub wins_if: Option<String>,
}

/// What is varied to see when another split wins.
#[derive(Debug, Clone, Copy)]
enum Knob {
    Link,
    Host,
    Trainer,
}

impl Plan {
    /// Explains the plan, and what became of the frozen layers for it. Splits are shown with their `modules`.
    pub(crate) fn explain(&self, layers: &Layers, modules: &Modules) -> Explanation {
        let chosen = &self.chosen;
        let is_other = |ranked: &&Ranked| ranked.candidate.split != chosen.candidate.split;
        let others = self.candidates.iter().filter(is_other);
        let mut rivals: Vec<Rival> = others
            .map(|other| Rival {
                split: other.candidate.split.clone(),
                ratio: other.prediction.total_seconds / chosen.prediction.total_seconds,
                wins_if: wins_if(&chosen.candidate, &other.candidate, &self.workload),
            })
            .collect();
        rivals.sort_by(|left, right| left.ratio.total_cmp(&right.ratio));
        Explanation {
            headline: headline(chosen, rivals.first(), modules),
            rivals,
            layers: layers.explain(self),
        }
    }
}

fn headline(chosen: &Ranked, next: Option<&Rival>, modules: &Modules) -> String {
    let prediction = &chosen.prediction;
    let bound = match prediction.bottleneck {
        Bottleneck::Host => "the host",
        Bottleneck::Link => "the link",
        Bottleneck::Trainer => "the trainer",
    };
    let mut line = format!(
        "'{}' as {}: {} an iteration, bound by {bound}; {} a sample",
        modules.shown(&chosen.candidate.split),
        chosen.candidate.encoding,
        seconds(prediction.iteration_seconds),
        amount(chosen.candidate.bytes_per_sample)
    );
    if let Some(next) = next {
        line.push_str(&format!(
            "; next is '{}' at {:.2} times that",
            modules.shown(&next.split),
            next.ratio
        ));
    }
    line
}

/// The smallest single change after which `other` takes less time than `chosen`.
fn wins_if(chosen: &Candidate, other: &Candidate, workload: &Workload) -> Option<String> {
    const STEPS: i32 = 48;
    let slower = |candidate: &Candidate, knob: Knob, factor: f64| {
        let Stages {
            mut host_seconds,
            mut link_seconds,
            mut trainer_seconds,
            upload_seconds,
        } = candidate.stages;
        match knob {
            Knob::Link => link_seconds *= factor,
            Knob::Host => host_seconds *= factor,
            Knob::Trainer => trainer_seconds *= factor,
        }
        workload
            .predict(&Stages {
                host_seconds,
                link_seconds,
                trainer_seconds,
                upload_seconds,
            })
            .total_seconds
    };
    // Factors of 2^(1/8) up to 64, the nearest to 1 first.
    let factors = (1..=STEPS).flat_map(|step| {
        let factor = 2_f64.powf(f64::from(step) / 8.0);
        [factor, 1.0 / factor]
    });
    for factor in factors {
        for knob in [Knob::Link, Knob::Host, Knob::Trainer] {
            if slower(other, knob, factor) < slower(chosen, knob, factor) {
                return Some(change(knob, factor, workload));
            }
        }
    }
    None
}

fn change(knob: Knob, factor: f64, workload: &Workload) -> String {
    let (word, times) = if factor > 1.0 {
        ("slower", factor)
    } else {
        ("faster", 1.0 / factor)
    };
    match knob {
        Knob::Link => format!(
            "the link moved {} instead of {}",
            rate(workload.link_bytes_per_second / factor),
            rate(workload.link_bytes_per_second)
        ),
        Knob::Host => format!("the host were {times:.1} times {word}"),
        Knob::Trainer => format!("the trainer were {times:.1} times {word}"),
    }
}
