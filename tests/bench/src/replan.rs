//! Jobs whose world changes midway: their time against the best split that could have been fixed, known with hindsight.

use crate::grid::describe;
use crate::networks::{Grid, Network, short};
use crate::planner::Plan;
use crate::report::Report;
use crate::tiers::{Brake, Tiers};
use crate::trainer::{Tick, Trainer};
use anyhow::{Context, Result, ensure};
use frostline_trainer::Policy;
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
}

impl Extent {
    /// A quick job is one pass in small batches: 64 steps, of which it needs some ten to see a change, in a quarter of a minute where
    /// nothing is slow. There are 14 of them.
    fn of(quick: bool, network: &Network) -> Self {
        if quick {
            Self { epochs: 1, batch: 4 }
        } else {
            Self {
                epochs: 10,
                batch: network.batch(false),
            }
        }
    }
}

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let grid = Grid::read()?;
    let network = grid.network(NETWORK)?;
    let Extent { epochs, batch } = Extent::of(report.quick(), network);
    let tiers = Tiers::open()?;
    describe(&tiers);
    let folder = tempfile::tempdir()?;
    let host = tiers.host(folder.path())?;
    let mut trainer = Trainer::open(&tiers, &host, network, batch)?;
    trainer.upload()?;
    let cuts = network.cuts(report.quick());
    tiers.link().hold(Some(LINK))?;
    let plan = Plan::ask(&trainer, "auto", cuts)?;
    let steps = epochs as usize * tiers.photos().train.div_ceil(batch);
    println!(
        "{NETWORK}, {steps} steps of {batch} at {LINK} Mbit/s; halfway the link drops to {LINK_DROPS_TO}, or the host becomes {SLOWER} times slower by {}",
        Brake::means()
    );
    let cuts = cuts.iter().map(|cut| Split::from(cut.as_str()));
    let subject = Subject {
        trainer: &trainer,
        plan,
        candidates: [Split::None, Split::Input].into_iter().chain(cuts).collect(),
        epochs,
        halfway: steps / 2,
    };
    for change in [Change::Link, Change::Host] {
        let (split, least) = subject.hindsight(change)?;
        subject.adapt(report, change, (&split, least))?;
    }
    Ok(())
}

/// The job that is run again and again.
struct Subject<'a> {
    trainer: &'a Trainer<'a>,
    plan: Plan,
    /// The same for all jobs, so that the adaptive one chooses among those that are fixed.
    candidates: Vec<Split>,
    epochs: u32,
    /// The number of steps after which the change comes; at least as many follow.
    halfway: usize,
}

impl Subject<'_> {
    /// The fastest candidate to have stayed with, and its seconds; all are measured.
    fn hindsight(&self, change: Change) -> Result<(Split, f64)> {
        let mut best: Option<(Split, f64)> = None;
        for split in &self.candidates {
            let encoding = self.plan.candidate(split)?.encoding;
            let ticks = self.run(Policy::Fixed(split.clone()), Some(encoding), change)?;
            let seconds = duration(&ticks)?;
            println!(
                "  {:<6} {:<44} {seconds:>8.1} s",
                change.name(),
                short(&split.to_string())
            );
            if best.as_ref().is_none_or(|(_, least)| seconds < *least) {
                best = Some((split.clone(), seconds));
            }
        }
        best.context("no split was measured")
    }

    /// The job that may change its split, against the best fixed one.
    fn adapt(&self, report: &mut Report, change: Change, (best, least): (&Split, f64)) -> Result<()> {
        let ticks = self.run(Policy::Auto, None, change)?;
        let seconds = duration(&ticks)?;
        let splits: Vec<&Split> = ticks.iter().map(|tick| &tick.split).collect();
        let reaction = reaction(&splits, self.halfway);
        let reacted = reaction.map_or_else(
            || "never changed its split after that".to_owned(),
            |steps| format!("{steps} steps at the old split after that"),
        );
        let (name, visited) = (change.name(), visited(&splits));
        println!(
            "  {name:<6} {visited:<44} {seconds:>8.1} s, {:.2} of the best fixed one, {}; {reacted}",
            seconds / least,
            short(&best.to_string())
        );
        report.set(&format!("ratio_vs_hindsight_{name}"), seconds / least);
        report.set(&format!("{name}_best_fixed"), best.to_string());
        report.set(&format!("{name}_splits"), visited);
        report.set(&format!("{name}_reaction_steps"), reaction);
        Ok(())
    }

    /// One job; the change is taken back at its end.
    fn run(&self, policy: Policy, encoding: Option<Encoding>, change: Change) -> Result<Vec<Tick>> {
        let tiers = self.trainer.tiers();
        tiers.link().hold(Some(LINK))?;
        let mut brake = None;
        let ticks = self
            .trainer
            .watch(policy, encoding, &self.candidates, self.epochs, |done| {
                if done == self.halfway {
                    match change {
                        Change::Link => tiers.link().hold(Some(LINK_DROPS_TO))?,
                        Change::Host => brake = Some(tiers.slow_down(self.trainer.host(), SLOWER)?),
                    }
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
