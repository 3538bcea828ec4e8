//! Jobs whose link or host slows down midway: their time relative to the best fixed split in hindsight.

use crate::legs::{StepEnd, leg};
use crate::networks::{Network, short};
use crate::planner::Plan;
use crate::report::Report;
use crate::rig::Rig;
use crate::tiers::Brake;
use crate::trainer::Trainer;
use anyhow::{Context, Result, ensure};
use frostline_trainer::rehearsal::Leg;
use frostline_trainer::{FetchLimits, Policy};
use frostline_wire::{Encoding, Split};

const NETWORK: &str = "resnet18";

/// Mbit/s. At this rate compute limits the speed, at a fifth of this rate the link does.
const LINK: f64 = 100.0;
const LINK_DROPS_TO: f64 = LINK / 5.0;

/// Slow-down factor for the host.
const SLOWER: u32 = 4;

/// Change that happens halfway through a job.
#[derive(Debug, Clone, Copy)]
enum Change {
    Link,
    Host,
}

impl Change {
    fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Host => "host",
        }
    }
}

/// Length of a job.
struct Extent {
    epochs: u32,
    batch: usize,
    /// Counted steps when a fixed split is measured.
    steps: u64,
}

impl Extent {
    /// Quick runs have four jobs with 256 steps in small batches and a duration of almost a minute. Jobs need
    /// about ten steps to notice a change.
    fn new(quick: bool, network: &Network) -> Self {
        if quick {
            Self {
                epochs: 4,
                batch: 4,
                steps: 6,
            }
        } else {
            Self {
                epochs: 20,
                batch: network.batch(false),
                steps: 12,
            }
        }
    }
}

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let rig = Rig::open(report)?;
    let network = rig.grid.network(NETWORK)?;
    let extent = Extent::new(report.quick(), &network);
    Trainer::with_host(&rig.tiers, &network, extent.batch, |trainer| {
        measure(report, trainer, &extent)
    })
}

fn measure(report: &mut Report, trainer: &mut Trainer<'_>, extent: &Extent) -> Result<()> {
    let Extent { epochs, batch, steps } = *extent;
    let candidates = trainer.network().candidates(report.quick());
    let (ways, flow) = ways(trainer, &candidates)?;
    let mut subject = Subject {
        ways,
        flow,
        candidates,
        epochs,
        halfway: epochs as usize * trainer.tiers().photos().train.div_ceil(batch) / 2,
        steps,
        trainer,
    };
    println!(
        "{NETWORK}, {} steps of {batch} at {LINK} Mbit/s; halfway the link drops to {LINK_DROPS_TO}, or the host becomes {SLOWER} times slower by {}\n\n\
         change split                                        before, s  after, s  a job, s",
        2 * subject.halfway,
        Brake::means()
    );
    let before = subject.rehearse()?;
    for change in [Change::Link, Change::Host] {
        let way = subject.hindsight(change, &before)?;
        subject.adapt(report, change, &way)?;
    }
    Ok(())
}

/// A fixed split with an encoding.
#[derive(Debug, Clone, PartialEq)]
struct FixedSplit {
    split: Split,
    encoding: Encoding,
}

impl std::fmt::Display for FixedSplit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", short(&self.split.to_string()), self.encoding)
    }
}

/// Returns the candidates with the encodings planned for both link rates, and the fetch limits planned for
/// the initial rate.
fn ways(trainer: &Trainer<'_>, candidates: &[Split]) -> Result<(Vec<FixedSplit>, FetchLimits)> {
    let plan = |mbit| {
        trainer.tiers().link().hold(Some(mbit))?;
        Plan::ask(trainer, candidates)
    };
    let (after, before) = (plan(LINK_DROPS_TO)?, plan(LINK)?);
    let mut ways: Vec<FixedSplit> = Vec::new();
    for (plan, split) in [&before, &after]
        .into_iter()
        .flat_map(|plan| candidates.iter().map(move |split| (plan, split)))
    {
        let way = FixedSplit {
            split: split.clone(),
            encoding: plan.candidate(split)?.encoding,
        };
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    Ok((ways, before.flow()))
}

/// The job that all runs execute.
struct Subject<'a, 'b> {
    trainer: &'a mut Trainer<'b>,
    /// Candidates with the encodings planned for both link rates.
    ways: Vec<FixedSplit>,
    flow: FetchLimits,
    /// Candidates for all jobs. Adaptive jobs have the same choice as fixed jobs.
    candidates: Vec<Split>,
    epochs: u32,
    /// Number of steps before the change. The job continues for at least this number of steps.
    halfway: usize,
    /// Counted steps when a fixed split is measured.
    steps: u64,
}

impl Subject<'_, '_> {
    /// Returns the seconds per step for each fixed split, under the present conditions.
    fn rehearse(&mut self) -> Result<Vec<f64>> {
        let legs: Vec<Leg> = self
            .ways
            .iter()
            .map(|way| leg(&way.split, way.encoding, self.steps, self.flow))
            .collect();
        let times = self.trainer.time(&legs, self.flow)?;
        Ok(times.iter().map(|leg| leg.seconds).collect())
    }

    /// Applies the change. Dropping the returned brake reverts a slow-down of the host.
    fn apply_change(&self, change: Change) -> Result<Option<Brake>> {
        let tiers = self.trainer.tiers();
        match change {
            Change::Link => tiers.link().hold(Some(LINK_DROPS_TO)).map(|()| None),
            Change::Host => tiers.slow_down(self.trainer.host(), SLOWER).map(Some),
        }
    }

    /// Returns the fixed split with the shortest predicted job time, including the change.
    fn hindsight(&mut self, change: Change, before: &[f64]) -> Result<FixedSplit> {
        let brake = self.apply_change(change)?;
        let after = self.rehearse()?;
        drop(brake);
        self.trainer.tiers().link().hold(Some(LINK))?;
        let mut best: Option<(&FixedSplit, f64)> = None;
        for ((way, before), after) in self.ways.iter().zip(before).zip(after) {
            let seconds = (before + after) * self.halfway as f64;
            println!(
                "{:<6} {:<44} {before:>9.3} {after:>9.3} {seconds:>9.1}",
                change.name(),
                way.to_string()
            );
            if best.is_none_or(|(_, least)| seconds < least) {
                best = Some((way, seconds));
            }
        }
        best.map(|(way, _)| way.clone()).context("no candidate splits")
    }

    /// Compares an adaptive job with the best fixed split.
    fn adapt(&self, report: &mut Report, change: Change, best: &FixedSplit) -> Result<()> {
        let fixed = self.run(Policy::Fixed(best.split.clone()), Some(best.encoding), change)?;
        let least = duration(&fixed)?;
        let ticks = self.run(Policy::Auto, None, change)?;
        let seconds = duration(&ticks)?;
        let splits: Vec<&Split> = ticks.iter().map(|tick| &tick.split).collect();
        let reaction = reaction(&splits, self.halfway);
        let reacted = reaction.map_or_else(
            || "no change of the split after that".to_owned(),
            |steps| format!("{steps} steps at the old split after that"),
        );
        let (name, visited, ratio) = (change.name(), visited(&splits), seconds / least);
        println!("{name:<6} best fixed: {best}, {least:.1} s");
        println!("{name:<6} adaptive: {visited}, {seconds:.1} s, {ratio:.2} of that; {reacted}\n");
        report.set(&format!("ratio_vs_hindsight_{name}"), ratio);
        report.set(&format!("{name}_best_fixed"), best.to_string());
        report.set(&format!("{name}_splits"), visited);
        report.set(&format!("{name}_reaction_steps"), reaction);
        Ok(())
    }

    /// Runs a job and reverts the change at the end.
    fn run(&self, policy: Policy, encoding: Option<Encoding>, change: Change) -> Result<Vec<StepEnd>> {
        self.trainer.tiers().link().hold(Some(LINK))?;
        let mut brake = None;
        let ticks = self
            .trainer
            .watch(policy, encoding, &self.candidates, self.epochs, |done| {
                if done == self.halfway {
                    brake = self.apply_change(change)?;
                }
                Ok(())
            })?;
        ensure!(
            ticks.len() >= 2 * self.halfway,
            "the job ended after {} steps, but at least {} must follow the change",
            ticks.len(),
            self.halfway
        );
        Ok(ticks)
    }
}

/// Seconds from the end of the first step, which waits until sessions are open.
fn duration(ticks: &[StepEnd]) -> Result<f64> {
    let (first, last) = ticks.first().zip(ticks.last()).context("no steps recorded")?;
    Ok(last.since(first))
}

/// Number of steps after the change that still ran at the old split, including batches in flight. `None` if
/// the job kept the split until the end.
fn reaction(splits: &[&Split], halfway: usize) -> Option<usize> {
    let (before, after) = splits.split_at_checked(halfway)?;
    let present = before.last()?;
    after.iter().position(|split| split != present)
}

/// Formats the sequence of splits used by a job.
fn visited(splits: &[&Split]) -> String {
    let legs = splits.chunk_by(|one, other| one == other);
    let names: Vec<String> = legs
        .filter_map(|leg| leg.first())
        .map(|split| short(&split.to_string()).to_owned())
        .collect();
    names.join(" -> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reaction_counts_from_the_change_and_not_from_what_was_changed_before() {
        let [none, input, cut] = ["none", "input", "cut"].map(Split::from);
        let splits = [&none, &input, &input, &input, &input, &cut, &cut];
        assert_eq!(reaction(&splits, 3), Some(2));
        assert_eq!(reaction(&splits, 5), Some(0));
        assert_eq!(reaction(&splits, 6), None);
        assert_eq!(reaction(&splits, 8), None);
        assert_eq!(visited(&splits), "none -> input -> cut");
    }
}
