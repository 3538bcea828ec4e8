//! Computes the times of legs in a rehearsal. Steps near the start and end are excluded.

use anyhow::{Context, Result, ensure};
use frostline_trainer::FetchLimits;
use frostline_trainer::rehearsal::Leg;
use frostline_wire::{Encoding, Split};
use std::time::Instant;

/// If the trainer waits for more than this share of the time, it is not the bottleneck.
const STARVED: f64 = 0.1;

/// Returns the number of steps to exclude at the start, while batches fill the pipeline, and at the end,
/// while batches for the next leg are in flight.
fn ramp(flow: FetchLimits) -> (usize, usize) {
    (flow.ahead + 1, flow.ahead)
}

/// A finished step.
#[derive(Debug, Clone)]
pub(crate) struct StepEnd {
    pub(crate) at: Instant,
    /// Bytes received over the link by then.
    pub(crate) received: u64,
    /// Seconds spent waiting for the batch.
    pub(crate) waited: f64,
    /// Bytes in the batch without network overhead.
    pub(crate) payload: u64,
    pub(crate) split: Split,
}

/// Step time and bytes of a leg, excluding steps near the start and end.
#[derive(Debug, Clone)]
pub(crate) struct LegTimes {
    pub(crate) split: Split,
    /// Mean seconds per step. Times of single steps have little meaning because batches are fetched in
    /// parallel and arrive together.
    pub(crate) seconds: f64,
    /// Bytes received over the link per step.
    pub(crate) bytes: f64,
}

/// Creates a leg in which at least `steps` steps count.
pub(crate) fn leg(split: &Split, encoding: Encoding, steps: u64, flow: FetchLimits) -> Leg {
    Leg {
        split: split.clone(),
        encoding,
        steps: all_steps(steps, flow),
    }
}

/// Returns the total number of steps for a leg with at least `counted` counted steps. The number is rounded
/// up: batches are fetched in parallel and arrive together, and only complete groups are counted.
pub(crate) fn all_steps(counted: u64, flow: FetchLimits) -> u64 {
    let (before, after) = ramp(flow);
    counted.next_multiple_of(flow.ahead as u64 + 1) + (before + after) as u64
}

/// Ratio of bytes on the link to payload over all legs, including the overhead of HTTP, TCP and Ethernet.
pub(crate) fn framing(ticks: &[StepEnd]) -> f64 {
    /// Upper bound. Headers in full Ethernet frames add less than this; anything beyond belongs to batches
    /// that were fetched but not trained.
    const MOST: f64 = 1.1;
    let Some((first, last)) = ticks.first().zip(ticks.last()) else {
        return 1.0;
    };
    let payload: u64 = ticks.iter().skip(1).map(|tick| tick.payload).sum();
    let received = last.received.saturating_sub(first.received);
    (received as f64 / payload.max(1) as f64).clamp(1.0, MOST)
}

impl LegTimes {
    /// Computes the time of a leg's steps.
    ///
    /// If the trainer is starved, batches are counted by the bytes received: batches are fetched in parallel
    /// and arrive together, so the bytes received during a few steps may belong to fewer or more batches.
    /// Otherwise steps are counted.
    pub(crate) fn measure(leg: &Leg, ticks: &[StepEnd], flow: FetchLimits, framing: f64) -> Result<Self> {
        let (before, after) = ramp(flow);
        for tick in ticks {
            ensure!(
                tick.split == leg.split,
                "a step ran at '{}' instead of '{}'",
                tick.split,
                leg.split
            );
        }
        let end = ticks.len().saturating_sub(after);
        let counted = ticks.get(before.saturating_sub(1)..end).unwrap_or_default();
        let steps = counted.len().saturating_sub(1) as f64;
        ensure!(
            steps > 0.0,
            "a leg of {} steps is too short to be timed",
            ticks.len()
        );
        let (first, last) = counted
            .first()
            .zip(counted.last())
            .context("a leg without steps")?;
        let took = last.since(first);
        let waited: f64 = counted.iter().skip(1).map(|tick| tick.waited).sum();
        let payload: u64 = ticks.iter().map(|tick| tick.payload).sum();
        let bytes = payload as f64 / ticks.len() as f64 * framing;
        let received = last.received.saturating_sub(first.received) as f64;
        let batches = if waited > STARVED * took && received > 0.0 {
            received / bytes
        } else {
            steps
        };
        Ok(Self {
            split: leg.split.clone(),
            seconds: took / batches,
            bytes,
        })
    }
}

impl StepEnd {
    /// Seconds from an earlier step to this one.
    pub(crate) fn since(&self, earlier: &Self) -> f64 {
        self.at.duration_since(earlier.at).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const FLOW: FetchLimits = FetchLimits {
        request_samples: 8,
        window: 2,
        ahead: 1,
    };

    /// Creates steps with batches of 100 bytes. Input: end in seconds, bytes received by then.
    fn ticks(steps: &[(u64, u64)], waited: f64) -> Vec<StepEnd> {
        let start = Instant::now();
        let tick = |(second, received): &(u64, u64)| StepEnd {
            at: start + Duration::from_secs(*second),
            received: *received,
            waited,
            payload: 100,
            split: Split::Input,
        };
        steps.iter().map(tick).collect()
    }

    #[test]
    fn steps_at_the_ends_of_a_leg_do_not_count() {
        let steps = [
            (9, 0),
            (10, 100),
            (11, 200),
            (13, 300),
            (15, 400),
            (16, 500),
            (30, 600),
        ];
        let ticks = ticks(&steps, 0.0);
        let leg_of = |split: &Split| leg(split, Encoding::U8, 4, FLOW);
        let times = LegTimes::measure(&leg_of(&Split::Input), &ticks, FLOW, 1.0).unwrap();
        assert_eq!((times.seconds, times.bytes), (1.5, 100.0));
        assert!(LegTimes::measure(&leg_of(&Split::None), &ticks, FLOW, 1.0).is_err());
    }

    #[test]
    fn a_starved_trainer_is_timed_by_received_bytes() {
        // Four steps and five received batches with headers in eight seconds.
        let steps = [
            (0, 0),
            (1, 110),
            (3, 220),
            (5, 330),
            (7, 550),
            (9, 660),
            (20, 770),
        ];
        let leg = leg(&Split::Input, Encoding::U8, 4, FLOW);
        let of = |waited| LegTimes::measure(&leg, &ticks(&steps, waited), FLOW, 1.1).unwrap();
        assert!((of(1.0).seconds - 8.0 / 5.0).abs() < 1e-9);
        assert!((of(0.0).seconds - 8.0 / 4.0).abs() < 1e-9);
        assert!((of(1.0).bytes - 110.0).abs() < 1e-9);
    }

    #[test]
    fn framing_is_what_the_network_adds() {
        let steps: Vec<(u64, u64)> = (0..11).map(|step| (step, step * 104)).collect();
        assert!((framing(&ticks(&steps, 0.0)) - 1.04).abs() < 1e-9);
        assert_eq!(framing(&[]), 1.0);
    }
}
