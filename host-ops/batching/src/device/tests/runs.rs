//! Tests of the composition and outcome of batches.

use super::super::*;
use super::world::{MILLI, Truth, World};
use frostline_tensor::Terms;

/// Simulates one lane with ample memory and a network that benefits from batching.
fn world() -> World {
    let truth = Truth {
        time: MILLI * 20,
        time_per_row: MILLI,
        ..Truth::default()
    };
    World::new(DeviceRules::for_lanes(1), 1 << 30, vec![truth; 3])
}

/// Same as [`world`], after measurements with the first stage.
fn warm() -> World {
    let mut world = world();
    for _ in 0..4 {
        world.send("z", 1, 0, 256, Terms::default());
    }
    world.finish();
    world.runs.clear();
    world
}

fn parts(world: &World) -> Vec<Vec<u64>> {
    let works = |run: &Run<usize>| run.parts.iter().map(|part| part.work).collect();
    world.runs.iter().map(works).collect()
}

#[test]
fn a_large_work_is_cut_and_its_rows_come_in_order() {
    let mut world = world();
    let id = world.send("a", 1, 0, 50, Terms::default());
    world.finish();
    world.assert_all_done_once();
    let rows: Vec<usize> = world
        .runs
        .iter()
        .flat_map(|run| run.parts[0].rows.clone())
        .collect();
    assert!(rows.is_sorted() && rows.len() == 50, "{rows:?}");
    assert_eq!(world.works[&id].over, Some(PartOutcome::Done { last: true }));
    assert_eq!(world.runs[0].rows, 1, "the stage has no measurements");
}

#[test]
fn works_that_wait_are_joined_within_a_tenant_and_never_across_tenants() {
    let mut world = warm();
    let busy = world.send("z", 1, 1, 1, Terms::default());
    world.decide();
    let own: Vec<u64> = (0..3)
        .map(|_| world.send("a", 1, 0, 2, Terms::default()))
        .collect();
    let [b, c] = ["b", "c"].map(|tenant| world.send(tenant, 1, 0, 2, Terms::default()));
    world.finish();
    assert_eq!(parts(&world), [vec![busy], own, vec![b], vec![c]]);
}

#[test]
fn runs_of_a_device_that_plans_by_rows_have_one_size_and_the_rest_is_padding() {
    let rules = DeviceRules {
        padded_rows: Some(8),
        ..DeviceRules::for_lanes(1)
    };
    let truth = Truth {
        per_row: 10 << 20,
        ..Truth::default()
    };
    let mut world = World::new(rules, 1 << 30, vec![truth]);
    world.send("a", 1, 0, 16, Terms::default());
    world.finish();
    world.runs.clear();
    for rows in [3, 8, 21, 1] {
        world.send("a", 1, 0, rows, Terms::default());
        world.finish();
    }
    world.assert_all_done_once();
    let sizes = |of: fn(&Run<usize>) -> usize| world.runs.iter().map(of).collect::<Vec<_>>();
    assert_eq!(sizes(|run| run.rows), [8; 6]);
    let rows = |run: &Run<usize>| run.parts.iter().map(|part| part.rows.len()).sum();
    assert_eq!(sizes(rows), [3, 8, 8, 8, 5, 1]);
}

#[test]
fn padding_ends_where_memory_does() {
    let rules = DeviceRules {
        padded_rows: Some(32),
        ..DeviceRules::for_lanes(1)
    };
    let truth = Truth {
        per_row: 100 << 20,
        ..Truth::default()
    };
    let mut world = World::new(rules, 2000 << 20, vec![truth]);
    world.send("a", 1, 0, 200, Terms::default());
    world.finish();
    world.assert_all_done_once();
    let most = world.runs.iter().map(|run| run.rows).max();
    assert!((4..20).contains(&most.unwrap()), "{most:?}");
}

#[test]
fn one_lane_at_a_time_opens_a_stage() {
    let truth = Truth {
        opening: MILLI * 3000,
        time: MILLI * 400,
        ..Truth::default()
    };
    let mut world = World::new(DeviceRules::for_lanes(3), 1 << 30, vec![truth; 2]);
    for _ in 0..3 {
        world.send("a", 1, 0, 4, Terms::default());
    }
    world.decide();
    assert_eq!(
        world.runs.len(),
        1,
        "the second lane could only wait for the first"
    );
    world.send("b", 1, 1, 1, Terms::default());
    world.decide();
    assert_eq!(world.runs.iter().map(|run| run.stage).collect::<Vec<_>>(), [0, 1]);
    world.finish();
    world.assert_all_done_once();
    assert!(
        world
            .runs
            .iter()
            .any(|run| run.stage == 0 && run.lane != world.runs[0].lane)
    );
}

#[test]
fn a_fixed_batch_is_padded_and_alone() {
    let mut world = warm();
    let fixed = Terms {
        fixed_batch: Some(4),
        ..Terms::default()
    };
    let first = world.send("a", 1, 0, 6, fixed);
    world.send("a", 1, 0, 4, fixed);
    world.finish();
    world.assert_all_done_once();
    assert!(world.runs.iter().all(|run| run.rows == 4 && run.parts.len() == 1));
    let of_first = world.runs.iter().filter(|run| run.parts[0].work == first);
    assert_eq!(
        of_first.map(|run| run.parts[0].rows.clone()).collect::<Vec<_>>(),
        [0..4, 4..6]
    );
}

#[test]
fn a_joined_run_that_fails_is_repeated_apart() {
    for (end, times) in [(BatchEnd::Failed, 1), (BatchEnd::Lost, 2)] {
        let mut world = warm();
        world.send("z", 1, 1, 1, Terms::default());
        world.decide();
        let works: Vec<u64> = (0..3)
            .map(|_| world.send("a", 1, 0, 2, Terms::default()))
            .collect();
        world.poison.insert(works[1], end);
        world.finish();
        let fates: Vec<PartOutcome> = works.iter().map(|id| world.works[id].over.unwrap()).collect();
        let done = PartOutcome::Done { last: true };
        assert_eq!(fates, [done, PartOutcome::Failed, done]);
        let alone = parts(&world).iter().filter(|parts| **parts == [works[1]]).count();
        assert_eq!(alone, times, "{end:?}");
    }
}

#[test]
fn work_whose_process_is_killed_again_and_again_fails_in_the_end() {
    let mut world = warm();
    let killed = world.send("a", 1, 0, 2, Terms::default());
    let other = world.send("b", 1, 1, 2, Terms::default());
    world.poison.insert(killed, BatchEnd::Killed);
    world.finish();
    assert_eq!(world.works[&killed].over, Some(PartOutcome::Failed));
    assert_eq!(world.works[&other].over, Some(PartOutcome::Done { last: true }));
    let times = parts(&world).iter().filter(|parts| **parts == [killed]).count();
    assert_eq!(times, 5);
}

#[test]
fn an_abort_is_put_down_to_memory_until_it_had_all_that_is_free() {
    let mut world = warm();
    let aborts = world.send("a", 1, 0, 8, Terms::default());
    world.decide();
    assert!(world.device.may_lack(0), "limited reservation");
    let bounded = world.runs[0].bytes;
    world.device.ended(world.now, 0, BatchEnd::Aborted);
    world.device.started(0, 0);
    let Decision::Run(run) = world.device.next(world.now, world.room()) else {
        panic!("expected another attempt");
    };
    assert_eq!((run.parts[0].work, run.rows), (aborts, 1));
    assert!(run.bytes > bounded && run.bytes == world.room().free);
    assert!(!world.device.may_lack(0), "unlimited second attempt");
}

#[test]
fn what_is_given_up_is_dropped_and_others_go_on() {
    let mut world = warm();
    let first = world.send("a", 1, 0, 4, Terms::default());
    world.decide();
    let second = world.send("a", 1, 0, 4, Terms::default());
    assert_eq!(
        world.device.remove(first),
        Some(Removed {
            runs: vec![0],
            preparations: vec![]
        })
    );
    assert_eq!(world.device.remove(first), None);
    world.finish();
    assert_eq!(world.works[&first].over, None);
    assert_eq!(world.works[&second].over, Some(PartOutcome::Done { last: true }));
}

#[test]
fn priority_orders_a_tenants_own_work_only() {
    let mut world = warm();
    let first = Terms {
        priority: 5,
        ..Terms::default()
    };
    let busy = world.send("z", 1, 1, 1, Terms::default());
    world.decide();
    let low = world.send("a/low", 1, 0, 1, Terms::default());
    let other = world.send("b", 1, 2, 1, Terms::default());
    let high = world.send("a/high", 1, 1, 1, first);
    let second = world.send("a/high", 1, 1, 1, first);
    world.finish();
    let mut order = [busy, low, other, high, second];
    order.sort_by_key(|id| world.works[id].begun);
    assert_eq!(order, [busy, high, other, second, low]);
}

#[test]
fn nine_stages_in_turn_open_nine_sessions() {
    let truth = Truth {
        session: 100,
        opening: MILLI * 200,
        time_per_row: MILLI * 10,
        ..Truth::default()
    };
    let mut world = World::new(DeviceRules::for_lanes(2), 1 << 30, vec![truth; 9]);
    for round in 0..60 {
        let stage = round % 9;
        world.send("a", 1, stage, 4, Terms::default());
        world.send("b", 1, (stage + 4) % 9, 4, Terms::default());
        world.step();
    }
    world.finish();
    world.assert_all_done_once();
    assert!(world.opened <= 18, "{}", world.opened);
}

#[test]
fn nine_stages_with_memory_for_one_session_each_do_not_thrash() {
    let truth = Truth {
        session: 100 << 20,
        opening: MILLI * 200,
        time_per_row: MILLI * 10,
        ..Truth::default()
    };
    let mut world = World::new(DeviceRules::for_lanes(2), 1000 << 20, vec![truth; 9]);
    for round in 0..60 {
        let stage = round % 9;
        world.send("a", 1, stage, 4, Terms::default());
        world.send("b", 1, (stage + 4) % 9, 4, Terms::default());
        world.step();
    }
    world.finish();
    world.assert_all_done_once();
    assert!(world.opened <= 27, "{}", world.opened);
}

#[test]
fn the_queue_has_room_for_newcomers() {
    let rules = DeviceRules {
        works: 4,
        bytes: 1 << 20,
        ..DeviceRules::for_lanes(1)
    };
    let mut world = World::new(rules, 1 << 30, vec![Truth::default()]);
    (0..4).for_each(|_| {
        world.send("greedy", 1, 0, 1, Terms::default());
    });
    let check = |world: &World, tenant: &str, bytes| world.device.queue.check(&tenant.into(), bytes, &rules);
    let full = check(&world, "greedy", 1).unwrap_err();
    assert!(full.to_string().contains("has 4 jobs"), "{full}");
    assert!(check(&world, "new", 1 << 19).is_ok());
    world.send("new", 1, 0, 1, Terms::default());
    assert!(
        check(&world, "new", 1).is_err(),
        "a full queue accepts a single work item"
    );
    world.finish();
    assert!(
        check(&world, "greedy", 1 << 20).is_ok(),
        "a single tenant can use the whole queue"
    );
    assert!(
        check(&world, "greedy", (1 << 20) + 1).is_ok(),
        "the first work item is always accepted"
    );
}
