//! Tests with an engine that advances the clock by known durations.

use crate::measure::measure_with_clock;
use crate::{Batches, MeasureOptions, MeasuredCut, MeasuredModel, Measurement, ProfileError, measure};
use frostline_tensor::{
    BoxFuture, GraphExecutor, Normalization, OpError, PixelSpec, Precision, Stage, Tensor,
};
use frostline_wire::{CutProfile, Linear};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Engine with configurable durations.
struct Engine {
    /// Seconds between consecutive cuts `a`, `b` and `c`, as fixed part and part per sample.
    segments: [(f64, f64); 3],
    /// Additional seconds per execution, such as for copying inputs and outputs.
    overhead: f64,
    /// Factor for executions that overlap with others.
    crowded: f64,
    /// Output of the failing stage, if any.
    broken: Option<&'static str>,
    /// Rows to which batches are padded.
    padded: usize,
    time: Arc<Mutex<Time>>,
    log: Arc<Mutex<Vec<(Stage, usize)>>>,
}

/// Clock state. Concurrent executions are counted once.
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

/// Row sizes of the cuts in elements.
const WIDTHS: [usize; 3] = [8, 4, 2];

fn engine() -> Engine {
    Engine {
        segments: [(0.010, 0.002), (0.020, 0.001), (0.0, 0.004)],
        overhead: 0.0,
        crowded: 1.0,
        broken: None,
        padded: 1,
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
        let from = place(&stage.from);
        let to = place(&stage.to);
        assert!(stage.model == "sha" && from < to);
        let segments = &self.segments[from..to];
        let seconds: f64 = segments
            .iter()
            .map(|(fixed, slope)| fixed + slope * rows.max(self.padded) as f64)
            .sum();
        let seconds = seconds + self.overhead;
        let crowded = self.crowded;
        let time = Arc::clone(&self.time);
        time.lock().unwrap().running += 1;
        let broken = self.broken == Some(stage.to.as_str());
        let width = WIDTHS[to - 1];
        self.log.lock().unwrap().push((stage.clone(), rows));
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
        pixels: None,
        precision: Precision::Full,
        cuts: cuts
            .iter()
            .map(|cut| MeasuredCut {
                name: (*cut).to_owned(),
                tensors: Vec::new(),
                memory,
            })
            .collect(),
    }
}

fn pixels(rows: usize) -> Tensor {
    Tensor::f32([rows, 3], vec![0.5; rows * 3]).unwrap()
}

async fn profile(engine: Engine, rules: MeasureOptions) -> Result<Measurement, ProfileError> {
    let time = Arc::clone(&engine.time);
    let clock = move || Duration::from_secs_f64(time.lock().unwrap().now);
    let executor: Arc<dyn GraphExecutor> = Arc::new(engine);
    measure_with_clock(&clock, &subject(&CUTS), &pixels(5), &executor, &rules).await
}

#[track_caller]
fn assert_compute(cut: &CutProfile, fixed: f64, per_sample: f64) {
    let Linear {
        fixed: actual,
        per_sample: slope,
    } = cut.compute;
    let at = |fixed: f64, slope: f64| fixed + slope * 16.0;
    let actual = at(actual, slope);
    let expected = at(fixed, per_sample);
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
    let measured = profile(engine(), MeasureOptions::default()).await.unwrap();
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
        // With a single lane, busy and idle durations are equal.
        let alone = cut.compute.at(16.0) / 16.0;
        assert!((cut.busy_seconds_per_sample - alone).abs() < 1e-6);
    }
}

#[tokio::test]
async fn segment_overhead_is_subtracted() {
    let slow_ends = Engine {
        overhead: 0.050,
        ..engine()
    };
    let measured = profile(slow_ends, MeasureOptions::default()).await.unwrap();
    // The prefix time contains the overhead of a single execution.
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
    let rules = MeasureOptions {
        lanes: 2,
        ..MeasureOptions::default()
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
    let measured = profile(slow, MeasureOptions::default()).await.unwrap();
    assert_eq!(measured.batches, Batches { small: 1, large: 8 });
    assert_compute(&measured.cuts[2], 0.0, 0.5);
    let runs = |to: &str| {
        let log = log.lock().unwrap();
        let of = |(stage, rows): &&(Stage, usize)| stage.from != "pixels" && stage.to == to && *rows == 8;
        log.iter().filter(of).count()
    };
    // The warm-up is followed by three repetitions. After the time limit, there are only two.
    assert_eq!((runs("b"), runs("c")), (4, 3));
}

#[tokio::test]
async fn a_padded_device_is_measured_with_its_rows_however_slow() {
    let slow = Engine {
        segments: [(0.0, 0.02), (0.0, 0.02), (0.0, 0.01)],
        padded: 32,
        ..engine()
    };
    let rules = MeasureOptions {
        batch: 32,
        padded: true,
        ..MeasureOptions::default()
    };
    let measured = profile(slow, rules).await.unwrap();
    assert_eq!(measured.batches, Batches { small: 4, large: 32 });
    let last = &measured.cuts[2];
    assert!((last.busy_seconds_per_sample - 0.05).abs() < 1e-6, "{last:?}");
    assert!((last.compute.at(1.0) - 1.6).abs() < 1e-6, "{last:?}");
}

#[tokio::test]
async fn only_stages_from_the_input_normalize() {
    let normalization = Normalization::from_spec(&PixelSpec::imagenet(8, 8));
    let engine = engine();
    let log = Arc::clone(&engine.log);
    let subject = MeasuredModel {
        pixels: Some(normalization),
        ..subject(&CUTS)
    };
    let executor: Arc<dyn GraphExecutor> = Arc::new(engine);
    measure(&subject, &pixels(5), &executor, &MeasureOptions::default())
        .await
        .unwrap();
    let log = log.lock().unwrap();
    let expected = |stage: &Stage| (stage.from == "pixels").then_some(normalization);
    assert!(log.iter().all(|(stage, _)| stage.pixels == expected(stage)));
}

#[tokio::test]
async fn a_stage_that_fails_is_named() {
    let broken = Engine {
        broken: Some("b"),
        ..engine()
    };
    let error = profile(broken, MeasureOptions::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot measure 'a' to 'b': out of order");
}

/// Engine that never responds.
struct Stuck;

impl GraphExecutor for Stuck {
    fn submit(&self, _: &Stage, _: Tensor) -> BoxFuture<Result<Tensor, OpError>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn an_engine_that_does_not_answer_is_an_error_at_the_deadline() {
    let executor: Arc<dyn GraphExecutor> = Arc::new(Stuck);
    let rules = MeasureOptions {
        deadline: Duration::from_millis(20),
        ..MeasureOptions::default()
    };
    let error = measure(&subject(&CUTS), &pixels(1), &executor, &rules).await;
    assert!(matches!(error, Err(ProfileError::Deadline { .. })));
}

#[tokio::test]
async fn nothing_to_measure_is_refused() {
    let executor: Arc<dyn GraphExecutor> = Arc::new(engine());
    let rules = MeasureOptions::default();
    let no_cuts = measure(&subject(&[]), &pixels(1), &executor, &rules).await;
    assert!(matches!(no_cuts, Err(ProfileError::Missing { what: "cut" })));
    let no_samples = measure(&subject(&CUTS), &pixels(0), &executor, &rules).await;
    assert!(matches!(
        no_samples,
        Err(ProfileError::Missing { what: "sample" })
    ));
}
