//! Jobs whose world changes midway: their time against the best split that could have been fixed, known with hindsight.

use crate::grid::describe;
use crate::networks::{Grid, short};
use crate::planner::Plan;
use crate::report::Report;
use crate::tiers::{Brake, Tiers};
use crate::trainer::{Tick, Trainer};
use anyhow::{Context, Result};
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

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let grid = Grid::read()?;
    let network = grid.network(NETWORK)?;
    let quick = report.quick();
    let epochs = if quick { 2 } else { 10 };
    let tiers = Tiers::open()?;
    describe(&tiers);
    let folder = tempfile::tempdir()?;
    let host = tiers.host(folder.path())?;
    let mut trainer = Trainer::open(&tiers, &host, network, network.batch(quick))?;
    trainer.upload()?;
    let cuts = network.cuts(quick);
    tiers.link().hold(Some(LINK))?;
    let plan = Plan::ask(&trainer, "auto", cuts)?;
    let steps = epochs as usize * tiers.photos().train.div_ceil(trainer.batch());
    println!(
        "{NETWORK}, {steps} steps of {} at {LINK} Mbit/s; halfway the link drops to {LINK_DROPS_TO}, or the host becomes {SLOWER} times slower by {}",
        trainer.batch(),
        Brake::means()
    );
    let subject = Subject {
        trainer: &trainer,
        epochs,
        halfway: steps / 2,
    };
    for change in [Change::Link, Change::Host] {
        let mut best: Option<(String, f64)> = None;
        for split in ["none", "input"]
            .into_iter()
            .chain(cuts.iter().map(String::as_str))
        {
            let fixed = Split::from(split);
            let encoding = plan.candidate(&fixed)?.encoding;
            let ticks = subject.run(Policy::Fixed(fixed), Some(encoding), change)?;
            let seconds = duration(&ticks)?;
            println!("  {:<6} {:<44} {seconds:>8.1} s", change.name(), short(split));
            if best.as_ref().is_none_or(|(_, least)| seconds < *least) {
                best = Some((split.to_owned(), seconds));
            }
        }
        let (split, least) = best.context("no split was measured")?;
        let ticks = subject.run(Policy::Auto, None, change)?;
        let seconds = duration(&ticks)?;
        println!(
            "  {:<6} {:<44} {seconds:>8.1} s, {:.2} of the best fixed one, {}",
            change.name(),
            visited(&ticks),
            seconds / least,
            short(&split)
        );
        report.set(&format!("ratio_vs_hindsight_{}", change.name()), seconds / least);
        report.set(&format!("{}_best_fixed", change.name()), split);
        report.set(&format!("{}_splits", change.name()), visited(&ticks));
    }
    Ok(())
}

/// The job that is run again and again.
struct Subject<'a> {
    trainer: &'a Trainer<'a>,
    epochs: u32,
    /// The number of steps after which the change comes.
    halfway: usize,
}

impl Subject<'_> {
    /// One job; the change is taken back at its end.
    fn run(&self, policy: Policy, encoding: Option<Encoding>, change: Change) -> Result<Vec<Tick>> {
        let tiers = self.trainer.tiers();
        tiers.link().hold(Some(LINK))?;
        let mut brake = None;
        self.trainer.watch(policy, encoding, self.epochs, |done| {
            if done == self.halfway {
                match change {
                    Change::Link => tiers.link().hold(Some(LINK_DROPS_TO))?,
                    Change::Host => brake = Some(tiers.slow_down(self.trainer.host(), SLOWER)?),
                }
            }
            Ok(())
        })
    }
}

/// From the second step on, for the first one waits for sessions to be loaded.
fn duration(ticks: &[Tick]) -> Result<f64> {
    let (first, last) = ticks.first().zip(ticks.last()).context("the job had no steps")?;
    Ok(last.since(first))
}

/// The splits a job used, in order.
fn visited(ticks: &[Tick]) -> String {
    let legs = ticks.chunk_by(|one, other| one.split == other.split);
    let names: Vec<String> = legs
        .filter_map(|leg| leg.first())
        .map(|tick| short(&tick.split.to_string()).to_owned())
        .collect();
    names.join(" -> ")
}
