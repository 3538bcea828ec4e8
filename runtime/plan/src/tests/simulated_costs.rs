//! Tests core-seconds of surveys, and planning for cost in a simulated world.

use super::simulated_world::{MBIT, STEPS, World, possible, survey};
use crate::{Candidate, CostModel, Replanner, Slowdown, Survey};
use frostline_job::{Objective, Prices};
use frostline_wire::{Encoding, Split};

const WORLD: World = World {
    link: 100.0 * MBIT,
    host: 1.0,
};

fn candidate(survey: &Survey, split: &str) -> Candidate {
    let candidates = survey.candidates(&possible(), &WORLD.workload());
    let found = candidates
        .into_iter()
        .find(|candidate| candidate.split == Split::from(split));
    found.unwrap()
}

/// A host with four decoders and two lanes of three threads, and a trainer with four cores.
fn several_cores() -> Survey {
    let mut survey = survey();
    let host = &mut survey.host;
    (
        host.platform.lanes,
        host.platform.threads_per_lane,
        host.platform.decode_threads,
    ) = (2, 3, 4);
    host.read_busy_seconds_per_sample = 0.001;
    for cut in &mut host.cuts {
        let encoded = cut.encoded.get_mut("f32").unwrap();
        encoded.encode_seconds_per_sample = 0.002;
    }
    let platform = &mut survey.trainer.platform;
    (platform.threads_per_lane, platform.decode_threads) = (4, 4);
    survey
}

fn near(value: f64, expected: f64) {
    assert!(
        (value - expected).abs() < 1e-9 * expected.max(1.0),
        "{value} {expected}"
    );
}

#[test]
fn work_counts_the_cores_that_each_part_uses() {
    let survey = several_cores();
    let freeze = candidate(&survey, "freeze").work;
    // For each of 100 samples: 5 ms on a decoder, 2 ms on an encoder, and 41 ms on all six engine threads,
    // including 1 ms for reading.
    near(freeze.host_core_seconds, 100.0 * (0.005 + 0.002 + 6.0 * 0.041));
    near(freeze.trainer_core_seconds, 4.0 * 0.5);
    let none = candidate(&survey, "none").work;
    near(none.host_core_seconds, 100.0 * 6.0 * 0.001);
    // 5 ms on a single thread, 40 ms on four threads, and the step.
    near(
        none.trainer_core_seconds,
        100.0 * (0.005 + 4.0 * 0.04) + 4.0 * 0.5,
    );
    near(none.step_core_seconds, 4.0 * 0.5);
}

#[test]
fn hosts_and_neighbors_change_the_time_and_not_the_work() {
    let one = several_cores();
    let several = Survey {
        hosts: 3,
        neighbors: 2,
        ..one.clone()
    };
    let one = candidate(&one, "freeze");
    let several = candidate(&several, "freeze");
    assert_eq!(one.work, several.work);
    let slow = Survey {
        slowdown: Slowdown {
            host: 2.0,
            trainer: 1.0,
        },
        ..several_cores()
    };
    let slow = candidate(&slow, "freeze");
    near(slow.work.host_core_seconds, 2.0 * one.work.host_core_seconds);
}

#[test]
fn a_host_with_a_gpu_counts_with_all_its_cores() {
    let mut survey = several_cores();
    survey.host.platform.device = "cuda:0".to_owned();
    survey.host.read_busy_seconds_per_sample = 0.0;
    let freeze = candidate(&survey, "freeze");
    near(freeze.work.host_core_seconds, 4.0 * 100.0 * 0.04);
}

fn priced(prices: Prices) -> CostModel {
    CostModel {
        objective: Objective::Cost,
        prices: Some(prices),
        trainer_cores: 1.0,
    }
}

/// Minimizes cost in the world `first`, then runs the job in the world `later`. Returns the first split and
/// all changes.
fn changes(prices: Prices, first: World, later: World) -> (String, Vec<String>) {
    let mut planner = first.planner();
    planner.workload.cost = priced(prices);
    let (candidate, _) = planner.choose().unwrap();
    let mut split = candidate.split.clone();
    let mut replanner = Replanner::new(planner, candidate.clone());
    let mut changes = Vec::new();
    for step in 0..STEPS {
        if let Some(change) = replanner.observe(&later.iteration(&split, 1.0), STEPS - step) {
            assert!(change.reason.contains(", which costs "), "{}", change.reason);
            split = change.to.split.clone();
            changes.push(split.to_string());
            replanner.start(change.to);
        }
    }
    (candidate.split.to_string(), changes)
}

#[test]
fn a_running_job_minimizes_the_cost_too() {
    // With a fast link, few layers on the host make the shortest job, but the traffic is expensive.
    let fast = World {
        link: 1000.0 * MBIT,
        host: 1.0,
    };
    assert_ne!(fast.split().to_string(), "freeze");
    let traffic = Prices {
        host: 0.0,
        trainer: 0.01,
        gb: 1.0,
    };
    let loaded = World { host: 2.0, ..fast };
    for later in [fast, loaded] {
        assert_eq!(
            changes(traffic, fast, later),
            ("freeze".to_owned(), Vec::new()),
            "changes cost more than they save"
        );
    }
    // Here the trainer's hours matter as well: if the host slows down, they cost more than traffic.
    let both = Prices {
        host: 0.0,
        trainer: 3.6,
        gb: 0.1,
    };
    let (first, changed) = changes(both, fast, World { host: 8.0, ..fast });
    let cost = |split: &str| {
        let seconds = World { host: 8.0, ..fast }.steady(&Split::from(split));
        let bytes = candidate(&survey(), split).bytes_per_sample * 100.0;
        seconds * 0.001 + bytes * 1e-10
    };
    let end = changed.last().unwrap_or(&first);
    let best = possible()
        .iter()
        .map(|usable| cost(&usable.split.to_string()))
        .fold(f64::INFINITY, f64::min);
    assert!(
        !changed.is_empty() && cost(end) <= 1.12 * best,
        "{first} {changed:?}"
    );
}

#[test]
fn an_encoding_is_used_where_it_saves_money() {
    let mut survey = survey();
    for cut in survey.host.cuts.iter_mut().chain(&mut survey.trainer.cuts) {
        let mut half = cut.encoded["f32"];
        half.bytes_per_sample /= 2.0;
        cut.encoded.insert("f16".to_owned(), half);
    }
    let mut usable = possible().pop().unwrap();
    usable.encodings = vec![Encoding::F32, Encoding::F16];
    let encoding = |cost: CostModel| {
        let mut workload = WORLD.workload();
        workload.cost = cost;
        survey.candidates(&[usable.clone()], &workload)[0].encoding
    };
    // The host bounds the job at 100 Mbit/s with any encoding.
    assert_eq!(encoding(CostModel::default()), Encoding::F32);
    let traffic = Prices {
        gb: 0.09,
        ..Prices::default()
    };
    assert_eq!(encoding(priced(traffic)), Encoding::F16);
}
