//! Tests of memory predictions and limits.

use super::super::needs::{MeasuredBytes, Needs};
use super::super::*;
use super::world::{MILLI, Truth, World};
use frostline_tensor::Terms;

const MIB: u64 = 1 << 20;

#[test]
fn memory_is_learnt_from_runs_and_predicted_well() {
    let truth = Truth {
        session: 50 * MIB,
        fixed: 7 * MIB,
        per_row: 25 * MIB,
        time: MILLI * 20,
        time_per_row: MILLI,
        guess: MemoryEstimate {
            session: 100 * MIB,
            fixed: 0,
            per_row: 6 * MIB,
        },
        ..Truth::default()
    };
    let mut world = World::new(DeviceRules::for_lanes(1), 1024 * MIB, vec![truth]);
    (0..50).for_each(|_| {
        world.send("a", 1, 0, 100, Terms::default());
        world.step();
    });
    world.finish();
    world.assert_all_done_once();
    let known = world.device.stages.find(&0).unwrap();
    assert_eq!(known.needs.line(), (7 * MIB, 25 * MIB));
    assert!(world.device.predictions().error_95().unwrap() < 0.1);
    let most = world.runs.iter().map(|run| run.rows).max().unwrap();
    assert!((32..=38).contains(&most), "{most} rows, the limit is 38");
}

#[test]
fn what_a_run_takes_is_narrowed_by_what_later_ones_show() {
    let mut needs = Needs::new(MemoryEstimate::default());
    let mut after = |lower: u64, upper: u64| {
        let took = MeasuredBytes {
            lower: lower * MIB,
            upper: upper * MIB,
        };
        let missed = needs.note_run(1, took, 100 * MIB, false);
        (missed.error, needs.expected(1) / MIB)
    };
    assert_eq!(
        after(0, 60),
        (None, 60),
        "the first measurement counts with the upper bound"
    );
    assert_eq!(after(0, 70), (Some(0.0), 60));
    assert_eq!(after(0, 20), (Some(2.0), 20));
    assert_eq!(after(10, 50), (Some(0.0), 20));
    assert_eq!(after(25, 30), (Some(0.2), 25));
}

/// Because the sizes of sessions differ, the same reservation leaves different amounts of memory on the two
/// lanes. If only the latest failure counted, the lanes would fail alternately forever.
#[test]
fn lanes_whose_sessions_differ_do_not_lack_memory_in_turns() {
    let truth = Truth {
        session: 137 * MIB,
        opening: MILLI * 80,
        fixed: 43 * MIB,
        per_row: 34 * MIB,
        time: MILLI * 77,
        time_per_row: MILLI * 68,
        guess: MemoryEstimate {
            session: 137 * MIB,
            fixed: 0,
            per_row: 2_376_772,
        },
        ..Truth::default()
    };
    let rules = DeviceRules {
        keeps: true,
        ..DeviceRules::for_lanes(2)
    };
    let mut world = World::new(rules, 327 * MIB, vec![truth]);
    world.send("a", 1, 0, 2, Terms::default());
    world.finish();
    world.assert_all_done_once();
}

#[test]
fn one_row_with_a_large_fixed_part_refuses_no_batch_that_fits() {
    let truth = Truth {
        session: 78 * MIB,
        fixed: 49 * MIB,
        per_row: 8 * MIB,
        guess: MemoryEstimate {
            session: 78 * MIB,
            fixed: 0,
            per_row: 4 * MIB,
        },
        ..Truth::default()
    };
    let mut world = World::new(DeviceRules::for_lanes(1), 208 * MIB, vec![truth]);
    world.send("a", 1, 0, 1, Terms::default());
    world.finish();
    let fixed_batch = Some(7);
    world.send(
        "a",
        1,
        0,
        1,
        Terms {
            fixed_batch,
            ..Terms::default()
        },
    );
    world.finish();
    world.assert_all_done_once();
}

#[test]
fn what_sessions_keep_is_predicted_and_not_reserved_again() {
    let truth = |per_row| Truth {
        session: 50 * MIB,
        fixed: 10 * MIB,
        per_row: per_row * MIB,
        time: MILLI * 20,
        time_per_row: MILLI,
        guess: MemoryEstimate {
            session: 50 * MIB,
            fixed: 0,
            per_row: per_row * MIB / 2,
        },
        ..Truth::default()
    };
    let rules = DeviceRules {
        keeps: true,
        ..DeviceRules::for_lanes(1)
    };
    let mut world = World::new(rules, 600 * MIB, vec![truth(20), truth(30)]);
    for index in 0..60 {
        world.send("a", 1, index / 20 % 2, 16, Terms::default());
        world.step();
    }
    world.finish();
    world.assert_all_done_once();
    for (stage, per_row) in [(0, 20), (1, 30)] {
        let known = world.device.stages.find(&stage).unwrap();
        assert_eq!(known.needs.line(), (10 * MIB, per_row * MIB));
    }
    assert!(world.opened <= 8, "{} sessions", world.opened);
    assert_eq!(world.device.predictions().misses, 0);
    for (before, run) in world.runs.iter().zip(world.runs.iter().skip(1)) {
        if !run.cold && (before.stage, before.rows) == (run.stage, run.rows) {
            assert!(run.bytes <= 64 * MIB, "reserved again: {run:?}");
        }
    }
}

#[test]
fn memory_that_grows_faster_than_rows_is_learnt_without_a_miss() {
    let truth = Truth {
        squared: MIB,
        time: MILLI * 50,
        time_per_row: MILLI / 10,
        guess: MemoryEstimate {
            per_row: MIB,
            ..MemoryEstimate::default()
        },
        ..Truth::default()
    };
    let mut world = World::new(DeviceRules::for_lanes(1), 1024 * MIB, vec![truth]);
    (0..40).for_each(|_| {
        world.send("a", 1, 0, 64, Terms::default());
        world.step();
    });
    world.finish();
    world.assert_all_done_once();
    let most = world.runs.iter().map(|run| run.rows).max().unwrap();
    assert!((8..=32).contains(&most), "{most}");
}

#[test]
fn a_first_run_at_ten_times_the_guess_is_tried_again() {
    let truth = Truth {
        session: 10 * MIB,
        per_row: 300 * MIB,
        guess: MemoryEstimate {
            session: 10 * MIB,
            fixed: 0,
            per_row: 30 * MIB,
        },
        ..Truth::default()
    };
    let mut world = World::new(DeviceRules::for_lanes(1), 2000 * MIB, vec![truth]);
    world.send("a", 1, 0, 20, Terms::default());
    world.finish();
    world.assert_all_done_once();
    assert!(world.device.predictions().misses > 0);
}

#[test]
fn what_can_never_fit_is_refused_with_both_numbers_and_the_next_one_at_once() {
    let truth = Truth {
        per_row: 300 * MIB,
        guess: MemoryEstimate {
            per_row: 30 * MIB,
            ..MemoryEstimate::default()
        },
        ..Truth::default()
    };
    let mut world = World::new(
        DeviceRules::for_lanes(2),
        200 * MIB,
        vec![truth, Truth::default()],
    );
    let first = world.send("a", 1, 0, 4, Terms::default());
    let other = world.send("b", 1, 1, 4, Terms::default());
    world.finish();
    let refused = |world: &World, id| matches!(world.works[&id].over, Some(PartOutcome::Refused { needs, most }) if needs > most);
    assert!(refused(&world, first));
    assert_eq!(world.works[&other].over, Some(PartOutcome::Done { last: true }));
    let runs = world.runs.len();
    let second = world.send("c", 1, 0, 1, Terms::default());
    world.finish();
    assert!(refused(&world, second));
    assert_eq!(world.runs.len(), runs, "refused without an attempt");
}

#[test]
fn memory_reserved_by_others_is_not_waited_for() {
    let truth = |per_row, guess| Truth {
        per_row: per_row * MIB,
        guess: MemoryEstimate {
            per_row: guess * MIB,
            ..MemoryEstimate::default()
        },
        ..Truth::default()
    };
    // The initial reservation, four times the estimate, exceeds the free memory but not the maximum.
    let truths = vec![truth(100, 190), truth(500, 190)];
    let mut world = World::new(DeviceRules::for_lanes(2), 1000 * MIB, truths);
    world.others = 600 * MIB;
    let fits = world.send("a", 1, 0, 3, Terms::default());
    let lacks = world.send("b", 1, 1, 3, Terms::default());
    world.finish();
    assert_eq!(world.works[&fits].over, Some(PartOutcome::Done { last: true }));
    let refused = world.works[&lacks].over;
    assert!(
        matches!(refused, Some(PartOutcome::Refused { needs, most }) if needs > most),
        "{refused:?}"
    );
}

#[test]
fn a_large_run_takes_all_there_is_though_sessions_of_its_stage_differ() {
    let truth = Truth {
        session: 80 * MIB,
        per_row: 10 * MIB,
        guess: MemoryEstimate {
            session: 80 * MIB,
            fixed: 0,
            per_row: 10 * MIB,
        },
        ..Truth::default()
    };
    let mut world = World::new(DeviceRules::for_lanes(2), 1024 * MIB, vec![truth]);
    for _ in 0..200 {
        world.send(
            "a",
            1,
            0,
            1,
            Terms {
                fixed_batch: Some(1),
                ..Terms::default()
            },
        );
    }
    world.finish();
    assert_eq!(world.opened, 2, "both lanes know the stage");
    let fixed_batch = Some(16);
    world.send(
        "a",
        1,
        0,
        16,
        Terms {
            fixed_batch,
            ..Terms::default()
        },
    );
    world.finish();
    world.assert_all_done_once();
}

#[test]
fn without_reports_the_guess_stays_and_batches_grow_all_the_same() {
    let truth = Truth {
        per_row: 10 * MIB,
        time: MILLI * 50,
        time_per_row: MILLI,
        guess: MemoryEstimate {
            per_row: 10 * MIB,
            ..MemoryEstimate::default()
        },
        ..Truth::default()
    };
    let mut world = World::new(DeviceRules::for_lanes(1), 1000 * MIB, vec![truth]);
    world.sees = false;
    world.send("a", 1, 0, 500, Terms::default());
    world.finish();
    world.assert_all_done_once();
    assert_eq!(world.device.stages.find(&0).unwrap().needs.line().1, 10 * MIB);
    assert!(world.runs.iter().map(|run| run.rows).max() >= Some(32));
}

#[test]
fn work_that_does_not_fit_is_overtaken_for_one_time_slice() {
    let large = Truth {
        per_row: 700 * MIB,
        guess: MemoryEstimate {
            per_row: 175 * MIB,
            ..MemoryEstimate::default()
        },
        ..Truth::default()
    };
    let small = Truth {
        per_row: 200 * MIB,
        time_per_row: MILLI * 400,
        guess: MemoryEstimate {
            per_row: 50 * MIB,
            ..MemoryEstimate::default()
        },
        ..Truth::default()
    };
    let mut world = World::new(DeviceRules::for_lanes(4), 1000 * MIB, vec![large, small]);
    for index in 0..8 {
        world.send(&format!("small{index}"), 1, 1, 50, Terms::default());
    }
    for _ in 0..10 {
        world.step();
    }
    let id = world.send("large", 1, 0, 1, Terms::default());
    while world.works[&id].begun.is_none() {
        assert!(world.step());
    }
    let waited = world.works[&id].begun.unwrap() - world.works[&id].sent;
    let longest = MILLI * 400;
    assert!(waited <= MILLI * 500 + longest + longest, "{waited:?}");
    world.finish();
    world.assert_all_done_once();
}
