//! The time of an iteration at every cut relative to the freeze cut: the paper's figure 3.

use crate::grid::describe;
use crate::legs::{LegTimes, leg};
use crate::networks::{Grid, Network, noted, short};
use crate::planner::Plan;
use crate::report::Report;
use crate::tiers::Tiers;
use crate::trainer::Trainer;
use anyhow::{Context, Result};
use frostline_trainer::rehearsal::Leg;
use frostline_wire::Split;

/// The paper's two links, as they stand to one core a tier.
const LINKS: [f64; 2] = [50.0, 500.0];

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let grid = Grid::read()?;
    let tiers = Tiers::open(&report.photos())?;
    describe(&tiers);
    println!(
        "\n{:<12} {:>6}  {:<44} {:>9} {:>10} {:>10}",
        "network", "Mbit/s", "split", "s", "of freeze", "KB"
    );
    for name in &grid.extent(report).networks {
        let measured = network(report, &tiers, grid.network(name)?);
        noted(report, name, measured)?;
    }
    Ok(())
}

fn network(report: &mut Report, tiers: &Tiers, network: &Network) -> Result<()> {
    let quick = report.quick();
    let folder = tempfile::tempdir()?;
    tiers.link().hold(None)?;
    let host = tiers.host(folder.path())?;
    let mut trainer = Trainer::open(tiers, &host, network, network.batch(quick))?;
    trainer.upload()?;
    let steps = if quick { 3 } else { 6 };
    let cuts = network.cuts(quick);
    let splits = ["none", "input"]
        .into_iter()
        .chain(cuts.iter().map(String::as_str));
    let splits: Vec<Split> = splits.map(Split::from).collect();
    let links = if quick {
        LINKS.get(..1).unwrap_or_default()
    } else {
        &LINKS
    };
    for mbit in links {
        tiers.link().hold(Some(*mbit))?;
        let plan = Plan::ask(&trainer, "auto", cuts)?;
        let leg = |split| Ok(leg(split, plan.candidate(split)?.encoding, steps, plan.flow()));
        let legs: Vec<Leg> = splits.iter().map(leg).collect::<Result<_>>()?;
        show(report, network, *mbit, &trainer.time(&legs, plan.flow())?)?;
    }
    Ok(())
}

fn show(report: &mut Report, network: &Network, mbit: f64, times: &[LegTimes]) -> Result<()> {
    let freeze = times.last().context("no split was measured")?.seconds;
    let name = &network.name;
    for leg in times {
        let (split, seconds) = (leg.split.to_string(), leg.seconds);
        println!(
            "{name:<12} {mbit:>6}  {:<44} {seconds:>9.3} {:>10.2} {:>10.0}",
            short(&split),
            seconds / freeze,
            leg.bytes / 1e3
        );
        report.set(
            &format!("{name}_{mbit}mbit_{}_of_freeze", short(&split)),
            seconds / freeze,
        );
    }
    let best = times.iter().map(|leg| leg.seconds).fold(f64::INFINITY, f64::min);
    report.set(&format!("{name}_{mbit}mbit_freeze_seconds"), freeze);
    report.set(&format!("{name}_{mbit}mbit_best_of_freeze"), best / freeze);
    Ok(())
}
