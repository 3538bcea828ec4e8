use crate::links::over_links;
use crate::policy::no_match_reason;
use crate::scenario::Scenario;
use crate::*;
use frostline_job::{FetchLimits, Policy};
use frostline_wire::{Encoding, Split};

mod cost;
mod per_sample;
mod recorded;
mod replan;
mod reuse;
mod simulated_costs;
mod simulated_world;
mod ties;

fn workload() -> Workload {
    Workload {
        batch: 100,
        iterations: 10,
        epoch_iterations: 10,
        epoch_samples: 1000.0,
        link_bytes_per_second: 1e6,
        shared_cores: false,
        request_share: 0.5,
        reuse: None,
        cost: CostModel::default(),
    }
}

/// Creates a candidate from the seconds on host and trainer and the bytes per sample.
fn candidate(split: &str, host: f64, trainer: f64, bytes: f64) -> Candidate {
    let workload = workload();
    Candidate {
        split: Split::from(split),
        encoding: Encoding::F32,
        stages: Stages {
            host_seconds: host,
            link_seconds: bytes * workload.batch as f64 / workload.link_bytes_per_second,
            trainer_seconds: trainer,
            ..Stages::default()
        },
        work: Work {
            host_core_seconds: 2.0 * host,
            trainer_core_seconds: 2.0 * trainer,
            step_core_seconds: 0.0,
        },
        bytes_per_sample: bytes,
    }
}

/// A network with activations that only become small in the last layers. The raw objects have 110 KB.
fn network() -> Vec<Candidate> {
    vec![
        candidate("none", 0.1, 5.0, 110e3),
        candidate("input", 0.5, 4.5, 150e3),
        candidate("wide", 2.0, 3.0, 400e3),
        candidate("small", 4.0, 1.0, 20e3),
    ]
}

fn chosen(policy: &str, workload: &Workload) -> String {
    let policy = policy.parse().unwrap();
    let plan = Plan::choose(network(), workload, &policy).unwrap();
    plan.chosen.candidate.split.to_string()
}

#[test]
fn the_slowest_tier_bounds_an_iteration() {
    let stages = |host, link, trainer| Stages {
        host_seconds: host,
        link_seconds: link,
        trainer_seconds: trainer,
        ..Stages::default()
    };
    let at = |stages: &Stages| {
        let prediction = workload().predict(stages, &Scenario::MEASURED);
        (prediction.steady_seconds, prediction.bottleneck)
    };
    assert_eq!(at(&stages(3.0, 1.0, 2.0)), (3.0, Bottleneck::Host));
    assert_eq!(at(&stages(1.0, 3.0, 2.0)), (3.0, Bottleneck::Link));
    assert_eq!(at(&stages(1.0, 2.0, 3.0)), (3.0, Bottleneck::Trainer));
}

#[test]
fn fill_steady_state_and_drain_add_up() {
    let stages = Stages {
        host_seconds: 4.0,
        link_seconds: 2.0,
        trainer_seconds: 1.0,
        upload_seconds: 7.0,
        ..Stages::default()
    };
    // The pipeline is filled with 4 s of extraction and half a batch on the link. This is followed by 9 more
    // batches of 4 s and 1 s of training.
    assert_eq!(
        workload().predict(&stages, &Scenario::MEASURED).total_seconds,
        7.0 + 5.0 + 36.0 + 1.0
    );
}

#[test]
fn tiers_on_the_same_cores_take_turns() {
    let stages = Stages {
        host_seconds: 3.0,
        link_seconds: 1.0,
        trainer_seconds: 2.0,
        ..Stages::default()
    };
    let shared = Workload {
        shared_cores: true,
        ..workload()
    };
    assert_eq!(shared.predict(&stages, &Scenario::MEASURED).steady_seconds, 5.0);
}

#[test]
fn the_shortest_job_wins_on_every_link() {
    let at = |rate: f64| {
        let workload = Workload {
            link_bytes_per_second: rate,
            ..workload()
        };
        let mut candidates = network();
        for candidate in &mut candidates {
            candidate.stages.link_seconds = candidate.bytes_per_sample * 100.0 / rate;
        }
        let plan = Plan::choose(candidates, &workload, &Policy::Auto).unwrap();
        plan.chosen.candidate.split.to_string()
    };
    assert_eq!(at(1e6), "small", "a slow link requires a small cut");
    assert_eq!(at(1e9), "wide", "a fast link requires balanced tiers");
}

#[test]
fn published_rules_choose_as_described() {
    let workload = workload();
    assert_eq!(chosen("freeze", &workload), "small");
    assert_eq!(chosen("none", &workload), "none");
    // 2,500 images of 20 KB are smaller than the objects, but they need more than a second on this link. No
    // cut fits, so the freeze cut is chosen.
    assert_eq!(chosen("hapi-size", &workload), "small");
    let fast = Workload {
        link_bytes_per_second: 1e8,
        ..workload
    };
    assert_eq!(chosen("hapi-size", &fast), "small");
    assert_eq!(chosen("hapi-time", &workload), "small");
    assert_eq!(
        Plan::choose(network(), &workload, &"features".parse().unwrap()),
        None
    );
    assert_eq!(Plan::choose(Vec::new(), &workload, &Policy::Auto), None);
    assert!("".parse::<Policy>().is_err());
}

#[test]
fn hapi_sizes_use_2500_images_for_any_batch() {
    let candidates = vec![
        candidate("none", 0.1, 5.0, 110e3),
        candidate("early", 1.0, 4.0, 60e3),
        candidate("small", 4.0, 1.0, 20e3),
        candidate("smaller", 5.0, 1.0, 10e3),
    ];
    // In a second, 800 Mbit/s transfer 100 images of 60 KB or 2,500 images of 20 KB, but not 2,500 images of
    // 60 KB.
    let workload = Workload {
        link_bytes_per_second: 1e8,
        ..workload()
    };
    let plan = Plan::choose(candidates.clone(), &workload, &Policy::HapiSize).unwrap();
    assert_eq!(plan.chosen.candidate.split, Split::from("small"));
    // The rule requires the size of the objects.
    let cuts = candidates[1..].to_vec();
    assert_eq!(Plan::choose(cuts, &workload, &Policy::HapiSize), None);
    let why = no_match_reason(&Policy::HapiSize, &[Split::from("early")]);
    assert!(why.contains("add 'none' to the candidates"), "{why}");
}

#[test]
fn a_mistyped_rule_gets_suggestions() {
    let splits = [Split::None, Split::from("features")];
    let why = |typed: &str| no_match_reason(&typed.parse().unwrap(), &splits);
    assert!(
        why("hapi-sise").starts_with("did you mean hapi-size"),
        "{}",
        why("hapi-sise")
    );
    assert!(why("Auto").starts_with("did you mean auto?"), "{}", why("Auto"));
    assert!(
        why("Features").starts_with("did you mean features?"),
        "{}",
        why("Features")
    );
    let other = why("zebra");
    assert!(
        other.contains("hapi-time") && other.contains("candidates: none, features"),
        "{other}"
    );
}

#[test]
fn a_fast_link_makes_dividing_worth_less() {
    let choose = |workload: &Workload| {
        let mut candidates = network();
        for candidate in &mut candidates {
            candidate.stages.link_seconds =
                candidate.bytes_per_sample * workload.batch as f64 / workload.link_bytes_per_second;
        }
        Plan::choose(candidates, workload, &Policy::Auto)
    };
    let points = over_links(&workload(), choose);
    let rates = [points.first().unwrap(), points.last().unwrap()].map(|point| point.bytes_per_second * 8.0);
    assert!(
        (rates[0] - 1e6).abs() < 1.0 && (rates[1] - 1e10).abs() < 1e4,
        "{rates:?}"
    );
    let slow = points.first().unwrap();
    let fast = points.last().unwrap();
    // On a slow link only the size matters: 110 KB per image compared with 20 KB.
    assert_eq!(slow.split, Split::from("small"));
    assert!((slow.speed_up - 5.5).abs() < 0.1, "{slow:?}");
    // On a fast link only the slowest tier matters: ten batches of 5 s on the trainer after 0.1 s, compared
    // with ten batches of 3 s after 2 s.
    assert_eq!(fast.split, Split::from("wide"));
    assert!((fast.speed_up - 50.1 / 32.0).abs() < 0.01, "{fast:?}");
    assert!(
        points.iter().all(|point| point.speed_up >= 1.0),
        "the best is never worse"
    );
    assert!(over_links(&workload(), |_| None).is_empty());
}

#[test]
fn of_equal_candidates_fewer_bytes_win() {
    let same = vec![
        candidate("a", 1.0, 2.0, 4e3),
        candidate("b", 1.0, 2.0, 4e3),
        candidate("c", 1.0, 2.0, 2e3),
    ];
    let mut same_time = same;
    for candidate in &mut same_time {
        candidate.stages.link_seconds = 0.1;
    }
    let plan = Plan::choose(same_time, &workload(), &Policy::Auto).unwrap();
    assert_eq!(plan.chosen, plan.candidates[2]);
}

#[test]
fn an_explanation_names_the_change_that_turns_the_choice() {
    let workload = workload();
    let plan = Plan::choose(network(), &workload, &Policy::Auto).unwrap();
    let explanation = plan.explain(&LayersLocation::default(), &Modules::default());
    assert!(
        explanation.headline.contains("'small'") && explanation.headline.contains("bound by the host"),
        "{}",
        explanation.headline
    );
    let none = explanation
        .rivals
        .iter()
        .find(|rival| rival.split == Split::None)
        .unwrap();
    assert!(none.ratio > 1.0);
    let change = none.wins_if.clone().unwrap();
    assert!(change.contains("link") || change.contains("host"), "{change}");
}

#[test]
fn plans_can_be_replayed_from_a_file() {
    let text = r#"{"link_bytes_per_second":1e6,"batch":10,"iterations":8,"candidates":[
        {"split":"none","host_seconds":0.1,"trainer_seconds":2,"bytes":9e6},
        {"split":"features","host_seconds":1.5,"trainer_seconds":0.5,"bytes":1e6}]}"#;
    let simulation = Simulation::parse(text).unwrap();
    let (summary, _) = simulation.plan(&Policy::Auto).unwrap();
    let summary = serde_json::to_value(summary).unwrap();
    assert_eq!(summary["split"], "features");
    assert_eq!(summary["candidates"][0]["split"], "none");
    assert_eq!(summary["candidates"][0]["bottleneck"], "link");
    // The first batch needs 0.1 s and 9 s. With 7 more batches of 9 s and 2 s of training, this is 74.1 s for
    // 8 iterations.
    assert!((summary["candidates"][0]["iteration_seconds"].as_f64().unwrap() - 74.1 / 8.0).abs() < 1e-9);
    assert_eq!(summary["candidates"][1]["bytes_per_sample"], 1e5);
}

/// Returns the example in `docs/planning.md`.
fn documented() -> &'static str {
    let page = include_str!("../../docs/planning.md");
    let (_, from) = page.split_once("```json").unwrap();
    from.split_once("```").unwrap().0
}

#[test]
fn the_documented_simulation_is_one() {
    let simulation = Simulation::parse(documented()).unwrap();
    let (summary, _) = simulation.plan(&Policy::Auto).unwrap();
    assert_eq!(summary.split, Split::from("features"));
    assert!(!simulation.over_links().is_empty());
}

#[test]
fn a_printed_plan_can_be_simulated() {
    let workload = Workload {
        shared_cores: true,
        ..workload()
    };
    let printed = |plan: &Plan| {
        let flow = FetchLimits {
            request_samples: 10,
            window: 2,
            ahead: 1,
        };
        serde_json::to_value(plan.summary(flow, &LayersLocation::default())).unwrap()
    };
    let mut candidates = network();
    candidates[3].encoding = Encoding::F16;
    let first = printed(&Plan::choose(candidates, &workload, &Policy::Auto).unwrap());
    let simulation = Simulation::parse(&first.to_string()).unwrap();
    assert_eq!(simulation.workload(), workload);
    let again = serde_json::to_value(simulation.plan(&Policy::Auto).unwrap().0).unwrap();
    assert_eq!(again["split"], first["split"]);
    for (again, first) in [(&again["candidates"], &first["candidates"])] {
        for (again, first) in again.as_array().unwrap().iter().zip(first.as_array().unwrap()) {
            assert_eq!(
                (&again["split"], &again["encoding"]),
                (&first["split"], &first["encoding"])
            );
            let seconds = |row: &serde_json::Value| row["total_seconds"].as_f64().unwrap();
            assert!((seconds(again) - seconds(first)).abs() < 1e-9, "{again} {first}");
        }
    }
}

#[test]
fn a_simulation_takes_another_link_and_fewer_candidates() {
    let mut simulation = Simulation::parse(documented()).unwrap();
    simulation.link_bytes_per_second = 2e6;
    assert_eq!(simulation.workload().link_bytes_per_second, 2e6);
    let only = simulation.clone().with_candidates(&[Split::None]).unwrap();
    let (summary, _) = only.plan(&Policy::Auto).unwrap();
    assert_eq!(summary.candidates.len(), 1);
    let error = simulation
        .clone()
        .with_candidates(&[Split::from("Features")])
        .unwrap_err();
    assert!(error.to_string().contains("did you mean features?"), "{error}");
    let mistyped = simulation.plan(&"hapi-tyme".parse().unwrap()).unwrap_err();
    assert!(
        mistyped.to_string().contains("did you mean hapi-time"),
        "{mistyped}"
    );
}

#[test]
fn impossible_simulations_are_refused() {
    let with = |link: &str, bytes: &str, split: &str| {
        format!(
            r#"{{"link_bytes_per_second":{link},"batch":1,"iterations":1,"candidates":[
            {{"split":"none","host_seconds":0,"trainer_seconds":0,"bytes":1}},
            {{"split":"{split}","host_seconds":0,"trainer_seconds":0,"bytes":{bytes}}}]}}"#
        )
    };
    assert!(Simulation::parse(&with("1", "1", "a")).is_ok());
    assert!(matches!(
        Simulation::parse(&with("0", "1", "a")),
        Err(SimulationError::InvalidValue { .. })
    ));
    assert!(matches!(
        Simulation::parse(&with("1", "-1", "a")),
        Err(SimulationError::InvalidValue { .. })
    ));
    assert!(matches!(
        Simulation::parse(&with("1", "1", "none")),
        Err(SimulationError::DuplicateSplit(_))
    ));
    assert!(matches!(Simulation::parse("{"), Err(SimulationError::Json(_))));
    let without_bytes = with("1", "1", "a").replacen("\"bytes\":1", "\"byte\":1", 1);
    let error = Simulation::parse(&without_bytes).unwrap_err().to_string();
    assert!(error.contains("bytes of the split 'none' is missing"), "{error}");
    let empty = r#"{"link_bytes_per_second":1,"batch":1,"iterations":1,"candidates":[]}"#;
    assert!(matches!(
        Simulation::parse(empty).unwrap().plan(&Policy::Auto),
        Err(SimulationError::NoCandidate { .. })
    ));
}
