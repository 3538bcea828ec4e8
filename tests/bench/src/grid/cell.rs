use crate::legs::{LegTimes, all_steps, leg};
use crate::networks::Extent;
use crate::planner::Plan;
use crate::report::median;
use crate::trainer::Trainer;
use anyhow::{Context, Result};
use frostline_trainer::FetchLimits;
use frostline_trainer::rehearsal::Leg;
use frostline_wire::Split;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// Maximum number of runs per candidate, interleaved.
const ROUNDS: usize = 3;

/// A candidate is ruled out if transferring the bytes alone needs this many times the best time so far. Noise
/// is a tenth of that.
const RULED_OUT: f64 = 1.5;

/// A candidate is not repeated if the first run is this many times slower than the best, to save time. Noise
/// is a tenth of that.
const GIVEN_UP: f64 = 1.5;

/// Policies that must be evaluated to find the split. `freeze` and `none` have fixed splits.
const RULES: [&str; 2] = ["hapi-size", "hapi-time"];

/// Results for a network, link and batch size.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) key: String,
    pub(crate) commit: String,
    pub(crate) network: String,
    pub(crate) mbit: f64,
    pub(crate) batch: usize,
    /// Planned split, encoding, and predicted bottleneck.
    pub(crate) planned: String,
    pub(crate) encoding: String,
    pub(crate) bottleneck: String,
    /// Predicted seconds per iteration by split.
    pub(crate) predicted: BTreeMap<String, f64>,
    /// Wall time in seconds for `frostline plan`, and the time spent on choosing.
    pub(crate) command_seconds: f64,
    pub(crate) choosing_seconds: f64,
    /// Split by policy, for all other policies.
    pub(crate) policies: BTreeMap<String, String>,
    /// Measurements by split.
    pub(crate) timings: BTreeMap<String, Timing>,
    /// Minimum seconds per iteration by split for skipped candidates.
    pub(crate) ruled_out: BTreeMap<String, f64>,
    pub(crate) winner: String,
    /// Planned time over the fastest time, measured directly against each other. 1 if both are the same
    /// split.
    pub(crate) planned_over_winner: f64,
    /// Total bytes of the objects for an iteration.
    pub(crate) object_bytes: f64,
}

/// Measured iterations of a candidate.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Timing {
    /// Seconds per iteration in each run.
    pub(crate) runs: Vec<f64>,
    /// Bytes on the link per iteration, including headers: the median of the runs.
    pub(crate) bytes: f64,
    run_bytes: Vec<f64>,
}

impl Timing {
    fn add(&mut self, times: &LegTimes) {
        self.runs.push(times.seconds);
        self.run_bytes.push(times.bytes);
        self.bytes = median(&self.run_bytes);
    }

    /// Median seconds per iteration.
    pub(crate) fn median(&self) -> f64 {
        median(&self.runs)
    }
}

impl Cell {
    /// Median seconds per iteration at `split`, or a lower bound if the split was ruled out.
    pub(crate) fn seconds(&self, split: &str) -> Option<f64> {
        let measured = self.timings.get(split).map(Timing::median);
        measured.or_else(|| self.ruled_out.get(split).copied())
    }
}

/// State of a cell's measurement.
pub(super) struct Measurement<'a, 'b> {
    trainer: &'a mut Trainer<'b>,
    mbit: f64,
    steps: [u64; 2],
    ends: Instant,
    least_rounds: usize,
    plan: Plan,
    flow: FetchLimits,
    timings: BTreeMap<String, Timing>,
    ruled_out: BTreeMap<String, f64>,
}

impl<'a, 'b> Measurement<'a, 'b> {
    /// Sets the link's rate and creates the plan.
    pub(super) fn begin(
        trainer: &'a mut Trainer<'b>,
        mbit: f64,
        extent: &Extent,
        candidates: &[Split],
        budget: Duration,
    ) -> Result<Self> {
        let ends = Instant::now() + budget;
        trainer.tiers().link().hold(Some(mbit))?;
        let plan = Plan::ask(trainer, candidates)?;
        Ok(Self {
            trainer,
            mbit,
            steps: extent.steps,
            ends,
            least_rounds: extent.rounds,
            flow: plan.flow(),
            plan,
            timings: BTreeMap::new(),
            ruled_out: BTreeMap::new(),
        })
    }

    /// Measures the cell.
    pub(super) fn finish(mut self, mut candidates: Vec<Split>) -> Result<Cell> {
        let policies = self.policies()?;
        let best = self.single(&self.plan.split.clone())?;
        for split in policies.values().map(|split| Split::from(split.as_str())) {
            if !candidates.contains(&split) {
                candidates.push(split);
            }
        }
        let candidates = self.within_bound(candidates, best)?;
        self.rounds(candidates)?;
        let winner = self.fastest().context("no measurements for the cell")?;
        let planned = self.plan.split.to_string();
        let planned_over_winner = self.head_to_head(&winner)?;
        let predicted = self.plan.candidate(&self.plan.split)?;
        let (batch, photos) = (self.trainer.batch(), self.trainer.tiers().photos());
        Ok(Cell {
            key: String::new(),
            commit: String::new(),
            network: self.trainer.network().name.clone(),
            mbit: self.mbit,
            batch,
            planned,
            encoding: self.plan.encoding.to_string(),
            bottleneck: predicted.bottleneck.clone(),
            predicted: self.plan.predictions(),
            command_seconds: self.plan.wall_seconds,
            choosing_seconds: self.plan.choosing_seconds,
            policies,
            timings: self.timings,
            ruled_out: self.ruled_out,
            winner,
            planned_over_winner,
            object_bytes: photos.mean_bytes * batch as f64,
        })
    }

    /// Splits that other policies choose from the measurements of this plan.
    fn policies(&self) -> Result<BTreeMap<String, String>> {
        let freeze = self.trainer.network().freeze.clone();
        let mut policies = BTreeMap::from([
            ("freeze".to_owned(), freeze),
            ("none".to_owned(), "none".to_owned()),
        ]);
        for rule in RULES {
            let split = self.plan.by(&rule.parse()?)?;
            policies.insert(rule.replace('-', "_"), split.to_string());
        }
        Ok(policies)
    }

    fn leg(&self, split: &Split, steps: u64) -> Result<Leg> {
        let encoding = self.plan.candidate(split)?.encoding;
        Ok(leg(split, encoding, steps, self.flow))
    }

    fn legs(&self, splits: &[Split], steps: u64) -> Result<Vec<Leg>> {
        splits.iter().map(|split| self.leg(split, steps)).collect()
    }

    /// Seconds per iteration from a single run of the split. The run is not stored.
    fn single(&mut self, split: &Split) -> Result<f64> {
        let [least, _] = self.steps;
        let legs = [self.leg(split, least)?];
        let times = self.time(&legs)?;
        Ok(times.first().context("the rehearsal timed no leg")?.seconds)
    }

    /// Times the legs. No time is below the time that the link needs for a step's bytes: if computing is
    /// nearly as slow as the link, a leg may end before the trainer has used up batches that were fetched
    /// during the previous leg.
    fn time(&mut self, legs: &[Leg]) -> Result<Vec<LegTimes>> {
        let mut times = self.trainer.time(legs, self.flow)?;
        for leg in &mut times {
            leg.seconds = leg.seconds.max(leg.bytes * 8.0 / (self.mbit * 1e6));
        }
        Ok(times)
    }

    /// Removes candidates that are too slow to win.
    fn within_bound(&mut self, candidates: Vec<Split>, best: f64) -> Result<Vec<Split>> {
        let mut kept = Vec::new();
        for split in candidates {
            let bytes = self.plan.candidate(&split)?.bytes_per_sample * self.trainer.batch() as f64;
            let at_least = bytes * 8.0 / (self.mbit * 1e6);
            if at_least > RULED_OUT * best && split != self.plan.split {
                self.ruled_out.insert(split.to_string(), at_least);
            } else {
                kept.push(split);
            }
        }
        Ok(kept)
    }

    /// Runs the first round with all candidates and later rounds with the fast candidates.
    fn rounds(&mut self, mut candidates: Vec<Split>) -> Result<()> {
        let mut steps = self.steps[0];
        self.trainer.warm_up(&self.legs(&candidates, steps)?, self.flow)?;
        for round in 0..ROUNDS {
            if self.least_rounds <= round && Instant::now() >= self.ends {
                break;
            }
            candidates.sort_by_cached_key(|split| shuffled(round, split));
            let legs = self.legs(&candidates, steps)?;
            for times in self.time(&legs)? {
                self.timings
                    .entry(times.split.to_string())
                    .or_default()
                    .add(&times);
            }
            let best = self
                .fastest()
                .and_then(|split| self.median(&split))
                .unwrap_or(f64::NAN);
            let planned = self.plan.split.clone();
            candidates.retain(|split| {
                let seconds = self.median(&split.to_string());
                *split == planned || seconds.is_some_and(|seconds| seconds <= GIVEN_UP * best)
            });
            steps = self.affordable(&candidates, ROUNDS - round);
        }
        Ok(())
    }

    /// Number of counted steps per run such that `rounds` more rounds end in time.
    fn affordable(&self, candidates: &[Split], rounds: usize) -> u64 {
        let step: f64 = candidates
            .iter()
            .filter_map(|split| self.median(&split.to_string()))
            .sum();
        let left = self.ends.saturating_duration_since(Instant::now()).as_secs_f64();
        let all = left / (step * rounds.max(1) as f64);
        let [least, most] = self.steps;
        (all as u64)
            .saturating_sub(all_steps(0, self.flow))
            .clamp(least, most)
    }

    fn median(&self, split: &str) -> Option<f64> {
        self.timings.get(split).map(Timing::median)
    }

    fn fastest(&self) -> Option<String> {
        let seconds = self
            .timings
            .iter()
            .map(|(split, timing)| (split, timing.median()));
        seconds
            .min_by(|one, other| one.1.total_cmp(&other.1))
            .map(|(split, _)| split.clone())
    }

    /// Returns the ratio of the planned cut's time to the fastest cut's time, after measuring both twice more
    /// in turns.
    fn head_to_head(&mut self, winner: &str) -> Result<f64> {
        let (planned, winner) = (self.plan.split.clone(), Split::from(winner));
        if planned == winner {
            return Ok(1.0);
        }
        let pair = [planned.clone(), winner];
        let steps = self.affordable(&pair, 2);
        let pair_of_legs = self.legs(&pair, steps)?;
        let legs = [pair_of_legs.as_slice(); 2].concat();
        let mut seconds = [Vec::new(), Vec::new()];
        let [planned_seconds, winner_seconds] = &mut seconds;
        for times in self.time(&legs)? {
            let own = if times.split == planned {
                &mut *planned_seconds
            } else {
                &mut *winner_seconds
            };
            own.push(times.seconds);
        }
        Ok(median(planned_seconds) / median(winner_seconds))
    }
}

/// Sort key that gives a pseudo-random, reproducible order of splits in each round.
fn shuffled(round: usize, split: &Split) -> u64 {
    let mut hasher = DefaultHasher::new();
    (round, split.to_string()).hash(&mut hasher);
    hasher.finish()
}
