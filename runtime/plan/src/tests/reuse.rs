//! Tests of jobs with cached features.

use super::*;

const ALL: Reuse = Reuse {
    rows_kept_already: 0.0,
    fits: 1.0,
    views: 1,
    bytes: 2_400_000_000,
};

/// Creates a job with two iterations per epoch.
fn epochs(epochs: u64, reuse: Option<Reuse>) -> Workload {
    Workload {
        iterations: 2 * epochs,
        epoch_iterations: 2,
        epoch_samples: 200.0,
        reuse,
        ..workload()
    }
}

const STAGES: Stages = Stages {
    host_seconds: 4.0,
    link_seconds: 2.0,
    trainer_seconds: 1.0,
    step_seconds: 0.5,
    upload_seconds: 0.0,
};

#[test]
fn a_job_takes_its_first_pass_and_then_steps_alone() {
    // The first pass needs 4 s of extraction, half a batch on the link, another batch of 4 s and 1 s of
    // training. Then there are 8 steps.
    let prediction = epochs(5, Some(ALL)).predict(&STAGES, &Scenario::MEASURED);
    assert_eq!(prediction.total_seconds, 10.0 + 4.0);
    assert_eq!(
        (prediction.iteration_seconds, prediction.later_seconds),
        (5.0, 0.5)
    );
    assert_eq!(
        (prediction.steady_seconds, prediction.bottleneck),
        (4.0, Bottleneck::Host)
    );
    assert_eq!(prediction.fetching_seconds, 10.0);
    let nothing_kept = epochs(5, None).predict(&STAGES, &Scenario::MEASURED);
    assert_eq!(nothing_kept.total_seconds, 10.0 + 8.0 * 4.0);
    assert_eq!(nothing_kept.fetching_seconds, nothing_kept.total_seconds);
}

#[test]
fn views_are_first_passes() {
    let reuse = Reuse { views: 3, ..ALL };
    let prediction = epochs(5, Some(reuse)).predict(&STAGES, &Scenario::MEASURED);
    assert_eq!(prediction.total_seconds, 5.0 + 5.0 * 4.0 + 1.0 + 4.0 * 0.5);
}

#[test]
fn with_everything_kept_a_job_is_steps_alone() {
    let reuse = Reuse {
        rows_kept_already: 1.0,
        ..ALL
    };
    let prediction = epochs(5, Some(reuse)).predict(&STAGES, &Scenario::MEASURED);
    assert_eq!(prediction.total_seconds, 10.0 * 0.5);
    assert_eq!(prediction.bottleneck, Bottleneck::Trainer);
    assert_eq!(prediction.fetching_seconds, 0.0);
}

#[test]
fn rows_without_room_are_fetched_in_every_epoch() {
    let half = Reuse { fits: 0.5, ..ALL };
    let prediction = epochs(5, Some(half)).predict(&STAGES, &Scenario::MEASURED);
    // The host needs half of 4 s per batch, and the other tiers overlap with this.
    assert_eq!(prediction.total_seconds, 10.0 + 8.0 * 2.0);
    let shared = Workload {
        shared_cores: true,
        ..epochs(5, Some(half))
    };
    // With shared cores, half of the 0.5 s for decoding and the step of 0.5 s are added.
    assert_eq!(shared.predict(&STAGES, &Scenario::MEASURED).later_seconds, 2.75);
}

/// The split `none` is slow but requires no upload, and the split `cut` is faster after an upload.
fn late_and_early() -> Vec<Candidate> {
    let mut candidates = vec![
        candidate("none", 0.1, 1.0, 40e3),
        candidate("cut", 1.5, 1.0, 10e3),
    ];
    for candidate in &mut candidates {
        candidate.stages.step_seconds = 1.0;
    }
    candidates[1].stages.upload_seconds = 40.0;
    candidates
}

#[test]
fn the_best_split_depends_on_the_number_of_fetches() {
    let best = |epochs: u64, reuse: Option<Reuse>| {
        let workload = Workload {
            iterations: 10 * epochs,
            ..workload()
        };
        let workload = Workload { reuse, ..workload };
        let plan = Plan::choose(late_and_early(), &workload, &Policy::Auto).unwrap();
        plan.chosen.candidate.split.to_string()
    };
    // An iteration needs 4 s, compared with 1.5 s after an upload of 40 s.
    assert_eq!(best(1, None), "none");
    assert_eq!(best(20, None), "cut", "19 more epochs fetch");
    assert_eq!(best(20, Some(ALL)), "none", "only the first fetches");
    let half = Reuse { fits: 0.5, ..ALL };
    assert_eq!(
        best(20, Some(half)),
        "cut",
        "all epochs fetch half of the features"
    );
    assert_eq!(best(20, Some(Reuse { views: 8, ..ALL })), "cut", "eight fetch");
}

fn told(reuse: Reuse, encoding: Encoding) -> (Summary, String) {
    let mut candidates = network();
    for candidate in &mut candidates {
        candidate.stages.step_seconds = 0.4;
        candidate.encoding = encoding;
    }
    let plan = Plan::choose(candidates, &epochs(20, Some(reuse)), &Policy::Auto).unwrap();
    let flow = FetchLimits {
        request_samples: 50,
        window: 2,
        ahead: 1,
    };
    let layers = LayersLocation::default();
    (
        plan.summary(flow, &layers),
        plan.explain(&layers, &Modules::default()).headline,
    )
}

#[test]
fn a_plan_says_both_kinds_of_epochs_and_how_large_the_store_gets() {
    let (summary, headline) = told(ALL, Encoding::F16);
    assert_eq!(summary.split, Split::from("small"));
    assert_eq!(
        (
            summary.iterations,
            summary.epoch_iterations,
            summary.kept_iterations
        ),
        (40, 2, 38)
    );
    assert_eq!(summary.store_bytes, 1_200_000_000);
    // This includes 4 s of extraction, half a batch on the link, another batch of 4 s and 1 s of training.
    assert_eq!(summary.first_epoch_seconds, 10.0);
    assert_eq!(summary.later_epoch_seconds, Some(0.8));
    assert!((summary.total_seconds - (10.0 + 19.0 * 0.8)).abs() < 1e-9);
    assert!(
        headline.ends_with("; epochs from the 2nd on take 800.0 ms from the feature cache (1.2 GB)"),
        "{headline}"
    );
    let (_, views) = told(Reuse { views: 3, ..ALL }, Encoding::F32);
    assert!(
        views.ends_with("; epochs from the 4th on take 800.0 ms from the feature cache (2.4 GB)"),
        "{views}"
    );
    let (_, half) = told(Reuse { fits: 0.5, ..ALL }, Encoding::F32);
    assert!(
        half.ends_with("; epochs from the 2nd on take 4.00 s with 50 % of the features cached (1.2 GB)"),
        "{half}"
    );
    let there = Reuse {
        rows_kept_already: 1.0,
        ..ALL
    };
    let (_, all) = told(there, Encoding::F32);
    assert!(
        all.ends_with("; cached features (2.4 GB): 800.0 ms per epoch"),
        "{all}"
    );
}

#[test]
fn a_plan_with_kept_rows_can_be_planned_again() {
    let reuse = Reuse {
        rows_kept_already: 0.25,
        fits: 0.7,
        views: 2,
        bytes: 1_000_000,
    };
    let first = serde_json::to_value(told(reuse, Encoding::F16).0).unwrap();
    let simulation = Simulation::parse(&first.to_string()).unwrap();
    assert_eq!(simulation.workload(), epochs(20, Some(reuse)));
    let again = serde_json::to_value(simulation.plan(&Policy::Auto).unwrap().0).unwrap();
    for figure in [
        "kept_iterations",
        "store_bytes",
        "first_epoch_seconds",
        "later_epoch_seconds",
        "total_seconds",
    ] {
        let [again, first] = [&again, &first].map(|summary| summary[figure].as_f64().unwrap());
        assert!((again - first).abs() < 1e-9, "{figure}: {again} {first}");
    }
    assert_eq!(
        (&again["split"], &again["reuse"]),
        (&first["split"], &first["reuse"])
    );
}

#[test]
fn a_simulation_without_steps_takes_the_least_that_the_trainer_does() {
    let text = r#"{"link_bytes_per_second":1e6,"batch":10,"iterations":40,"epoch_iterations":2,"reuse":{},"candidates":[
        {"split":"none","host_seconds":0,"trainer_seconds":2,"bytes":0},
        {"split":"cut","host_seconds":1,"trainer_seconds":0.5,"bytes":0}]}"#;
    let (summary, _) = Simulation::parse(text).unwrap().plan(&Policy::Auto).unwrap();
    let steps = summary.candidates.iter().map(|row| row.stages.step_seconds);
    assert_eq!(steps.collect::<Vec<_>>(), [0.5, 0.5]);
    assert_eq!(summary.later_epoch_seconds, Some(1.0));
    for (wrong, what) in [
        (r#"{"fits":1.5}"#, "reuse.fits"),
        (r#"{"views":0}"#, "reuse.views"),
        (r#"{"rows_kept_already":-1}"#, "reuse.rows_kept_already"),
    ] {
        let text = text.replace("\"reuse\":{}", &format!("\"reuse\":{wrong}"));
        let error = Simulation::parse(&text).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    let none = text.replace("\"epoch_iterations\":2", "\"epoch_iterations\":0");
    let error = Simulation::parse(&none).unwrap_err().to_string();
    assert!(error.contains("epoch_iterations"), "{error}");
}

/// Creates a job with 20 epochs of 50 iterations.
fn twenty(reuse: Option<Reuse>) -> Workload {
    Workload {
        batch: 64,
        iterations: 1000,
        epoch_iterations: 50,
        epoch_samples: 3200.0,
        link_bytes_per_second: 1e6,
        shared_cores: false,
        request_share: 1.0,
        reuse,
        cost: CostModel::default(),
    }
}

fn kept(rows_kept_already: f64, fits: f64, views: u32) -> Option<Reuse> {
    Some(Reuse {
        rows_kept_already,
        fits,
        views,
        bytes: 1_000_000,
    })
}

#[test]
fn fetched_and_cached_iterations_add_up() {
    // Arguments: the cached fraction, the maximum fraction and the number of views. The result is the number
    // of iterations that fetch.
    let table = [
        (None, 1000),
        (kept(0.0, 1.0, 1), 50),
        (kept(0.0, 1.0, 4), 200),
        (kept(0.0, 1.0, 50), 1000),
        (kept(1.0, 1.0, 1), 0),
        (kept(0.9, 1.0, 1), 5),
        // In later epochs half of the features are not cached.
        (kept(0.0, 0.5, 1), 50 + 950 / 2),
        (kept(0.0, 0.0, 1), 1000),
        // Cached features are not evicted if the limit is smaller.
        (kept(0.8, 0.5, 1), 10 + 190),
    ];
    for (reuse, fetched) in table {
        let workload = twenty(reuse);
        assert_eq!(workload.fetching_after(0), fetched, "{reuse:?}");
        assert_eq!(workload.kept_iterations(), 1000 - fetched, "{reuse:?}");
    }
}

#[test]
fn what_is_left_to_fetch_ends_with_the_first_passes() {
    let left = |reuse, done| twenty(reuse).fetching_after(done);
    assert_eq!([0, 1, 999, 2000].map(|done| left(None, done)), [1000, 999, 1, 0]);
    let all = kept(0.0, 1.0, 2);
    assert_eq!([0, 99, 100, 101].map(|done| left(all, done)), [100, 1, 0, 0]);
    let half = kept(0.0, 0.5, 1);
    assert_eq!(
        [49, 50, 52, 1000].map(|done| left(half, done)),
        [476, 475, 474, 0]
    );
}

#[test]
fn a_job_in_f16_keeps_twice_as_many_rows() {
    let stored = |reuse, encoding| twenty(reuse).with_encoding(encoding).store_bytes();
    assert_eq!(stored(None, Encoding::F32), 0);
    assert_eq!(stored(kept(0.0, 1.0, 1), Encoding::F32), 1_000_000);
    assert_eq!(stored(kept(0.0, 1.0, 1), Encoding::F16), 500_000);
    // A limit of 300 KB is reached with both encodings.
    assert_eq!(stored(kept(0.0, 0.3, 1), Encoding::F32), 300_000);
    assert_eq!(stored(kept(0.0, 0.3, 1), Encoding::F16), 300_000);
    let fetched = |encoding| {
        twenty(kept(0.0, 0.5, 1))
            .with_encoding(encoding)
            .fetching_after(0)
    };
    assert_eq!([Encoding::INT8, Encoding::F16].map(fetched), [525, 50]);
}
