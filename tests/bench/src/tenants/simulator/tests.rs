use super::scenario::{Job, LinearCost};
use super::*;

fn scenario(jobs: usize) -> Scenario {
    let job = Job {
        images: 4000,
        training_batch: 1000,
        request: 500,
        seconds: LinearCost {
            fixed: 0.005,
            per_sample: 0.001,
        },
        memory: LinearCost {
            fixed: 1e9,
            per_sample: 1e7,
        },
        trainer_seconds: 2.0,
    };
    Scenario {
        memory_bytes: 8_000_000_000,
        lanes: 1,
        jobs: vec![job; jobs],
    }
}

#[test]
fn a_single_job_is_as_fast_as_its_slower_side() {
    for policy in [Policy::Frostline, Policy::Fixed(100), Policy::HapiLp] {
        let outcome = simulate(&scenario(1), policy);
        assert_eq!(outcome.failures, 0, "{policy}");
        // Four steps of two seconds, after extracting the first batch.
        assert!((9.0..9.6).contains(&outcome.makespan), "{outcome:?}");
    }
}

#[test]
fn fixed_batches_fail_where_frostline_serves_jobs_evenly() {
    let fixed = simulate(&scenario(8), Policy::Fixed(200));
    assert!(fixed.failures > 0, "{fixed:?}");
    let ours = simulate(&scenario(8), Policy::Frostline);
    assert_eq!(ours.failures, 0, "{ours:?}");
    assert!(ours.peak_bytes <= 8_000_000_000);
    assert!(
        ours.shares.iter().all(|share| (share - 0.125).abs() < 0.01),
        "{ours:?}"
    );
}

#[test]
fn an_oversized_request_fails_only_its_job() {
    for policy in [Policy::Frostline, Policy::HapiLp] {
        let mut scenario = scenario(2);
        scenario.jobs[1].memory.per_sample = 1e10;
        let outcome = simulate(&scenario, policy);
        assert_eq!(outcome.failures, 1, "{outcome:?}");
        assert!(outcome.finished[0].is_some() && outcome.finished[1].is_none());
    }
}

#[test]
fn hapi_scenarios_complete_where_fixed_batches_fail() {
    let (eight, eighteen) = (Scenario::hapi(8), Scenario::hapi(18));
    assert_eq!(simulate(&eighteen, Policy::Frostline).failures, 0);
    assert!(simulate(&eighteen, Policy::Fixed(64)).failures > 0);
    let ours = simulate(&eight, Policy::Frostline);
    let theirs = simulate(&eight, Policy::HapiLp);
    assert_eq!((ours.failures, theirs.failures), (0, 0));
    assert!(ours.makespan <= theirs.makespan * 1.01, "{ours:?} {theirs:?}");
}
