//! Tests of preparations, and of the lane that is kept free of long work.

use super::super::*;
use super::world::{MILLI, Truth, World};
use frostline_tensor::Terms;

const SECOND: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;

/// Simulates lanes with ample memory. Stage 0 is short, and the others need a minute per row.
fn world(lanes: usize, preparations: usize) -> World {
    let rules = DeviceRules {
        preparations,
        ..DeviceRules::for_lanes(lanes)
    };
    let long = Truth {
        time_per_row: SECOND * 60,
        preparing: SECOND * 20,
        ..Truth::default()
    };
    World::new(rules, 1 << 30, vec![Truth::default(), long, long, long])
}

fn send(world: &mut World, tenant: &str, stage: usize) -> u64 {
    world.send(tenant, 1, stage, 1, Terms::default())
}

/// Returns the number of lanes that execute long work.
fn long_runs(world: &World) -> usize {
    let lanes = world.device.lanes.iter();
    lanes
        .filter(|lane| lane.running().is_some_and(|running| running.short_for.is_zero()))
        .count()
}

#[test]
fn long_work_of_several_tenants_leaves_a_lane_to_short_work() {
    for lanes in 2..5 {
        let mut world = world(lanes, 0);
        send(&mut world, "neighbor", 0);
        world.finish();
        for stage in 1..4 {
            let works = (0..lanes).map(|_| send(&mut world, &format!("t{stage}"), stage));
            works.for_each(drop);
        }
        world.decide();
        assert_eq!(long_runs(&world), (lanes - 1).min(3), "{lanes} lanes");
        let short = send(&mut world, "neighbor", 0);
        world.decide();
        assert_eq!(world.works[&short].begun, Some(world.now), "{lanes} lanes");
    }
}

/// Otherwise, a lane of an overloaded machine would be idle.
#[test]
fn batches_like_those_of_the_others_are_short_and_use_all_lanes() {
    let slow = Truth {
        time_per_row: SECOND * 3,
        ..Truth::default()
    };
    let mut world = World::new(DeviceRules::for_lanes(2), 1 << 30, vec![slow; 2]);
    for _ in 0..2 {
        send(&mut world, "a", 0);
        send(&mut world, "b", 1);
        world.finish();
    }
    send(&mut world, "a", 0);
    send(&mut world, "b", 1);
    world.decide();
    assert_eq!(world.device.idle(), 0);
}

#[test]
fn a_tenant_uses_all_lanes_once_the_others_have_left_for_ten_seconds() {
    let mut world = world(2, 0);
    send(&mut world, "neighbor", 0);
    world.finish();
    let left = world.now;
    for stage in 1..3 {
        send(&mut world, "t", stage);
    }
    world.decide();
    assert_eq!(long_runs(&world), 1);
    while long_runs(&world) == 1
        && let Decision::Wait { until, .. } = world.device.next(world.now, world.room())
    {
        world.now = until.expect("the second work item waits for a time");
        world.decide();
    }
    assert_eq!((world.now, long_runs(&world)), (left + SECOND * 10, 2));
}

/// The neighbor's session is on a lane with long work, and memory for another one only becomes free if a session
/// of the other lane is closed.
#[test]
fn short_work_does_not_wait_for_the_end_of_long_work_next_to_its_session() {
    let with_session = |session| Truth {
        session,
        guess: MemoryEstimate {
            session,
            ..MemoryEstimate::default()
        },
        ..Truth::default()
    };
    let long = Truth {
        time_per_row: SECOND * 60,
        ..with_session(100 * MIB)
    };
    let truths = vec![with_session(250 * MIB), with_session(600 * MIB), long];
    let mut world = World::new(DeviceRules::for_lanes(2), 1 << 40, truths);
    for (stage, tenant) in ["neighbor", "other"].into_iter().enumerate() {
        send(&mut world, tenant, stage);
        world.finish();
    }
    send(&mut world, "t", 2);
    world.decide();
    assert_eq!([0, 1, 2].map(|stage| world.lanes_of(stage)), [[0], [1], [0]]);
    world.others = world.room().free - 100 * MIB;
    let short = send(&mut world, "neighbor", 0);
    world.decide();
    assert_eq!(world.works[&short].begun, Some(world.now));
}

/// A busy machine may need long for an opening.
#[test]
fn a_session_that_was_opened_slowly_once_is_opened_beside_long_work() {
    let mut world = world(2, 0);
    for opening in [MILLI * 100, SECOND * 5] {
        world.truths[0].opening = opening;
        send(&mut world, "neighbor", 0);
        world.finish();
        world.close_all();
    }
    send(&mut world, "t", 1);
    world.decide();
    let short = send(&mut world, "neighbor", 0);
    world.decide();
    assert_eq!(world.works[&short].begun, Some(world.now));
}

/// Simulates two lanes, of which one has just lost its process to long work of the tenant `t`.
fn world_with_lost_lane() -> World {
    let mut world = world(2, 0);
    send(&mut world, "neighbor", 0);
    world.finish();
    send(&mut world, "t", 1);
    world.decide();
    let lane = (0..2).find(|lane| world.device.lanes[*lane].running().is_some());
    world.device.ended(world.now, lane.unwrap(), BatchEnd::Lost);
    send(&mut world, "other", 2);
    world
}

#[test]
fn short_work_does_not_wait_while_a_lost_lane_is_replaced() {
    let mut world = world_with_lost_lane();
    let waiting = world.device.next(world.now, world.room());
    assert!(matches!(waiting, Decision::Wait { .. }), "{waiting:?}");
    let short = send(&mut world, "neighbor", 0);
    world.decide();
    assert_eq!(world.works[&short].begun, Some(world.now));
}

#[test]
fn a_lane_that_stays_lost_counts_for_ten_seconds() {
    let mut world = world_with_lost_lane();
    let lost = world.now;
    while let Decision::Wait { until, .. } = world.device.next(world.now, world.room()) {
        world.now = until.expect("long work waits for a time");
    }
    assert_eq!(world.now, lost + SECOND * 10);
}

#[test]
fn a_single_lane_executes_everything() {
    let mut world = world(1, 0);
    for stage in 0..3 {
        send(&mut world, &format!("t{stage}"), stage);
    }
    world.finish();
    world.assert_all_done_once();
}

#[test]
fn a_preparation_holds_no_lane_and_is_charged() {
    let mut world = world(1, 1);
    send(&mut world, "neighbor", 0);
    world.finish();
    let slow = send(&mut world, "t", 1);
    let begun = world.now;
    world.decide();
    assert_eq!(world.device.awaited(slow), Some(Awaited::Prepared));
    let other = send(&mut world, "other", 2);
    world.decide();
    assert_eq!(world.device.awaited(other), Some(Awaited::Preparation));
    let short = send(&mut world, "neighbor", 0);
    world.decide();
    assert_eq!(world.works[&short].begun, Some(begun));
    world.finish();
    world.assert_all_done_once();
    let used: BTreeMap<&str, Duration> = world.device.used().collect();
    assert_eq!(used["t"], SECOND * 80);
    assert_eq!(used["neighbor"], MILLI * 70, "a preparation and two runs");
}

#[test]
fn a_preparation_ends_with_its_last_work_item_and_is_repeated() {
    let mut world = world(1, 1);
    let [first, second] = [send(&mut world, "a", 1), send(&mut world, "b", 1)];
    assert!(matches!(
        world.device.next(world.now, world.room()),
        Decision::Prepare {
            slot: 0,
            stage: 1,
            ..
        }
    ));
    assert!(world.device.remove(first).unwrap().preparations.is_empty());
    assert_eq!(world.device.remove(second).unwrap().preparations, [0]);
    send(&mut world, "c", 1);
    let waiting = world.device.next(world.now, world.room());
    assert!(matches!(waiting, Decision::Wait { .. }), "{waiting:?}");
    world.device.prepared(world.now, 0, false);
    assert!(matches!(
        world.device.next(world.now, world.room()),
        Decision::Prepare {
            slot: 0,
            stage: 1,
            ..
        }
    ));
}
