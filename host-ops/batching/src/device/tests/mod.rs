//! What the device promises.

use super::*;
use frostline_tensor::RunTerms;
use std::num::NonZeroUsize;

const MILLI: Duration = Duration::from_millis(1);
const ROOM: Room = Room {
    now: 1 << 30,
    most: 1 << 30,
};

fn work(id: u64, tenant: &str, stage: &'static str, rows: usize) -> Work<&'static str> {
    Work {
        id,
        tenant: tenant.into(),
        weight: 1,
        terms: RunTerms::default(),
        stage,
        rows: NonZeroUsize::new(rows).unwrap(),
        bytes: 1,
        guess: Guess::default(),
    }
}

#[test]
fn a_work_is_cut_and_comes_back_in_order() {
    let mut device = Device::new(DeviceRules::of(1));
    device.started(0, 0);
    device.push(work(1, "a", "s", 5)).unwrap();
    let mut done = Vec::new();
    let mut now = Duration::ZERO;
    while let Decision::Run(run) = device.next(now, ROOM) {
        now += MILLI;
        device.opened(run.lane, Taken::default());
        let end = End::Done {
            time: MILLI,
            taken: Taken::default(),
        };
        done.extend(device.ended(now, run.lane, end));
    }
    let rows: Vec<usize> = done.iter().flat_map(|verdict| verdict.rows.clone()).collect();
    assert_eq!(rows, [0, 1, 2, 3, 4]);
    assert_eq!(
        done.last().map(|verdict| verdict.fate),
        Some(Fate::Done { last: true })
    );
    assert!(device.is_empty());
}
