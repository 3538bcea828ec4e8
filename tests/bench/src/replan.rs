//! Jobs whose world changes midway: their time against the best split that could have been fixed, known with hindsight.

use crate::legs::{Tick, leg};
use crate::networks::{Network, short};
use crate::planner::Plan;
use crate::report::Report;
use crate::rig::Rig;
use crate::tiers::Brake;
use crate::trainer::Trainer;
use anyhow::{Context, Result, ensure};
use frostline_trainer::rehearsal::Leg;
use frostline_trainer::{Flow, Policy};
use frostline_wire::{Encoding, Split};

const NETWORK: &str = "resnet18";

/// Before it drops to a fifth, compute decides; after it, bytes do.
const LINK: f64 = 100.0;
const LINK_DROPS_TO: f64 = LINK / 5.0;

/// How many times slower the host becomes.
const SLOWER: u32 = 4;

/// What happens halfway.
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

/// How long a job is.
struct Extent {
    epochs: u32,
    batch: usize,
    /// Steps that count when a fixed split is measured.
    steps: u64,
}

impl Extent {
    /// A quick job is 256 steps in small batches, the better part of a minute: it needs some ten to see a change. There are four.
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

/// A split that could have been fixed, in an encoding.
#[derive(Debug, Clone, PartialEq)]
struct Way {
    split: Split,
    encoding: Encoding,
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", short(&self.split.to_string()), self.encoding)
    }
}

/// The candidates in the encodings that suit the link before and after, and how batches are asked for.
fn ways(trainer: &Trainer<'_>, candidates: &[Split]) -> Result<(Vec<Way>, Flow)> {
    let plan = |mbit| {
        trainer.tiers().link().hold(Some(mbit))?;
        Plan::ask(trainer, candidates)
    };
    let (after, before) = (plan(LINK_DROPS_TO)?, plan(LINK)?);
    let mut ways: Vec<Way> = Vec::new();
    for (plan, split) in [&before, &after]
        .into_iter()
        .flat_map(|plan| candidates.iter().map(move |split| (plan, split)))
    {
        let way = Way {
            split: split.clone(),
            encoding: plan.candidate(split)?.encoding,
        };
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    Ok((ways, before.flow()))
}

/// The job that is run again and again.
struct Subject<'a, 'b> {
    trainer: &'a mut Trainer<'b>,
    /// All candidates, in the encodings that suit the link before and after.
    ways: Vec<Way>,
    flow: Flow,
    /// The same for all jobs, so that the adaptive one chooses among those that could have been fixed.
    candidates: Vec<Split>,
    epochs: u32,
    /// The number of steps after which the change comes; at least as many follow.
    halfway: usize,
    /// That count when a fixed split is measured.
    steps: u64,
}

impl Subject<'_, '_> {
    /// Seconds of a step in every way, in the world as it is.
    fn rehearse(&mut self) -> Result<Vec<f64>> {
        let legs: Vec<Leg> = self
            .ways
            .iter()
            .map(|way| leg(&way.split, way.encoding, self.steps, self.flow))
            .collect();
        let times = self.trainer.time(&legs, self.flow)?;
        Ok(times.iter().map(|leg| leg.seconds).collect())
    }

    /// Brings the change about; what is returned is to be dropped to take it back.
    fn make(&self, change: Change) -> Result<Option<Brake>> {
        let tiers = self.trainer.tiers();
        match change {
            Change::Link => tiers.link().hold(Some(LINK_DROPS_TO)).map(|()| None),
            Change::Host => tiers.slow_down(self.trainer.host(), SLOWER).map(Some),
        }
    }

    /// The way that would take the least time if it were kept through the change.
    fn hindsight(&mut self, change: Change, before: &[f64]) -> Result<Way> {
        let brake = self.make(change)?;
        let after = self.rehearse()?;
        drop(brake);
        self.trainer.tiers().link().hold(Some(LINK))?;
        let mut best: Option<(&Way, f64)> = None;
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
        best.map(|(way, _)| way.clone()).context("no split was measured")
    }

    /// The job that may change its split, against the best fixed one.
    fn adapt(&self, report: &mut Report, change: Change, best: &Way) -> Result<()> {
        let fixed = self.run(Policy::Fixed(best.split.clone()), Some(best.encoding), change)?;
        let least = duration(&fixed)?;
        let ticks = self.run(Policy::Auto, None, change)?;
        let seconds = duration(&ticks)?;
        let splits: Vec<&Split> = ticks.iter().map(|tick| &tick.split).collect();
        let reaction = reaction(&splits, self.halfway);
        let reacted = reaction.map_or_else(
            || "kept its split after that".to_owned(),
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

    /// One job; the change is taken back at its end.
    fn run(&self, policy: Policy, encoding: Option<Encoding>, change: Change) -> Result<Vec<Tick>> {
        self.trainer.tiers().link().hold(Some(LINK))?;
        let mut brake = None;
        let ticks = self
            .trainer
            .watch(policy, encoding, &self.candidates, self.epochs, |done| {
                if done == self.halfway {
                    brake = self.make(change)?;
                }
                Ok(())
            })?;
        ensure!(
            ticks.len() >= 2 * self.halfway,
            "the job had {} steps, of which {} came before the change",
            ticks.len(),
            self.halfway
        );
        Ok(ticks)
    }
}

/// From the second step on, for the first one waits for sessions to be loaded.
fn duration(ticks: &[Tick]) -> Result<f64> {
    let (first, last) = ticks.first().zip(ticks.last()).context("the job had no steps")?;
    Ok(last.since(first))
}

/// Steps after the change that still trained at the split it found, batches that were on their way among them; `None` for a job that kept
/// its split to the end.
fn reaction(splits: &[&Split], halfway: usize) -> Option<usize> {
    let (before, after) = splits.split_at_checked(halfway)?;
    let present = before.last()?;
    after.iter().position(|split| split != present)
}

/// The splits a job used, in order.
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
