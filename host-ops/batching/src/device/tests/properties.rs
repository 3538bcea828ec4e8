//! Property tests: the memory budget is met, rows are computed once or refused with a reason, and lanes are
//! not idle without a reason.

use super::super::*;
use super::world::{MILLI, Truth, World};
use frostline_tensor::Terms;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn truths() -> impl Strategy<Value = Vec<Truth>> {
    let truth = (
        1..200_u64,
        0..50_u64,
        1..60_u64,
        1..300_u32,
        1..100_u32,
        0..100_u32,
        1..20_u64,
    );
    let truth = truth.prop_map(|(session, fixed, per_row, opening, time, each, wrong)| Truth {
        session: session * MIB,
        opening: MILLI * opening,
        preparing: MILLI * opening,
        fixed: fixed * MIB,
        per_row: per_row * MIB,
        squared: 0,
        time: MILLI * time,
        time_per_row: MILLI * each,
        guess: MemoryEstimate {
            session: session * MIB,
            fixed: 0,
            per_row: (per_row * MIB / wrong).max(1),
        },
    });
    prop::collection::vec(truth, 1..5)
}

type Sending = (usize, usize, usize, u32, u32, u32);

/// Generates tenant, stage, rows, fixed batch, delay after the previous work item, and weight.
fn sendings() -> impl Strategy<Value = Vec<Sending>> {
    let one = (
        0..4_usize,
        0..5_usize,
        1..40_usize,
        0..8_u32,
        0..300_u32,
        1..5_u32,
    );
    prop::collection::vec(one, 1..40)
}

fn play(world: &mut World, sendings: Vec<Sending>, mut check: impl FnMut(&World)) {
    for (tenant, stage, rows, fixed, after, weight) in sendings {
        let at = world.now + MILLI * after;
        while world.next_end().is_some_and(|end| end <= at) {
            world.step();
            world.decide();
            check(world);
        }
        world.now = at;
        let fixed_batch = (fixed > 4).then_some(fixed as usize);
        let terms = Terms {
            priority: 0,
            fixed_batch,
            ..Terms::default()
        };
        let stage = stage % world.truths.len();
        world.send(&format!("t{tenant}"), weight, stage, rows, terms);
        world.decide();
        check(world);
    }
    world.finish();
}

/// Checks that no lane is idle while work fits into memory that is not set aside. Otherwise the waiting work
/// needs more memory, or a lane with a session is soon free.
fn assert_not_idle(world: &World) {
    let device = &world.device;
    if device.idle() == 0 {
        return;
    }
    let due = world.now.checked_sub(TIME_SLICE);
    let kept = due.is_some_and(|due| device.queue.passed(due).next().is_some());
    let idle_sessions: u64 = device
        .lanes
        .iter()
        .filter(|lane| lane.is_idle())
        .flat_map(|lane| &lane.sessions)
        .map(|open| open.bytes)
        .sum();
    for (id, entry) in device.queue.iter() {
        let known = device.stages.get(entry.stage).unwrap();
        let rows = entry.fixed.unwrap_or(1);
        let soon_free =
            !known.lanes.is_empty() && known.lanes.iter().all(|lane| !device.lanes[*lane].is_idle());
        let warm = known.lanes.iter().map(|lane| &device.lanes[*lane]);
        let own = warm
            .filter(|lane| lane.is_idle())
            .find_map(|lane| lane.session(entry.stage));
        let needed = match own {
            Some(_) => known.needs.run(rows),
            None => known.needs.cold_run(rows),
        };
        let prepares = own.is_none() && known.readiness != super::super::stages::Readiness::Ready;
        let kept_free = !device.may_run_long(&entry.tenant, world.now);
        let others = idle_sessions - own.map_or(0, |open| open.bytes);
        let lacks = needed.min(world.budget) > world.room().free + others;
        assert!(
            kept || soon_free || lacks || prepares || kept_free,
            "{id} could run at {:?}: {entry:?} {known:?} {:?}",
            world.now,
            device.lanes
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Random stages and arrivals never exceed the budget (asserted by the simulation), leave no lane idle
    /// without a reason, and every row is computed once or refused.
    #[test]
    fn nothing_exceeds_the_budget_nothing_is_lost_and_nobody_idles(
        truths in truths(),
        sendings in sendings(),
        lanes in 1..4_usize,
        budget in 200..2000_u64,
        keeps in any::<bool>(),
        padded_rows in proptest::option::of(1..40_usize),
        preparations in 0..3_usize,
    ) {
        let rules = DeviceRules { keeps, padded_rows, preparations, ..DeviceRules::for_lanes(lanes) };
        let mut world = World::new(rules, budget * MIB, truths);
        play(&mut world, sendings, assert_not_idle);
        for work in world.works.values() {
            match work.over {
                Some(PartOutcome::Done { .. }) => prop_assert!(work.done.iter().all(|times| *times == 1)),
                Some(PartOutcome::Refused { needs, most }) => {
                    let truth = world.truths[work.stage];
                    let rows = work.terms.terms.fixed_batch.unwrap_or(1) as u64;
                    let really = truth.session + truth.fixed + truth.per_row * rows;
                    prop_assert!(needs > most);
                    prop_assert!(really + really / 8 + 2 * MIB > budget * MIB, "{work:?} was refused although {really} bytes fit");
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
