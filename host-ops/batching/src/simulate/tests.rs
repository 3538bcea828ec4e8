use super::*;

fn job(tenant: &str) -> Job {
    Job {
        tenant: tenant.to_owned(),
        weight: 1,
        arrives: 0.0,
        images: 4000,
        training_batch: 1000,
        request: 500,
        seconds: Line {
            fixed: 0.005,
            per_sample: 0.001,
        },
        memory: Line {
            fixed: 1e9,
            per_sample: 1e7,
        },
        trainer_seconds: 2.0,
    }
}

fn scenario(policy: Policy, jobs: usize) -> Scenario {
    Scenario {
        memory_bytes: 8_000_000_000,
        lanes: 1,
        policy,
        jobs: (0..jobs).map(|index| job(&format!("t{index}"))).collect(),
    }
}

#[test]
fn a_job_alone_takes_what_its_slower_side_takes() {
    for policy in [Policy::Frostline, Policy::Fixed(100), Policy::HapiLp] {
        let outcome = simulate(&scenario(policy, 1)).unwrap();
        assert_eq!(outcome.failures, 0, "{policy}");
        // Four steps of two seconds behind the extraction of the first batch.
        assert!((9.0..9.6).contains(&outcome.makespan), "{outcome:?}");
    }
}

#[test]
fn everybody_at_once_fails_where_frostline_serves_all_alike() {
    let fixed = simulate(&scenario(Policy::Fixed(200), 8)).unwrap();
    assert!(fixed.failures > 0, "{fixed:?}");
    let ours = simulate(&scenario(Policy::Frostline, 8)).unwrap();
    assert_eq!(ours.failures, 0, "{ours:?}");
    assert!(ours.peak_bytes <= 8_000_000_000);
    for tenant in &ours.tenants {
        assert!((tenant.share - 0.125).abs() < 0.01, "{ours:?}");
    }
}

#[test]
fn what_can_never_fit_fails_its_job_only() {
    for policy in [Policy::Frostline, Policy::HapiLp] {
        let mut scenario = scenario(policy, 2);
        scenario.jobs[1].memory.per_sample = 1e10;
        let outcome = simulate(&scenario).unwrap();
        assert_eq!(outcome.failures, 1, "{outcome:?}");
        assert!(outcome.tenants[0].finished.is_some() && outcome.tenants[1].finished.is_none());
    }
}

#[test]
fn scenarios_that_cannot_be_meant_are_refused_with_the_range() {
    let refused = |change: fn(&mut Scenario)| {
        let mut scenario = scenario(Policy::Frostline, 2);
        change(&mut scenario);
        simulate(&scenario).unwrap_err().to_string()
    };
    type Case = (fn(&mut Scenario), &'static str);
    let cases: [Case; 9] = [
        (|s| s.lanes = 0, "lanes is 0; it must be 1 to 256"),
        (|s| s.memory_bytes = 0, "memory_bytes"),
        (|s| s.jobs.clear(), "the number of jobs"),
        (
            |s| s.jobs[0].weight = 0,
            "jobs[0].weight is 0; it must be 1 to 100",
        ),
        (|s| s.jobs[1].arrives = -1.0, "jobs[1].arrives is -1"),
        (
            |s| s.jobs[1].seconds.per_sample = f64::NAN,
            "seconds.per_sample is NaN",
        ),
        (|s| s.jobs[0].images = u64::MAX, "jobs[0].images"),
        (|s| s.jobs[0].request = 0, "jobs[0].request"),
        (
            |s| {
                s.jobs[1].tenant = "t0".into();
                s.jobs[1].weight = 2
            },
            "one weight",
        ),
    ];
    for (change, text) in cases {
        let refused = refused(change);
        assert!(refused.contains(text), "{refused}");
    }
    assert!("fixed:0".parse::<Policy>().is_err() && "lp".parse::<Policy>().is_err());
    assert_eq!("fixed:64".parse(), Ok(Policy::Fixed(64)));
}

/// HAPI's jobs: `docs/device.md` says where the figures come from.
fn replay(text: &str, policy: Policy) -> Outcome {
    let mut scenario: Scenario = serde_json::from_str(text).unwrap();
    scenario.policy = policy;
    simulate(&scenario).unwrap()
}

#[test]
fn replays_of_hapi_fail_for_nobody_where_fixed_batches_fail() {
    let (eight, eighteen) = (
        include_str!("../../docs/replays/hapi-8.json"),
        include_str!("../../docs/replays/hapi-18.json"),
    );
    assert_eq!(replay(eighteen, Policy::Frostline).failures, 0);
    assert!(replay(eighteen, Policy::Fixed(64)).failures > 0);
    let (ours, theirs) = (replay(eight, Policy::Frostline), replay(eight, Policy::HapiLp));
    assert_eq!((ours.failures, theirs.failures), (0, 0));
    assert!(ours.makespan <= theirs.makespan * 1.01, "{ours:?} {theirs:?}");
}
