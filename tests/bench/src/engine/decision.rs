//! Scheduling: time of a decision with a thousand queued batches.

use crate::report::{Report, median, quantile};
use anyhow::{Result, ensure};
use frostline_batching::device::{
    BatchEnd, Decision, Device, DeviceRules, LaneMemory, MemoryEstimate, MemoryUsage, PartOutcome, Run, Work,
};
use frostline_tensor::ExecutionTerms;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

/// Queued batches, their tenants and their stages.
const WAITING: u64 = 1000;
const TENANTS: u64 = 50;
const STAGES: u64 = 7;
const ROWS: NonZeroUsize = NonZeroUsize::new(4).unwrap();

const LANES: usize = 2;
const DECISIONS: usize = 5000;

const MIB: u64 = 1 << 20;
const ROOM: u64 = 4096 * MIB;

pub(super) fn run(report: &mut Report) -> Result<()> {
    let micros = decisions()?;
    let (half, most) = (median(&micros), quantile(&micros, 0.99));
    println!("decision with {WAITING} queued batches: median {half:.1} us, p99 {most:.1} us");
    report.set("grant_decision_us_1000", half);
    report.set("grant_decision_us_1000_p99", most);
    Ok(())
}

/// Microseconds of each decision.
fn decisions() -> Result<Vec<f64>> {
    let mut device = Device::new(DeviceRules::for_lanes(LANES));
    let mut held = [64 * MIB; LANES];
    for (lane, held) in held.iter().enumerate() {
        device.started(lane, *held);
    }
    for id in 0..WAITING {
        device.push(work(id))?;
    }
    let (mut next, mut now, mut micros) = (WAITING, Duration::ZERO, Vec::new());
    while micros.len() < DECISIONS {
        let room = LaneMemory {
            free: ROOM - held.iter().sum::<u64>(),
            limit: ROOM,
        };
        let started = Instant::now();
        let decision = device.next(now, room);
        micros.push(started.elapsed().as_secs_f64() * 1e6);
        match decision {
            Decision::Run(run) => {
                now += Duration::from_millis(20);
                let lane = run.lane;
                for done in settle(&mut device, now, run, &mut held) {
                    // The tenant with the finished batch queues the next one.
                    next += 1 + (done + TENANTS - (next + 1) % TENANTS) % TENANTS;
                    device.push(work(next))?;
                }
                ensure!(device.len() as u64 == WAITING, "lane {lane} lost a batch");
            }
            Decision::Close { lane, .. } => device.closed(lane, held.get(lane).copied()),
            other => anyhow::bail!("no batch runs although {WAITING} are queued: {other:?}"),
        }
    }
    Ok(micros)
}

/// A batch of the next tenant for the next stage.
fn work(id: u64) -> Work<u64> {
    Work {
        id,
        tenant: format!("tenant-{}", id % TENANTS).into(),
        weight: 1,
        terms: ExecutionTerms::default(),
        stage: id % STAGES,
        rows: ROWS,
        bytes: 1 << 16,
        guess: MemoryEstimate {
            session: 50 * MIB,
            fixed: MIB,
            per_row: MIB,
        },
    }
}

/// Finishes the engine batch within the predicted memory. Returns the completed work items.
fn settle(device: &mut Device<u64>, now: Duration, run: Run<u64>, held: &mut [u64]) -> Vec<u64> {
    let taken = |held: u64| MemoryUsage {
        peak: Some(held + run.rows as u64 * MIB),
        held: Some(held),
        spare: 0,
    };
    let Some(held) = held.get_mut(run.lane) else {
        return Vec::new();
    };
    if run.cold {
        *held += 50 * MIB;
        device.opened(run.lane, Duration::ZERO, taken(*held));
    }
    let end = BatchEnd::Done {
        time: Duration::from_millis(5 * run.rows as u64),
        taken: taken(*held),
    };
    let verdicts = device.ended(now, run.lane, end);
    let done = verdicts
        .iter()
        .filter(|verdict| matches!(verdict.outcome, PartOutcome::Done { last: true }));
    done.map(|verdict| verdict.work).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn something_runs_as_long_as_batches_wait() {
        assert_eq!(super::decisions().unwrap().len(), super::DECISIONS);
    }
}
