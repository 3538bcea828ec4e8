//! Jobs that cache features: times of later epochs, whole jobs and second jobs relative to streaming objects,
//! to PyTorch, and to extracting all features before training.

use crate::legs::leg;
use crate::networks::short;
use crate::peers::Peer;
use crate::report::{Report, geometric_mean, median, quantile};
use crate::rig::Rig;
use crate::trainer::Trainer;
use anyhow::{Context, Result};
use frostline_features::Cache;
use frostline_trainer::FetchLimits;
use frostline_wire::{Encoding, Split};
use std::path::Path;

/// Networks, frozen up to the paper's cuts.
const NETWORKS: [&str; 3] = ["alexnet", "resnet18", "resnet50"];
/// In Mbit/s.
const LINKS: [f64; 2] = [20.0, 50.0];
const QUICK_LINKS: [f64; 1] = [50.0];
/// Epochs of every job.
const EPOCHS: u32 = 20;
/// Steps for measuring the iteration time with the DataLoader and with streamed objects. Used to extrapolate
/// job times.
const STEPS: usize = 16;
/// Fetch limits for streamed objects.
const FLOW: FetchLimits = FetchLimits {
    request_samples: 32,
    window: 16,
    ahead: 3,
};

/// Seconds of each method, and ratios.
struct Compared {
    /// Seconds per step when objects are streamed.
    streamed: f64,
    later: f64,
    ours: f64,
    pytorch: f64,
    extract_once: f64,
    second: f64,
    /// Estimated seconds without feature cache.
    unkept: f64,
    /// Training time of a first epoch that fills the cache, relative to one without a cache.
    tax: f64,
    /// Training time of later epochs relative to the sum of the steps.
    over_steps: f64,
    /// Bytes per cached feature in addition to the values.
    overhead: f64,
}

pub(crate) fn run(report: &mut Report, rig: &Rig, python: &Path) -> Result<()> {
    let (names, links) = report.named();
    let links = match (links, report.quick()) {
        ([], true) => QUICK_LINKS.to_vec(),
        ([], false) => LINKS.to_vec(),
        (links, _) => links.to_vec(),
    };
    let names = match names {
        [] => NETWORKS.map(str::to_owned).to_vec(),
        names => names.to_vec(),
    };
    println!(
        "planned jobs of {EPOCHS} epochs, from the listing to the tuned model\nPyTorch with one thread and 1 or 2 data workers (the faster number), from the time of an iteration\nextracting once: into memory, then shuffled in each epoch\n"
    );
    println!(
        "{:<10} {:>6}  {:<24} {:>8} {:>9} {:>7} {:>9} {:>7} {:>8} {:>8} {:>6} {:>6}",
        "network",
        "Mbit/s",
        "split",
        "job s",
        "PyTorch s",
        "ratio",
        "once s",
        "ratio",
        "later",
        "2nd job",
        "tax",
        "bound"
    );
    let mut all = Vec::new();
    rig.each(report, &names, |report, trainer| {
        all.extend(network(report, trainer, &links, python)?);
        Ok(())
    })?;
    summarize(report, &all);
    Ok(())
}

fn summarize(report: &mut Report, all: &[Compared]) {
    let each = |of: fn(&Compared) -> f64| all.iter().map(of).collect::<Vec<f64>>();
    let later = each(|one| one.streamed / one.later);
    let pytorch = each(|one| one.pytorch / one.ours);
    let once = each(|one| one.extract_once / one.ours);
    let second = each(|one| one.unkept / one.second);
    let figures = [
        ("later_epoch_speedup", geometric_mean(&later)),
        ("later_epoch_speedup_min", quantile(&later, 0.0)),
        ("job_speedup_vs_pytorch", geometric_mean(&pytorch)),
        ("job_ratio_vs_extract_once", geometric_mean(&once)),
        ("job_ratio_vs_extract_once_min", quantile(&once, 0.0)),
        ("second_run_speedup", geometric_mean(&second)),
        ("first_epoch_tax", median(&each(|one| one.tax))),
        ("epoch_ratio_vs_step_bound", median(&each(|one| one.over_steps))),
        ("store_bytes_per_row_overhead", median(&each(|one| one.overhead))),
    ];
    println!();
    for (name, figure) in figures {
        report.set(name, figure);
        if !all.is_empty() {
            println!("{name:<30} {figure:.3}");
        }
    }
}

fn network(
    report: &mut Report,
    trainer: &mut Trainer<'_>,
    links: &[f64],
    python: &Path,
) -> Result<Vec<Compared>> {
    let network = trainer.network().clone();
    let candidates = network.candidates(report.quick());
    // Measures both sides before any timed job, because jobs share these measurements.
    trainer.whole(&candidates, 1, None)?;
    let mut all = Vec::new();
    for mbit in links {
        trainer.tiers().link().hold(Some(*mbit))?;
        let (of, split) =
            compare(trainer, &candidates, python).with_context(|| format!("over {mbit} Mbit/s"))?;
        report_comparison(report, &network.name, *mbit, &of, &split);
        all.push(of);
    }
    Ok(all)
}

fn report_comparison(report: &mut Report, name: &str, mbit: f64, of: &Compared, split: &Split) {
    println!(
        "{name:<10} {mbit:>6}  {:<24} {:>8.1} {:>9.1} {:>7.2} {:>9.1} {:>7.2} {:>8.1} {:>8.1} {:>6.3} {:>6.3}",
        short(&split.to_string()),
        of.ours,
        of.pytorch,
        of.pytorch / of.ours,
        of.extract_once,
        of.extract_once / of.ours,
        of.streamed / of.later,
        of.unkept / of.second,
        of.tax,
        of.over_steps
    );
    for (key, value) in [
        ("job_seconds", of.ours),
        ("pytorch_seconds", of.pytorch),
        ("extract_once_seconds", of.extract_once),
        ("later_epoch_speedup", of.streamed / of.later),
        ("second_run_speedup", of.unkept / of.second),
        ("first_epoch_tax", of.tax),
    ] {
        report.set(&format!("{name}_{mbit}mbit_{key}"), value);
    }
}

/// Compares all methods over the link at the current rate.
fn compare(trainer: &mut Trainer<'_>, candidates: &[Split], python: &Path) -> Result<(Compared, Split)> {
    let kept = tempfile::tempdir()?;
    let cache = || Some(Cache::new(kept.path(), u64::MAX));
    let unkept = trainer.whole(candidates, 2, None)?;
    let first = trainer.whole(candidates, EPOCHS, cache())?;
    let listed = Cache::new(kept.path(), 0).list();
    let store = listed.first().context("the job cached no features")?;
    let second = trainer.whole(candidates, EPOCHS, cache())?;
    let place = first.first_split.clone().context("the job chose no split")?;
    let tax = tax(trainer, &place)?;
    let streamed = leg(&Split::None, Encoding::F32, STEPS as u64, FLOW);
    let streamed = trainer.time(&[streamed], FLOW)?;
    let streamed = streamed.first().context("the rehearsal timed no leg")?.seconds;
    let peer = Peer { trainer, python };
    let (loader, extract_once) = (peer.loader(STEPS)?, peer.whole_from_memory(EPOCHS)?);
    let (later, steps) = (first.later(), first.first().steps as f64);
    let row = store
        .row
        .as_ref()
        .context("missing row format in the feature cache")?;
    let row_bytes = row.bytes()? as f64;
    let rows = store.rows as f64;
    // Extrapolate the job time without a feature cache from the second epoch.
    let others = f64::from(EPOCHS) - 2.0;
    let compared = Compared {
        streamed,
        later: later.training() / later.steps as f64,
        ours: first.seconds,
        pytorch: loader * steps * f64::from(EPOCHS),
        extract_once,
        second: second.seconds,
        unkept: unkept.seconds + others * unkept.later().seconds,
        tax,
        over_steps: later.training() / later.computed,
        overhead: store.bytes as f64 / rows - row_bytes,
    };
    Ok((compared, place.0))
}

/// Training time of an epoch with a feature cache relative to one without. Both use the same split: plans
/// with a cache may choose another split because they take later epochs into account.
fn tax(trainer: &Trainer<'_>, place: &(Split, Encoding)) -> Result<f64> {
    let kept = tempfile::tempdir()?;
    let epoch = |features| {
        let whole = trainer.whole_at(place.clone(), 1, features)?;
        anyhow::Ok(whole.first().training())
    };
    let without = epoch(None)?;
    Ok(epoch(Some(Cache::new(kept.path(), u64::MAX)))? / without)
}
