//! How well the stages overlap in steady state: what each tier does all the time, at three cells; and whether the losses are the same
//! whatever travels.

use crate::networks::short;
use crate::planner::Plan;
use crate::report::Report;
use crate::rig::Rig;
use crate::tiers::{Meter, Used};
use crate::trainer::{Step, Trainer};
use anyhow::{Context, Result};
use frostline_trainer::Flow;
use frostline_wire::{Encoding, Split, Values};

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
    let steps = if report.quick() { 14 } else { 32 };
    let rig = Rig::open(report)?;
    println!("{steps} steps per job, without those at its ends\n");
    print_header();
    let mut differences = Differences::default();
    for (name, mbit) in CELLS {
        let network = rig.grid.network(name)?;
        let jobs = Trainer::with_host(&rig.tiers, &network, network.batch(true), |trainer| {
            cell(report, trainer, mbit, steps)
        })?;
        differences.add(&jobs)?;
    }
    println!(
        "\nidle: share of the steps in which the trainer waits for data; trainer, host, store: share of a core's time that the process computes; \
         link: share of its rate"
    );
    differences.show(report, steps);
    Ok(())
}

/// Measures all variants of a cell. The shares of the one that the plan chose go into the report.
fn cell(report: &mut Report, trainer: &Trainer<'_>, mbit: f64, steps: u64) -> Result<Vec<Job>> {
    let network = trainer.network();
    let name = &network.name;
    trainer.tiers().link().hold(Some(mbit))?;
    let plan = Plan::ask(trainer, "auto", network.cuts(true))?;
    let planned = Variant {
        split: plan.split.clone(),
        encoding: plan.encoding,
    };
    let mut jobs = Vec::new();
    for variant in variants(&planned, &network.freeze) {
        let job = Job::measure(trainer, variant, plan.flow(), mbit, steps)?;
        job.print(name, mbit);
        if job.variant == planned {
            job.report(report, &format!("{name}_{mbit}mbit"));
        }
        jobs.push(job);
    }
    Ok(jobs)
}

/// Where a job divides the network, and how activations travel there.
#[derive(Debug, Clone, PartialEq)]
struct Variant {
    split: Split,
    encoding: Encoding,
}

impl Variant {
    /// In the encoding that changes nothing.
    fn exact(split: Split) -> Self {
        let encoding = match split {
            Split::Input => Encoding::U8,
            Split::None | Split::Cut(_) => Encoding::F32,
        };
        Self { split, encoding }
    }

    /// Whether activations lose bits on the way.
    fn is_rounded(&self) -> bool {
        matches!(self.encoding.values, Values::F16 | Values::Int8)
    }
}

/// What a cell compares, each once: the planned split exactly and as planned, f16 where activations travel (at the planned cut, or else at
/// the freeze cut), and exactly at the freeze cut and at `input`.
fn variants(planned: &Variant, freeze: &str) -> Vec<Variant> {
    let freeze = Split::Cut(freeze.to_owned());
    let cut = match planned.split {
        Split::Cut(_) => planned.split.clone(),
        Split::None | Split::Input => freeze.clone(),
    };
    let all = [
        Variant::exact(planned.split.clone()),
        planned.clone(),
        Variant {
            split: cut,
            encoding: Encoding::F16,
        },
        Variant::exact(freeze),
        Variant::exact(Split::Input),
    ];
    let mut each_once = Vec::new();
    for variant in all {
        if !each_once.contains(&variant) {
            each_once.push(variant);
        }
    }
    each_once
}

/// What a job of one variant showed.
struct Job {
    variant: Variant,
    /// Of a step in steady state, the mean.
    seconds: f64,
    /// Share of its steps in which the trainer waits for data, 0 to 1.
    idle: f64,
    /// Share of the link's rate that was used, 0 to 1.
    link: f64,
    used: Used,
    /// Of every step, those at the ends too.
    losses: Vec<f64>,
}

impl Job {
    fn measure(trainer: &Trainer, variant: Variant, flow: Flow, mbit: f64, steps: u64) -> Result<Self> {
        let steady = RAMP.0..(steps as usize).saturating_sub(RAMP.1);
        let mut meter = Meter::open(trainer.tiers(), trainer.host())?;
        let mut used = None;
        let way = (&variant.split, variant.encoding);
        let taken = trainer.steps(way, steps, LEARNING_RATE, flow, |done| {
            if done == steady.start {
                meter.start()?;
            }
            if done == steady.end {
                used = Some(meter.used()?);
            }
            Ok(())
        })?;
        let used = used.context("the job ended early")?;
        let counted = taken.get(steady).unwrap_or_default();
        Ok(Self {
            variant,
            seconds: used.seconds / counted.len() as f64,
            idle: idle(counted),
            link: used.bytes as f64 * 8.0 / (used.seconds * mbit * 1e6),
            used,
            losses: taken.iter().map(|step| f64::from(step.loss)).collect(),
        })
    }

    /// Its row of the table.
    fn print(&self, network: &str, mbit: f64) {
        println!(
            "{network:<12} {mbit:>6}  {:<40} {:<9} {:>8.3} {:>7.0}% {:>7.0}% {:>7.0}% {:>7.0}% {:>7.0}%",
            short(&self.variant.split.to_string()),
            self.variant.encoding.to_string(),
            self.seconds,
            100.0 * self.idle,
            100.0 * self.used.trainer,
            100.0 * self.link,
            100.0 * self.used.host,
            100.0 * self.used.store,
        );
    }

    fn report(&self, report: &mut Report, cell: &str) {
        report.set(&format!("{cell}_split"), self.variant.split.to_string());
        report.set(&format!("{cell}_encoding"), self.variant.encoding.to_string());
        for (key, share) in [
            ("trainer_idle", self.idle),
            ("link_use", self.link),
            ("trainer_core", self.used.trainer),
            ("host_core", self.used.host),
            ("store_core", self.used.store),
        ] {
            report.set(&format!("{cell}_{key}_share"), share);
        }
    }
}

fn print_header() {
    println!(
        "{:<12} {:>6}  {:<40} {:<9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "network", "Mbit/s", "split", "", "s", "idle", "trainer", "link", "host", "store"
    );
}

/// Share of the steps' time in which the trainer waits.
fn idle(steps: &[Step]) -> f64 {
    let waited: f64 = steps.iter().map(|step| step.waited).sum();
    let computed: f64 = steps.iter().map(|step| step.computed).sum();
    waited / (waited + computed)
}

/// The largest relative differences between the losses of jobs that should be alike.
#[derive(Debug, Default)]
struct Differences {
    /// Of exact jobs, between splits.
    exact: f64,
    /// Of rounded jobs, from the exact one at the same split.
    rounded: f64,
}

impl Differences {
    /// Takes in the jobs of a cell.
    fn add(&mut self, jobs: &[Job]) -> Result<()> {
        let first = jobs.first().context("a cell without jobs")?;
        for job in jobs {
            if job.variant.is_rounded() {
                let wanted = Variant::exact(job.variant.split.clone());
                let exact = jobs.iter().find(|other| other.variant == wanted);
                let exact = exact.with_context(|| format!("'{}' was not measured exactly", wanted.split))?;
                self.rounded = self.rounded.max(furthest(&exact.losses, &job.losses)?);
            } else {
                self.exact = self.exact.max(furthest(&first.losses, &job.losses)?);
            }
        }
        Ok(())
    }

    fn show(&self, report: &mut Report, steps: u64) {
        println!(
            "losses of {steps} steps, relative difference at most: f32 between splits {:.1e} (tolerance {TOLERANCE:.0e}), \
             f16 against f32 {:.1e} (tolerance {TOLERANCE_F16:.0e})",
            self.exact, self.rounded
        );
        report.set("loss_difference_f32", self.exact);
        report.set("loss_difference_f16", self.rounded);
        report.set("f32_within_tolerance", self.exact <= TOLERANCE);
        report.set("f16_within_tolerance", self.rounded <= TOLERANCE_F16);
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

    fn variant(split: &str, encoding: &str) -> Variant {
        Variant {
            split: Split::from(split),
            encoding: encoding.parse().unwrap(),
        }
    }

    fn job(split: &str, encoding: &str, losses: &[f64]) -> Job {
        Job {
            variant: variant(split, encoding),
            seconds: 1.0,
            idle: 0.0,
            link: 0.0,
            used: Used {
                seconds: 1.0,
                bytes: 0,
                trainer: 0.0,
                host: 0.0,
                store: 0.0,
            },
            losses: losses.to_vec(),
        }
    }

    #[test]
    fn curves_differ_by_their_worst_step() {
        assert_eq!(furthest(&[1.0, 2.0], &[1.0, 1.0]).unwrap(), 0.5);
        assert!(furthest(&[1.0], &[]).is_err());
    }

    #[test]
    fn every_plan_is_measured_once_as_it_is_and_f16_at_some_cut() {
        let planned = [
            ("none", "f32"),
            ("input", "u8"),
            ("input", "u8+zstd"),
            ("middle", "f32"),
            ("middle", "f16"),
            ("middle", "f16+zstd"),
            ("freeze", "f32"),
            ("freeze", "f16+lz4"),
        ];
        for (split, encoding) in planned {
            let planned = variant(split, encoding);
            let all = variants(&planned, "freeze");
            let count = |wanted: &Variant| all.iter().filter(|variant| *variant == wanted).count();
            assert_eq!(count(&planned), 1, "{all:?}");
            let cut = if split == "middle" { "middle" } else { "freeze" };
            assert_eq!(count(&variant(cut, "f16")), 1, "{all:?}");
            for rounded in all.iter().filter(|variant| variant.is_rounded()) {
                assert_eq!(count(&Variant::exact(rounded.split.clone())), 1, "{all:?}");
            }
        }
    }

    #[test]
    fn rounding_is_judged_at_its_own_split() {
        let mut differences = Differences::default();
        let jobs = [
            job("input", "u8", &[1.0, 1.0]),
            job("freeze", "f16", &[2.0, 3.0]),
            job("freeze", "f32", &[2.0, 2.0]),
        ];
        differences.add(&jobs).unwrap();
        assert_eq!((differences.exact, differences.rounded), (1.0, 0.5));
        assert!(differences.add(&[job("freeze", "f16", &[2.0])]).is_err());
    }
}
