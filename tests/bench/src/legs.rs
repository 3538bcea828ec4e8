//! Step times of the legs of a run, without the steps at their ends.

use anyhow::{Context, Result, ensure};
use frostline_trainer::Flow;
use frostline_trainer::rehearsal::Leg;
use frostline_wire::{Encoding, Split};
use std::time::Instant;

/// A trainer that waits for more than this share of the time is not what bounds it.
const STARVED: f64 = 0.1;

/// The steps of a leg that do not count: until the pipeline is full of its batches, and once the next leg's are in flight.
fn ramp(flow: Flow) -> (usize, usize) {
    (flow.ahead + 1, flow.ahead)
}

/// A step that ended.
#[derive(Debug, Clone)]
pub(crate) struct Tick {
    pub(crate) at: Instant,
    /// Bytes the link had brought by then.
    pub(crate) received: u64,
    /// Seconds it waited for its batch.
    pub(crate) waited: f64,
    /// Bytes of its batch, without what the network adds.
    pub(crate) payload: u64,
    pub(crate) split: Split,
}

/// What a leg's steps took, those at its ends left out.
#[derive(Debug, Clone)]
pub(crate) struct LegTimes {
    pub(crate) split: Split,
    /// Of a step, the mean: batches that travel side by side arrive side by side, so single steps say little.
    pub(crate) seconds: f64,
    /// That the link brought, per step.
    pub(crate) bytes: f64,
}

/// A leg of which `steps` steps count, or a few more.
pub(crate) fn leg(split: &Split, encoding: Encoding, steps: u64, flow: Flow) -> Leg {
    Leg {
        split: split.clone(),
        encoding,
        steps: all_steps(steps, flow),
    }
}

/// The steps a leg takes in all of which `counted` count at least: batches that are fetched together arrive together, so the steps from
/// one arrival to the next count all or not at all.
pub(crate) fn all_steps(counted: u64, flow: Flow) -> u64 {
    let (before, after) = ramp(flow);
    counted.next_multiple_of(flow.ahead as u64 + 1) + (before + after) as u64
}

/// Bytes on the link for each byte of payload, over a whole run: what HTTP, TCP and Ethernet add.
pub(crate) fn framing(ticks: &[Tick]) -> f64 {
    /// Headers of a full Ethernet frame and more; the rest is of batches that nobody trained.
    const MOST: f64 = 1.1;
    let Some((first, last)) = ticks.first().zip(ticks.last()) else {
        return 1.0;
    };
    let payload: u64 = ticks.iter().skip(1).map(|tick| tick.payload).sum();
    let received = last.received.saturating_sub(first.received);
    (received as f64 / payload.max(1) as f64).clamp(1.0, MOST)
}

impl LegTimes {
    /// The time of a leg's steps. What a starved trainer gets is counted in bytes: batches that travel side by side arrive side by side, so
    /// that a few steps may hold the bytes of fewer batches, or of more. What a busy one does is counted in steps.
    pub(crate) fn measure(leg: &Leg, ticks: &[Tick], flow: Flow, framing: f64) -> Result<Self> {
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
        ensure!(steps > 0.0, "a leg of {} steps is too short", ticks.len());
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

impl Tick {
    /// Seconds from an earlier one to this.
    pub(crate) fn since(&self, earlier: &Self) -> f64 {
        self.at.duration_since(earlier.at).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const FLOW: Flow = Flow {
        request_samples: 8,
        window: 2,
        ahead: 1,
    };

    /// Steps that ended at these seconds, by when the link had brought so many bytes, of batches of 100.
    fn ticks(steps: &[(u64, u64)], waited: f64) -> Vec<Tick> {
        let start = Instant::now();
        let tick = |(second, received): &(u64, u64)| Tick {
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
    fn a_starved_trainer_is_timed_by_what_came() {
        // Four steps in eight seconds, in which the link brought five batches and their headers.
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
