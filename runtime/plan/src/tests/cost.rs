//! Usage and cost of a job, and plans that minimize the cost.

use super::*;
use frostline_job::{Objective, Prices};

/// The trainer has a single core, which costs 3600 per hour and therefore 1 per second. Hosts are free, and
/// traffic costs 1 per MB.
const TRAFFIC: Prices = Prices {
    host: 0.0,
    trainer: 3600.0,
    gb: 1000.0,
};

fn priced(objective: Objective, prices: Prices) -> Workload {
    Workload {
        cost: CostModel {
            objective,
            prices: Some(prices),
            ..CostModel::default()
        },
        ..workload()
    }
}

/// `early` is faster. `late` sends fewer bytes but uses the host for longer.
fn two() -> Vec<Candidate> {
    vec![
        candidate("early", 1.0, 4.0, 40e3),
        candidate("late", 5.0, 1.0, 2e3),
    ]
}

fn planned(workload: &Workload) -> Plan {
    Plan::compare(|_| two(), workload, &Policy::Auto).unwrap()
}

fn split(workload: &Workload) -> String {
    planned(workload).chosen.candidate.split.to_string()
}

fn near(value: f64, expected: f64) {
    assert!(
        (value - expected).abs() < 1e-9 * expected.abs().max(1.0),
        "{value} {expected}"
    );
}

#[test]
fn an_objective_of_cost_picks_another_split_than_one_of_time() {
    assert_eq!(split(&priced(Objective::Time, TRAFFIC)), "early");
    assert_eq!(split(&priced(Objective::Cost, TRAFFIC)), "late");
    // If the hosts' cores are expensive and traffic is free, the host should compute as few layers as
    // possible.
    let hosts = Prices {
        host: 3600.0,
        trainer: 0.0,
        gb: 0.0,
    };
    assert_eq!(split(&priced(Objective::Cost, hosts)), "early");
    // With shared cores there is a single machine without traffic, so the shorter job is also cheaper.
    let shared = Workload {
        shared_cores: true,
        ..priced(Objective::Cost, TRAFFIC)
    };
    assert_eq!(split(&shared), "early");
}

#[test]
fn of_equal_costs_the_shortest_job_wins() {
    let traffic_only = Prices {
        trainer: 0.0,
        ..TRAFFIC
    };
    let workload = priced(Objective::Cost, traffic_only);
    let choose = |bytes: f64| {
        let candidates = vec![
            candidate("slow", 5.0, 1.0, 20e3),
            candidate("fast", 1.0, 4.0, bytes),
        ];
        let plan = Plan::choose(candidates, &workload, &Policy::Auto).unwrap();
        plan.chosen.candidate.split.to_string()
    };
    assert_eq!(choose(20.1e3), "fast", "half a percent dearer");
    assert_eq!(choose(20.5e3), "slow");
}

#[test]
fn usage_counts_the_work_of_cores_and_the_samples_of_an_epoch() {
    let workload = Workload {
        iterations: 30,
        epoch_iterations: 10,
        epoch_samples: 950.0,
        ..workload()
    };
    let plan = Plan::choose(two(), &workload, &Policy::Auto).unwrap();
    let summary = plan.summary(FLOW, &LayersLocation::default());
    let row = &summary.candidates[1];
    // Each batch of 100 uses two cores for 5 s, and an epoch has 9.5 batches with 2 KB per sample.
    near(row.first_epoch.host_core_seconds, 95.0);
    near(row.first_epoch.trainer_core_seconds, 19.0);
    near(row.first_epoch.bytes, 1.9e6);
    near(row.job.bytes, 5.7e6);
    near(row.job.seconds, row.total_seconds);
    near(row.first_epoch.seconds * 3.0, row.total_seconds);
    assert_eq!((row.later_epoch, row.job.cost), (None, None));
}

const FLOW: FetchLimits = FetchLimits {
    request_samples: 10,
    window: 1,
    ahead: 1,
};

#[test]
fn later_epochs_from_the_cache_use_the_step_alone() {
    let mut candidates = two();
    candidates[1].stages.step_seconds = 0.25;
    candidates[1].work.step_core_seconds = 0.5;
    let workload = Workload {
        iterations: 30,
        reuse: Some(Reuse::default()),
        ..workload()
    };
    let plan = Plan::choose(candidates, &workload, &"late".parse().unwrap()).unwrap();
    let summary = plan.summary(FLOW, &LayersLocation::default());
    let later = summary.later_epoch.unwrap();
    assert_eq!((later.host_core_seconds, later.bytes), (0.0, 0.0));
    near(later.trainer_core_seconds, 5.0);
    near(later.seconds, 2.5);
    near(summary.job.bytes, summary.first_epoch.bytes);
    near(summary.job.trainer_core_seconds, 20.0 + 2.0 * 5.0);
}

#[test]
fn a_plan_tells_what_the_job_costs_and_what_the_shortest_one_does() {
    let prices = Prices {
        host: 3600.0,
        trainer: 36000.0,
        gb: 50e3,
    };
    let mut workload = priced(Objective::Cost, prices);
    workload.cost.trainer_cores = 2.0;
    let plan = planned(&workload);
    let job = plan.summary(FLOW, &LayersLocation::default()).job;
    let cost = job.cost.unwrap();
    // The host uses two cores for 5 s per batch. The trainer's two cores are paid for the whole job, even if
    // they are idle. The traffic is 2 MB.
    near(cost.host, 100.0);
    near(cost.trainer, 20.0 * job.seconds);
    near(cost.link, 100.0);
    near(cost.total, cost.host + cost.trainer + cost.link);
    let said = plan
        .explain(&LayersLocation::default(), &Modules::default())
        .cost
        .unwrap();
    assert!(said.starts_with("the job costs 12"), "{said}");
    assert!(
        said.contains("The objective time would use 'early' as f32: 2"),
        "{said}"
    );
    let json = serde_json::to_value(plan.summary(FLOW, &LayersLocation::default())).unwrap();
    assert_eq!(
        (&json["split"], &json["objective"]),
        (&"late".into(), &"cost".into())
    );
    assert_eq!(json["prices"], "host=3600,trainer=36000,gb=50000");
    assert_eq!(json["shortest"]["split"], "early");
    assert!(json["shortest"]["job"]["cost"]["total"].as_f64().unwrap() > cost.total);
    assert!(json["shortest"]["job"]["seconds"].as_f64().unwrap() < job.seconds);
    assert_eq!(json["candidates"][1]["host_core_seconds"], 10.0);
}

#[test]
fn prices_alone_change_no_plan_and_show_the_cost() {
    let plan = planned(&priced(Objective::Time, TRAFFIC));
    let explained = plan.explain(&LayersLocation::default(), &Modules::default());
    let said = explained.cost.unwrap();
    assert!(
        said.starts_with("the job costs") && !said.contains("the objective"),
        "{said}"
    );
    let unpriced = Plan::compare(|_| two(), &workload(), &Policy::Auto).unwrap();
    assert_eq!(unpriced.chosen.candidate, plan.chosen.candidate);
    let explained = unpriced.explain(&LayersLocation::default(), &Modules::default());
    assert_eq!(explained.cost, None);
    let json = serde_json::to_value(unpriced.summary(FLOW, &LayersLocation::default())).unwrap();
    assert!(json["job"].get("cost").is_none() && json.get("prices").is_none());
}

#[test]
fn the_change_that_makes_a_rival_win_is_one_of_cost() {
    let plan = planned(&priced(Objective::Cost, TRAFFIC));
    let rivals = plan
        .explain(&LayersLocation::default(), &Modules::default())
        .rivals;
    let [early] = &rivals[..] else {
        panic!("{rivals:?}");
    };
    // This compares 44.5 s and 40 MB with 51.1 s and 2 MB.
    assert!(early.ratio > 1.3, "{early:?}");
    assert_eq!(early.wins_if.as_deref(), Some("host 1.7x slower"));
}

#[test]
fn a_printed_plan_is_priced_again_alike() {
    let mut workload = priced(Objective::Cost, TRAFFIC);
    workload.cost.trainer_cores = 4.0;
    workload.epoch_samples = 930.0;
    let printed = planned(&workload).summary(FLOW, &LayersLocation::default());
    let text = serde_json::to_string(&printed).unwrap();
    let mut simulation = Simulation::parse(&text).unwrap();
    let (time, _) = simulation.clone().plan(&Policy::Auto).unwrap();
    assert_eq!((time.objective, time.job.cost), (Objective::Time, None));
    (simulation.objective, simulation.prices) = (Objective::Cost, Some(TRAFFIC));
    assert_eq!(simulation.workload(), workload);
    let (again, _) = simulation.plan(&Policy::Auto).unwrap();
    assert_eq!((again.split, again.job), (printed.split, printed.job));
    let wrong = text.replace("\"trainer_cores\":4.0", "\"trainer_cores\":0");
    let error = Simulation::parse(&wrong).unwrap_err().to_string();
    assert!(
        error.starts_with("trainer_cores is 0; it must be above 0"),
        "{error}"
    );
}
