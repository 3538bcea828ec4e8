//! Replanning in a simulated world with a changing link and host.

use super::simulated_world::{BATCH, MBIT, MOST, STEPS, World, bunched, job, possible, survey};
use crate::{Iteration, Planner, Replanner, Reuse, Slowdown, Survey, UsableSplit, Workload};
use frostline_wire::{Encoding, Split};

#[test]
fn batches_that_come_together_make_the_link_no_faster() {
    let world = World {
        link: 12.0 * MBIT,
        host: 1.0,
    };
    let mut replanner = world.replanner();
    let split = world.split();
    let (host, link, trainer) = world.stages(&split);
    assert!(link > 1.3 * host.max(trainer), "the link bounds '{split}'");
    for step in 0..STEPS {
        let iteration = bunched(step, world.iteration(&split, 1.0));
        assert_eq!(replanner.observe(&iteration, STEPS - step), None);
        let believed = replanner.planner().workload.link_bytes_per_second;
        assert!(
            (believed / world.link - 1.0).abs() < 0.05,
            "{believed} at step {step}"
        );
    }
}

#[test]
fn a_stalled_batch_does_not_change_the_split() {
    let world = World {
        link: 12.0 * MBIT,
        host: 1.0,
    };
    // The time increases by a factor of 20 in every 40th batch.
    let stalls = |step: u64| if step % 40 == 39 { 20.0 } else { 1.0 };
    let (quarter, end, changes) = job(world, world, stalls);
    assert_eq!((changes, quarter), (0, end));
}

#[test]
fn a_recovered_link_is_measured_again() {
    let world = |mbit: f64| World {
        link: mbit * MBIT,
        host: 1.0,
    };
    let slow = world(12.0);
    let fast = world(100.0);
    let mut replanner = slow.replanner();
    let split = slow.split();
    for (world, steps) in [(slow, 30), (fast, 30)] {
        for _ in 0..steps {
            replanner.observe(&world.iteration(&split, 1.0), 1);
        }
    }
    // The current transfer rate. The trainer is the bottleneck, so this is a lower bound for the link.
    let moved = fast.stages(&split).1 * fast.link / fast.steady(&split);
    let believed = replanner.planner().workload.link_bytes_per_second;
    assert!((believed / moved - 1.0).abs() < 0.05, "{believed} for {moved}");
}

/// Deterministic noise of up to 10 % in both directions.
fn noise(step: u64) -> f64 {
    let hash = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    0.9 + 0.2 * (hash % 1000) as f64 / 1000.0
}

#[test]
fn a_link_that_drops_moves_the_split_behind_it() {
    let fast = World {
        link: 200.0 * MBIT,
        host: 1.0,
    };
    let slow = World {
        link: 5.0 * MBIT,
        ..fast
    };
    let (quarter, end, changes) = job(fast, slow, |_| 1.0);
    assert!(fast.steady(&quarter) <= 1.05 * fast.best(), "{quarter}");
    assert_ne!(quarter, end);
    assert!(slow.steady(&end) <= 1.05 * slow.best(), "{end}");
    assert!((1..=2).contains(&changes), "{changes}");
}

#[test]
fn a_host_that_slows_down_gets_less_to_do() {
    let idle = World {
        link: 100.0 * MBIT,
        host: 1.0,
    };
    let loaded = World { host: 8.0, ..idle };
    let (quarter, end, changes) = job(idle, loaded, |_| 1.0);
    assert!(idle.steady(&quarter) <= 1.05 * idle.best(), "{quarter}");
    // A change must save 10 %, so a split may stay if it is within that range of the best.
    assert!(loaded.steady(&end) <= 1.12 * loaded.best(), "{end}");
    assert!((1..=3).contains(&changes), "{changes}");
}

#[test]
fn noise_changes_nothing() {
    for link in [5.0, 50.0, 500.0] {
        let world = World {
            link: link * MBIT,
            host: 1.0,
        };
        let (_, end, changes) = job(world, world, noise);
        assert!(changes <= 1, "{changes} changes at {link} Mbit/s");
        assert!(world.steady(&end) <= 1.1 * world.best(), "{end} at {link} Mbit/s");
    }
}

#[test]
fn several_hosts_divide_a_batch() {
    let workload = World {
        link: 1000.0 * MBIT,
        host: 1.0,
    }
    .workload();
    let stages = |hosts: usize| {
        let survey = Survey { hosts, ..survey() };
        let candidates = survey.candidates(&possible(), &workload);
        let freeze = candidates
            .iter()
            .find(|candidate| candidate.split == Split::from("freeze"));
        freeze.unwrap().stages
    };
    let one = stages(1);
    let three = stages(3);
    assert!((one.host_seconds / three.host_seconds - 3.0).abs() < 1e-9);
    assert_eq!(
        (one.link_seconds, one.trainer_seconds),
        (three.link_seconds, three.trainer_seconds)
    );
}

#[test]
fn fixed_costs_of_engine_batches_count_more_in_small_batches() {
    let mut survey = survey();
    for cut in survey.host.cuts.iter_mut().chain(&mut survey.trainer.cuts) {
        // Half the time of an engine batch with 16 rows is fixed.
        cut.compute.per_sample /= 2.0;
        cut.compute.fixed = 16.0 * cut.compute.per_sample;
    }
    let host_seconds = |batch: usize| {
        let world = World {
            link: 1000.0 * MBIT,
            host: 1.0,
        };
        let workload = Workload {
            batch,
            ..world.workload()
        };
        let candidates = survey.candidates(&possible(), &workload);
        let freeze = candidates
            .iter()
            .find(|candidate| candidate.split == Split::from("freeze"));
        freeze.unwrap().stages.host_seconds
    };
    // 5 ms of decoding and 40 ms of compute per sample. With 8 rows, the fixed half counts twice.
    assert!((host_seconds(16) / 16.0 - 0.045).abs() < 1e-9);
    assert!((host_seconds(8) / 8.0 - 0.065).abs() < 1e-9);
    // 24 rows are computed in two engine batches of 12.
    assert!((host_seconds(24) / 24.0 - (0.005 + 0.02 + 0.02 * 16.0 / 12.0)).abs() < 1e-9);
}

#[test]
fn requests_are_sized_to_travel_within_a_second() {
    let world = World {
        link: 5.0 * MBIT,
        host: 1.0,
    };
    let planner = world.planner();
    let plan = planner.plan().unwrap();
    let of = |split: &str| {
        let mut all = plan.candidates.iter();
        let ranked = all
            .find(|ranked| ranked.candidate.split == Split::from(split))
            .unwrap();
        planner.flow(&ranked.candidate)
    };
    let [freeze, none] = [of("freeze"), of("none")];
    assert_eq!(freeze.request_samples, 32);
    // 110 KB each: five per second, with a minimum of eight.
    assert_eq!(none.request_samples, 8);
    // A batch on the link and a batch that waits. At the freeze cut, the host works on a third.
    assert_eq!((none.ahead, none.window), (2, MOST.window), "{none:?}");
    assert_eq!((freeze.ahead, freeze.window), (3, MOST.window), "{freeze:?}");
}

/// A survey in which f16 has half the bytes of f32, with a single usable split.
fn rounding() -> (Survey, [UsableSplit; 1]) {
    let mut survey = survey();
    for cut in survey.host.cuts.iter_mut().chain(&mut survey.trainer.cuts) {
        let mut half = cut.encoded["f32"];
        half.bytes_per_sample /= 2.0;
        cut.encoded.insert("f16".to_owned(), half);
    }
    let possible = UsableSplit {
        split: Split::from("early"),
        encodings: vec![Encoding::F32, Encoding::F16],
        bytes_per_sample: 1,
    };
    (survey, [possible])
}

#[test]
fn a_link_that_drops_may_change_the_encoding_alone() {
    let (survey, possible) = rounding();
    let fast = World {
        link: 500.0 * MBIT,
        host: 1.0,
    };
    let planner = Planner {
        survey,
        splits: possible.to_vec(),
        ..fast.planner()
    };
    let (first, _) = planner.choose().unwrap();
    assert_eq!(first.encoding, Encoding::F32);
    let mut replanner = Replanner::new(planner, first.clone());
    // Activations stay in f32 until the change, so the link time of each step is constant.
    let trainer = first.stages.trainer_seconds;
    let bytes = first.bytes_per_sample * BATCH as f64;
    let step = Iteration {
        waited: bytes / (10.0 * MBIT) - trainer,
        computed: trainer,
        samples: BATCH,
        bytes: bytes as u64,
        on_host: Some(0.1),
    };
    let change = (0..30).find_map(|_| replanner.observe(&step, 1000)).unwrap();
    assert_eq!(
        (change.to.split, change.to.encoding),
        (first.split, Encoding::F16)
    );
}

#[test]
fn rounding_is_used_where_it_saves_time() {
    let (survey, possible) = rounding();
    let chosen = |mbit: f64| {
        let world = World {
            link: mbit * MBIT,
            host: 1.0,
        };
        let candidates = survey.candidates(&possible, &world.workload());
        (candidates[0].encoding, candidates[0].bytes_per_sample)
    };
    assert_eq!(chosen(5.0), (Encoding::F16, 100e3));
    assert_eq!(chosen(5000.0), (Encoding::F32, 200e3));
}

#[test]
fn decoding_and_the_prefix_add_up_only_on_the_same_processor() {
    let workload = World {
        link: 1000.0 * MBIT,
        host: 1.0,
    }
    .workload();
    let seconds = |device: &str| {
        let mut survey = survey();
        survey.host.platform.device = device.to_owned();
        let candidates = survey.candidates(&possible(), &workload);
        let freeze = candidates
            .iter()
            .find(|candidate| candidate.split == Split::from("freeze"));
        freeze.unwrap().stages.host_seconds
    };
    assert!((seconds("cpu") - 4.5).abs() < 1e-9);
    assert!((seconds("cuda:0") - 4.0).abs() < 1e-9);
    let whole = |device: &str| {
        let mut survey = survey();
        survey.trainer.platform.device = device.to_owned();
        let candidates = survey.candidates(&possible(), &workload);
        let none = candidates.iter().find(|candidate| candidate.split == Split::None);
        none.unwrap().stages
    };
    let [cpu, gpu] = ["cpu", "cuda:0"].map(whole);
    let decoding = cpu.trainer_seconds - gpu.trainer_seconds;
    assert!(
        decoding > 0.0 && gpu.trainer_seconds > gpu.step_seconds,
        "{cpu:?} {gpu:?}"
    );
}

#[test]
fn a_step_is_as_slow_as_its_trainer() {
    let workload = World {
        link: 100.0 * MBIT,
        host: 1.0,
    }
    .workload();
    let stages = |trainer: f64| {
        let slowdown = Slowdown { host: 1.0, trainer };
        let survey = Survey { slowdown, ..survey() };
        let candidates = survey.candidates(&possible(), &workload);
        candidates
            .into_iter()
            .map(|candidate| candidate.stages)
            .collect::<Vec<_>>()
    };
    for (once, twice) in stages(1.0).into_iter().zip(stages(2.0)) {
        assert!(once.step_seconds > 0.0 && once.step_seconds <= once.trainer_seconds);
        assert!((twice.step_seconds / once.step_seconds - 2.0).abs() < 1e-9);
    }
}

#[test]
fn only_iterations_that_fetch_are_worth_a_change() {
    let fast = World {
        link: 200.0 * MBIT,
        host: 1.0,
    };
    let slow = World {
        link: 5.0 * MBIT,
        ..fast
    };
    let changes = |left: u64| {
        let mut planner = fast.planner();
        planner.workload.reuse = Some(Reuse::default());
        let (first, _) = planner.choose().unwrap();
        let mut replanner = Replanner::new(planner, first.clone());
        let mut steps = (0..60).map(|_| replanner.observe(&slow.iteration(&first.split, 1.0), left));
        steps.any(|change| change.is_some())
    };
    assert!(changes(100));
    assert!(!changes(0), "the remaining iterations use cached features");
}

/// Returns a survey and a link with less than 2 % difference between two cuts. One is bounded by the trainer
/// and the other by the host, so noise decides which is faster.
fn near_ties() -> (Survey, World) {
    let mut survey = survey();
    for cut in survey.host.cuts.iter_mut().chain(&mut survey.trainer.cuts) {
        if cut.name == "middle" {
            cut.busy_seconds_per_sample = 0.0005;
            for encoded in cut.encoded.values_mut() {
                encoded.bytes_per_sample = 4e3;
            }
        }
    }
    let world = World {
        link: 12.0 * MBIT,
        host: 1.0,
    };
    (survey, world)
}

#[test]
fn noise_between_near_ties_changes_nothing() {
    let (survey, world) = near_ties();
    let planner = || Planner {
        survey: survey.clone(),
        ..world.planner()
    };
    let steady = |split: &str| {
        let candidate = planner().candidate(&Split::from(split)).unwrap();
        candidate.predict(&world.workload())
    };
    let [middle, freeze] = ["middle", "freeze"].map(steady);
    let best = planner().plan().unwrap().chosen;
    assert!((middle.total_seconds / freeze.total_seconds - 1.0).abs() < 0.02);
    assert_ne!(middle.bottleneck, freeze.bottleneck);
    assert!(best.prediction.total_seconds >= 0.99 * middle.total_seconds);
    for begins in ["middle", "freeze"] {
        let present = planner().candidate(&Split::from(begins)).unwrap();
        let mut replanner = Replanner::new(planner(), present.clone());
        for step in 0..STEPS {
            let stages = present.stages;
            let took = stages.host_seconds.max(stages.trainer_seconds) * noise(step);
            let computed = stages.trainer_seconds * noise(step);
            let iteration = Iteration {
                waited: took - computed,
                computed,
                samples: BATCH,
                bytes: (stages.link_seconds * world.link) as u64,
                on_host: Some(0.95),
            };
            let change = replanner.observe(&iteration, STEPS - step);
            assert_eq!(change, None, "from '{begins}' at step {step}");
        }
    }
}
