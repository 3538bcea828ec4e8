//! How well the stages overlap in steady state: what each tier does all the time, at three cells; and whether the losses are the same
//! whatever travels.

use crate::grid::describe;
use crate::networks::{Grid, short};
use crate::planner::Plan;
use crate::report::Report;
use crate::tiers::{Meter, Tiers};
use crate::trainer::Trainer;
use anyhow::{Context, Result};
use frostline_wire::{Encoding, Split};

/// A network and a link in Mbit/s: one that the link bounds, one in between, one that compute bounds.
const CELLS: [(&str, f64); 3] = [("alexnet", 5.0), ("resnet18", 50.0), ("densenet121", 500.0)];

/// Steps until the pipeline is full, and once the last batches are on their way.
const RAMP: (usize, usize) = (4, 3);

/// How far a loss may lie from the one with f32: of f32 at another split, whose activations went through another session, and
/// of f16, whose activations are rounded to 11 significant bits. Relative to the loss.
const TOLERANCE: f64 = 1e-4;
const TOLERANCE_F16: f64 = 5e-3;

/// The step size of a real fine-tuning, so that losses move.
const LEARNING_RATE: f32 = 1e-3;

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let grid = Grid::read()?;
    let steps = if report.quick() { 14 } else { 32 };
    let tiers = Tiers::open()?;
    describe(&tiers);
    println!("{steps} steps a job, those at its ends left out\n");
    println!(
        "{:<12} {:>6}  {:<40} {:<5} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "network", "Mbit/s", "split", "", "s", "idle", "trainer", "link", "host", "store"
    );
    let (mut worst, mut worst_f16) = (0.0_f64, 0.0_f64);
    for (name, mbit) in CELLS {
        let network = grid.network(name)?;
        let folder = tempfile::tempdir()?;
        tiers.link().hold(None)?;
        let host = tiers.host(folder.path())?;
        let mut trainer = Trainer::open(&tiers, &host, network, network.batch(true))?;
        trainer.upload()?;
        tiers.link().hold(Some(mbit))?;
        let plan = Plan::ask(&trainer, "auto", network.cuts(true))?;
        let at_planned = exact(&plan.split);
        let mut variants = vec![(plan.split.clone(), at_planned)];
        if matches!(plan.split, Split::Cut(_)) {
            variants.push((plan.split.clone(), Encoding::F16));
        }
        for split in [Split::Cut(network.freeze.clone()), Split::Input] {
            if split != plan.split {
                let encoding = exact(&split);
                variants.push((split, encoding));
            }
        }
        let mut losses: Option<Vec<f64>> = None;
        for (split, encoding) in variants {
            let (mut meter, mut used) = (Meter::open(&tiers, &host)?, None);
            let taken = trainer.steps((&split, encoding), steps, LEARNING_RATE, plan.flow(), |done| {
                if done == RAMP.0 {
                    meter.start()?;
                }
                if done == steps as usize - RAMP.1 {
                    used = Some(meter.used()?);
                }
                Ok(())
            })?;
            let used = used.context("the job ended early")?;
            let counted = taken.get(RAMP.0..steps as usize - RAMP.1).unwrap_or_default();
            let waited: f64 = counted.iter().map(|step| step.waited).sum();
            let computed: f64 = counted.iter().map(|step| step.computed).sum();
            let link = used.bytes as f64 * 8.0 / (used.seconds * mbit * 1e6);
            let idle = waited / (waited + computed);
            let [trainer_share, host_share, store_share] = [used.trainer, used.host, used.store];
            println!(
                "{name:<12} {mbit:>6}  {:<40} {:<5} {:>8.3} {:>7.0}% {:>7.0}% {:>7.0}% {:>7.0}% {:>7.0}%",
                short(&split.to_string()),
                encoding.to_string(),
                used.seconds / counted.len() as f64,
                100.0 * idle,
                100.0 * trainer_share,
                100.0 * link,
                100.0 * host_share,
                100.0 * store_share,
            );
            if split == plan.split && encoding == at_planned {
                for (key, share) in [
                    ("trainer_idle", idle),
                    ("link_use", link),
                    ("trainer_core", trainer_share),
                    ("host_core", host_share),
                    ("store_core", store_share),
                ] {
                    report.set(&format!("{name}_{mbit}mbit_{key}_share"), share);
                }
            }
            let own: Vec<f64> = taken.iter().map(|step| f64::from(step.loss)).collect();
            let apart = losses.as_ref().map(|first| furthest(first, &own)).transpose()?;
            match apart {
                None => losses = Some(own),
                Some(apart) if encoding == Encoding::F16 => worst_f16 = worst_f16.max(apart),
                Some(apart) => worst = worst.max(apart),
            }
        }
    }
    println!(
        "\nidle: share of the steps in which the trainer waits for data; trainer, host, store: share of a core's time that the process computes; \
         link: share of its rate\nlosses of {steps} steps, relative difference at most: f32 between splits {worst:.1e} (tolerance {TOLERANCE:.0e}), \
         f16 against f32 {worst_f16:.1e} (tolerance {TOLERANCE_F16:.0e})"
    );
    report.set("loss_difference_f32", worst);
    report.set("loss_difference_f16", worst_f16);
    report.set("f32_within_tolerance", worst <= TOLERANCE);
    report.set("f16_within_tolerance", worst_f16 <= TOLERANCE_F16);
    Ok(())
}

/// The encoding that changes nothing.
fn exact(split: &Split) -> Encoding {
    match split {
        Split::Input => Encoding::U8,
        Split::None | Split::Cut(_) => Encoding::F32,
    }
}

/// The largest relative difference between two loss curves.
fn furthest(one: &[f64], other: &[f64]) -> Result<f64> {
    anyhow::ensure!(one.len() == other.len(), "jobs of different length");
    one.iter()
        .zip(other)
        .map(|(one, other)| (one - other).abs() / one.abs().max(f64::MIN_POSITIVE))
        .reduce(f64::max)
        .context("a job without steps")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_differ_by_their_worst_step() {
        assert_eq!(furthest(&[1.0, 2.0], &[1.0, 1.0]).unwrap(), 0.5);
        assert!(furthest(&[1.0], &[]).is_err());
    }
}
