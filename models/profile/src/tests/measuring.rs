//! Measuring against an engine whose times are known: it sets the clock on itself.

use crate::measure::measure_by;
use crate::{Batches, MeasuredModel, Measurement, ProfileError, Rules, measure};
use frostline_tensor::{BoxFuture, GraphExecutor, OpError, Precision, Stage, Tensor};
use frostline_wire::{CutProfile, Linear};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Seconds of an engine's segments, and what it adds.
struct Engine {
    /// Seconds of each of the cuts `a`, `b`, `c` behind the one before: fixed and per sample.
    segments: [(f64, f64); 3],
    /// Seconds every run takes beside, such as copying its ends.
    overhead: f64,
    /// How much longer a run takes while another one runs.
    crowded: f64,
    /// The end of a stage that fails.
    broken: Option<&'static str>,
    time: Arc<Mutex<Time>>,
    log: Arc<Mutex<Vec<(String, String, usize)>>>,
}

/// Runs that are submitted together take the time of one.
#[derive(Default)]
struct Time {
    now: f64,
    running: usize,
    passed: bool,
}

impl Time {
    fn pass(&mut self, seconds: f64, crowded: f64) {
        if !self.passed {
            self.now += seconds * if self.running > 1 { crowded } else { 1.0 };
            self.passed = true;
        }
        self.running -= 1;
        if self.running == 0 {
            self.passed = false;
        }
    }
}

const CUTS: [&str; 3] = ["a", "b", "c"];

/// Elements of a row at each cut.
const WIDTHS: [usize; 3] = [8, 4, 2];

fn engine() -> Engine {
    Engine {
        segments: [(0.010, 0.002), (0.020, 0.001), (0.0, 0.004)],
        overhead: 0.0,
        crowded: 1.0,
        broken: None,
        time: Arc::default(),
        log: Arc::default(),
    }
}

fn place(name: &str) -> usize {
    CUTS.iter()
        .position(|cut| *cut == name)
        .map_or(0, |index| index + 1)
}

impl GraphExecutor for Engine {
    fn submit(&self, stage: &Stage, batch: Tensor) -> BoxFuture<Result<Tensor, OpError>> {
        let rows = batch.rows().unwrap();
        let (from, to) = (place(&stage.from), place(&stage.to));
        assert!(stage.model == "sha" && from < to);
        let segments = &self.segments[from..to];
        let seconds: f64 = segments
            .iter()
            .map(|(fixed, slope)| fixed + slope * rows as f64)
            .sum();
        let seconds = seconds + self.overhead;
        let (crowded, time) = (self.crowded, Arc::clone(&self.time));
        time.lock().unwrap().running += 1;
        let broken = self.broken == Some(stage.to.as_str());
        let width = WIDTHS[to - 1];
        self.log
            .lock()
            .unwrap()
            .push((stage.from.clone(), stage.to.clone(), rows));
        Box::pin(async move {
            tokio::task::yield_now().await;
            time.lock().unwrap().pass(seconds, crowded);
            if broken {
                return Err(OpError::runtime("out of order"));
            }
            Ok(Tensor::f32([rows, width], vec![1.0; rows * width]).unwrap())
        })
    }
}

fn subject(cuts: &[&str]) -> MeasuredModel {
    let memory = Linear {
        fixed: 100.0,
        per_sample: 10.0,
    };
    MeasuredModel {
        model: "sha".to_owned(),
        input: "pixels".to_owned(),
        precision: Precision::Full,
        cuts: cuts.iter().map(|cut| ((*cut).to_owned(), memory)).collect(),
    }
}

fn pixels(rows: usize) -> Tensor {
    Tensor::f32([rows, 3], vec![0.5; rows * 3]).unwrap()
}

async fn profile(engine: Engine, rules: Rules) -> Result<Measurement, ProfileError> {
    let time = Arc::clone(&engine.time);
    let clock = move || Duration::from_secs_f64(time.lock().unwrap().now);
    let executor: Arc<dyn GraphExecutor> = Arc::new(engine);
    measure_by(&clock, &subject(&CUTS), &pixels(5), &executor, &rules).await
}

#[track_caller]
fn assert_compute(cut: &CutProfile, fixed: f64, per_sample: f64) {
    let Linear {
        fixed: actual,
        per_sample: slope,
    } = cut.compute;
    let at = |fixed: f64, slope: f64| fixed + slope * 16.0;
    let (actual, expected) = (at(actual, slope), at(fixed, per_sample));
    assert!(
        (actual - expected).abs() <= 1e-6,
        "{}: {actual} instead of {expected}",
        cut.name
    );
    assert!(
        (slope - per_sample).abs() <= 1e-6,
        "{}: {slope} a sample",
        cut.name
    );
}

#[tokio::test]
async fn fixed_and_slope_of_every_prefix_come_back() {
    let measured = profile(engine(), Rules::default()).await.unwrap();
    assert_eq!(measured.batches, Batches { small: 2, large: 16 });
    let names: Vec<&str> = measured.cuts.iter().map(|cut| cut.name.as_str()).collect();
    assert_eq!(names, CUTS);
    assert_compute(&measured.cuts[0], 0.010, 0.002);
    assert_compute(&measured.cuts[1], 0.030, 0.003);
    assert_compute(&measured.cuts[2], 0.030, 0.007);
    for (cut, width) in measured.cuts.iter().zip(WIDTHS) {
        assert_eq!(cut.bytes_per_sample, 4 * width as u64);
        assert!(cut.encoded["f32"].bytes_per_sample >= 4.0 * width as f64);
        assert_eq!(cut.memory.at(2.0), 120.0);
        // One lane that is busy is one that is alone.
        let alone = cut.compute.at(16.0) / 16.0;
        assert!((cut.busy_seconds_per_sample - alone).abs() < 1e-6);
    }
}

#[tokio::test]
async fn what_segments_add_is_taken_off_again() {
    let slow_ends = Engine {
        overhead: 0.050,
        ..engine()
    };
    let measured = profile(slow_ends, Rules::default()).await.unwrap();
    // The whole runs once, so it carries the overhead of one run, not of three.
    let last = measured.cuts[2].compute.at(16.0);
    assert!((last - (0.050 + 0.030 + 16.0 * 0.007)).abs() < 1e-6, "{last}");
    assert!(
        measured
            .cuts
            .windows(2)
            .all(|pair| pair[0].compute.at(16.0) < pair[1].compute.at(16.0))
    );
}

#[tokio::test]
async fn all_lanes_busy_is_measured_with_all_lanes_busy() {
    let crowded = Engine {
        crowded: 1.5,
        ..engine()
    };
    let rules = Rules {
        lanes: 2,
        ..Rules::default()
    };
    let measured = profile(crowded, rules).await.unwrap();
    for cut in &measured.cuts {
        let expected = cut.compute.at(16.0) * 1.5 / 32.0;
        let actual = cut.busy_seconds_per_sample;
        assert!((actual - expected).abs() < 1e-6, "{actual} instead of {expected}");
    }
}

#[tokio::test]
async fn slow_networks_are_measured_with_smaller_batches_and_fewer_times() {
    let slow = Engine {
        segments: [(0.0, 0.2), (0.0, 0.2), (0.0, 0.1)],
        ..engine()
    };
    let log = Arc::clone(&slow.log);
    let measured = profile(slow, Rules::default()).await.unwrap();
    assert_eq!(measured.batches, Batches { small: 1, large: 8 });
    assert_compute(&measured.cuts[2], 0.0, 0.5);
    let runs = |to: &str| {
        let log = log.lock().unwrap();
        let of = |(from, end, rows): &&(String, String, usize)| from != "pixels" && end == to && *rows == 8;
        log.iter().filter(of).count()
    };
    // One that does not count, then three while there is time, two later.
    assert_eq!((runs("b"), runs("c")), (4, 3));
}

#[tokio::test]
async fn a_stage_that_fails_is_named() {
    let broken = Engine {
        broken: Some("b"),
        ..engine()
    };
    let error = profile(broken, Rules::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot measure 'a' to 'b': out of order");
}

/// An engine that never answers.
struct Stuck;

impl GraphExecutor for Stuck {
    fn submit(&self, _: &Stage, _: Tensor) -> BoxFuture<Result<Tensor, OpError>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn an_engine_that_does_not_answer_is_an_error_at_the_deadline() {
    let executor: Arc<dyn GraphExecutor> = Arc::new(Stuck);
    let rules = Rules {
        deadline: Duration::from_millis(20),
        ..Rules::default()
    };
    let error = measure(&subject(&CUTS), &pixels(1), &executor, &rules).await;
    assert!(matches!(error, Err(ProfileError::Deadline { .. })));
}

#[tokio::test]
async fn nothing_to_measure_is_refused() {
    let executor: Arc<dyn GraphExecutor> = Arc::new(engine());
    let rules = Rules::default();
    let no_cuts = measure(&subject(&[]), &pixels(1), &executor, &rules).await;
    assert!(matches!(no_cuts, Err(ProfileError::Nothing { what: "cut" })));
    let no_samples = measure(&subject(&CUTS), &pixels(0), &executor, &rules).await;
    assert!(matches!(
        no_samples,
        Err(ProfileError::Nothing { what: "sample" })
    ));
}
