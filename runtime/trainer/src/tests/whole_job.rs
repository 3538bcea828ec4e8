//! Jobs from the listing to the tuned model: computation, transfers, choices and events.

use super::computing_host::Storage;
use super::pipeline::png;
use crate::EncodingChoice;
use crate::{
    Event, Events, Job, JobResult, Measuring, Quality, Received, Scheduler, TrainedEpoch, TrainedStep,
    TrainerError, train,
};
use bytes::Bytes;
use frostline_client::{HostClient, Notice, SkippedObjects};
use frostline_fake_host::{FakeHost, Reply, extraction};
use frostline_graph::Model;
use frostline_graph::build::{batched, initializer, int, integers, ints, model, node};
use frostline_graph::onnx::GraphProto;
use frostline_tensor::Tensor;
use frostline_wire::Load;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub(super) const SIDE: usize = 8;
const CHANNELS: usize = 6;

/// conv -> relu -> conv -> relu -> pooled -> features -> 7 classes.
pub(crate) fn network() -> Model {
    let mut state = 1_u32;
    let mut random = |count: usize| -> Vec<f32> {
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(next).map(|value: f32| value * 0.3).collect()
    };
    let weights = [
        ("w1", vec![CHANNELS, 3, 3, 3]),
        ("w2", vec![CHANNELS, CHANNELS, 3, 3]),
        ("w3", vec![7, CHANNELS]),
        ("b3", vec![7]),
    ];
    let weights = weights.map(|(name, shape)| {
        let tensor = Tensor::f32(shape.clone(), random(shape.iter().product())).unwrap();
        initializer(name, &tensor)
    });
    let padded = || [ints("pads", &[1, 1, 1, 1]), ints("kernel_shape", &[3, 3])];
    let graph = GraphProto {
        name: "tiny".into(),
        node: vec![
            node("Conv", &["image", "w1"], &["c1"]).with(padded()),
            node("Relu", &["c1"], &["r1"]),
            node("Conv", &["r1", "w2"], &["c2"]).with(padded()),
            node("Relu", &["c2"], &["r2"]),
            node("GlobalAveragePool", &["r2"], &["pooled"]),
            node("Flatten", &["pooled"], &["features"]).with([int("axis", 1)]),
            node("Gemm", &["features", "w3", "b3"], &["scores"]).with([int("transB", 1)]),
        ],
        initializer: weights.to_vec(),
        input: vec![batched("image", &[3, SIDE, SIDE])],
        output: vec![batched("scores", &[7])],
        ..GraphProto::default()
    };
    Model::from_proto(model(17, graph)).unwrap()
}

/// [`network`] with a pad before a max pool, which ONNX Runtime merges into the pool. The pool ignores its own
/// padding instead of reading zeros, which changes the result for negative values.
pub(crate) fn wrong_when_optimized() -> Model {
    let mut graph = network().graph().clone();
    graph
        .initializer
        .push(integers("pads", &[0, 0, 1, 1, 0, 0, 1, 1]));
    let relu = graph.node.iter().position(|node| node.output == ["r2"]).unwrap();
    let pool = [ints("kernel_shape", &[3, 3]), ints("strides", &[1, 1])];
    let nodes = [
        node("Tanh", &["c2"], &["t2"]),
        node("Pad", &["t2", "pads"], &["p2"]),
        node("MaxPool", &["p2"], &["r2"]).with(pool),
    ];
    graph.node.splice(relu..=relu, nodes);
    network().with_graph(graph).unwrap()
}

/// Three classes with different colors.
pub(super) fn photos() -> Storage {
    let mut storage = Storage::default();
    let colors = [
        ("blue", [20, 40, 220]),
        ("green", [30, 210, 60]),
        ("red", [230, 30, 30]),
    ];
    for (class, color) in colors {
        for number in 0..9_u8 {
            let part = if number < 7 { "train" } else { "validation" };
            let shade = color.map(|value| value - number * 2);
            let key = format!("{part}/{class}/{number}.png");
            storage.objects.insert(key, png(shade, 12 + u32::from(number)));
        }
    }
    storage
}

pub(super) struct Ran {
    pub(super) outcome: Result<JobResult, TrainerError>,
    pub(super) events: Vec<Event>,
}

impl Ran {
    pub(super) fn losses(&self) -> Vec<f32> {
        let loss = |event: &Event| match event {
            Event::Step(TrainedStep { loss, .. }) => Some(*loss),
            _ => None,
        };
        self.events.iter().filter_map(loss).collect()
    }

    /// Number of bad samples after the last epoch.
    pub(super) fn skipped(&self) -> u64 {
        let skipped = |event: &Event| match event {
            Event::Epoch(TrainedEpoch { skipped, .. }) => Some(*skipped),
            _ => None,
        };
        self.events.iter().rev().find_map(skipped).unwrap()
    }

    /// Validation quality before the first step.
    pub(super) fn baseline(&self) -> Quality {
        let validation = |event: &Event| match event {
            Event::Baseline { validation, .. } => Some(*validation),
            _ => None,
        };
        self.events.iter().find_map(validation).unwrap()
    }
}

pub(super) fn job(split: &str, out: &Path) -> Job {
    let mut job = Job::new(
        network(),
        "Tiny net".to_owned(),
        "features".to_owned(),
        "photos".to_owned(),
        out.join("tuned.onnx"),
    );
    job.spec.split = split.parse().unwrap();
    job.cache = None;
    (
        job.spec.recipe.batch,
        job.spec.recipe.epochs,
        job.spec.request_samples,
        job.spec.threads,
    ) = (8, 3, 3, 1);
    job
}

pub(super) async fn run(host: &FakeHost, job: Job) -> Ran {
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let log = Arc::clone(&events);
    let told: Events = Arc::new(move |event| log.lock().unwrap().push(event));
    let client = HostClient::new(&host.url, None).unwrap();
    let outcome = train(job, client, told, CancellationToken::new()).await;
    let events = events.lock().unwrap().clone();
    Ran { outcome, events }
}

#[tokio::test(flavor = "multi_thread")]
async fn losses_do_not_depend_on_the_split() {
    let (host, storage) = photos().start().await;
    let out = TempDir::new().unwrap();
    let reference = run(&host, job("none", out.path())).await;
    assert!(storage.uploaded().is_empty(), "{:?}", storage.uploaded());
    let expected = reference.losses();
    // Three epochs with two full batches and a batch of five.
    assert_eq!(expected.len(), 9);
    assert!(expected.last() < expected.first());
    for split in ["input", "c1", "r2", "pooled", "features", "auto"] {
        let ran = run(&host, job(split, out.path())).await;
        let losses = ran.losses();
        let worst = differ(&losses, &expected);
        assert!(worst < 1e-5, "{split}: {worst}, {:?}", ran.outcome);
        assert_eq!(
            ran.outcome.unwrap().validation,
            reference.outcome.as_ref().unwrap().validation
        );
    }
    let uploaded = storage.uploaded();
    assert_eq!(uploaded.len(), 2, "{uploaded:?}");
    assert!(uploaded[1].starts_with("/v1/models/tiny-net-"), "{uploaded:?}");
}

/// Returns the largest difference between the losses of two runs. Infinite if the number of steps differs or
/// a loss is NaN.
pub(super) fn differ(left: &[f32], right: &[f32]) -> f32 {
    if left.len() != right.len() {
        return f32::INFINITY;
    }
    let apart = |(a, b): (&f32, &f32)| match (a - b).abs() {
        apart if apart.is_nan() => f32::INFINITY,
        apart => apart,
    };
    left.iter().zip(right).map(apart).fold(0.0, f32::max)
}

#[test]
fn nan_and_missing_losses_differ() {
    assert_eq!(differ(&[1.0, 2.0], &[1.5, 2.0]), 0.5);
    for (left, right) in [
        (&[1.0, f32::NAN][..], &[1.0, 2.0][..]),
        (&[f32::NAN, 2.0], &[f32::NAN, 2.0]),
        (&[1.0], &[1.0, 2.0]),
    ] {
        assert_eq!(differ(left, right), f32::INFINITY);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn narrow_encodings_train_alike_and_compression_changes_nothing() {
    let (host, _) = photos().start().await;
    let out = TempDir::new().unwrap();
    for split in ["input", "r1", "features"] {
        let losses = async |encoding: &str| {
            let mut job = job(split, out.path());
            job.spec.encoding = EncodingChoice::Fixed(encoding.parse().unwrap());
            let ran = run(&host, job).await;
            assert!(ran.outcome.is_ok(), "{split} as {encoding}: {:?}", ran.outcome);
            ran.losses()
        };
        let reference = losses("f32").await;
        assert_eq!(reference.len(), 9);
        assert_eq!(losses("f32+lz4").await, reference, "{split}");
        let halves = losses("f16").await;
        assert!(
            differ(&halves, &reference) < 1e-3,
            "{split}: {halves:?}, {reference:?}"
        );
        assert_eq!(losses("f16+zstd").await, halves, "{split}");
        let eight_bits = losses("int8").await;
        assert!(
            differ(&eight_bits, &reference) < 2e-2,
            "{split}: {eight_bits:?}, {reference:?}"
        );
        assert_eq!(losses("int8+lz4").await, eight_bits, "{split}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn received_bytes_add_up_to_what_the_host_sent() {
    let storage = Storage {
        probed: true,
        ..photos()
    };
    let (host, _) = storage.start().await;
    let out = TempDir::new().unwrap();
    let ran = run(&host, job("auto", out.path())).await;
    let outcome = ran.outcome.unwrap();
    let received = outcome.received;
    assert_eq!(received.total(), outcome.bytes_received);
    assert_eq!(received.total(), host.sent());
    let epochs = ran.events.iter().filter_map(|event| match event {
        Event::Epoch(TrainedEpoch {
            bytes_received,
            validation_bytes_received,
            ..
        }) => Some((
            bytes_received - validation_bytes_received,
            *validation_bytes_received,
        )),
        _ => None,
    });
    let (training, validation) = epochs.fold((0, 0), |sum, epoch| (sum.0 + epoch.0, sum.1 + epoch.1));
    assert!(training > 0 && validation > 0);
    let expected = Received {
        training,
        validation,
        baseline: validation / 3,
        ..received
    };
    assert_eq!(received, expected);
    // A probe receives more than 100 KB.
    assert!(
        received.measuring > 100_000 && received.listing > 1000,
        "{received:?}"
    );
    assert!(received.other < 5000 && received.interrupted == 0, "{received:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_not_images_are_left_out() {
    let mut storage = photos();
    for name in ["train/red/Thumbs.db", "validation/green/notes.txt"] {
        storage
            .objects
            .insert(name.to_owned(), Bytes::from_static(b"no image"));
    }
    let (host, _) = storage.start().await;
    let out = TempDir::new().unwrap();
    let ran = run(&host, job("features", out.path())).await;
    assert!(ran.outcome.is_ok(), "{:?}", ran.outcome);
    let left_out = SkippedObjects {
        objects: 2,
        first: vec![
            "train/red/Thumbs.db".to_owned(),
            "validation/green/notes.txt".to_owned(),
        ],
    };
    assert_eq!(ran.events[0], Event::LeftOut(left_out));
}

/// [`widened`] with 96 KB of weights in two wide layers.
pub(crate) fn heavy() -> Model {
    widened(2000)
}

/// The network with two additional layers before the features. The first has `outputs` outputs and is called
/// `wide`.
pub(super) fn widened(outputs: usize) -> Model {
    let mut proto = network().into_proto();
    let graph = proto.graph.as_mut().unwrap();
    (graph.node[5].name, graph.node[5].output[0]) = ("narrow".into(), "narrow".into());
    let wide = [
        node("MatMul", &["narrow", "widening"], &["wide"]),
        node("MatMul", &["wide", "narrowing"], &["features"]),
    ];
    graph.node.splice(6..6, wide);
    for (name, shape) in [
        ("widening", [CHANNELS, outputs]),
        ("narrowing", [outputs, CHANNELS]),
    ] {
        let values = (0..CHANNELS * outputs).map(|index| (index % 7) as f32 / 1000.0);
        let weight = Tensor::f32(shape, values.collect()).unwrap();
        graph.initializer.push(initializer(name, &weight));
    }
    Model::from_proto(proto).unwrap()
}

/// Runs a job with an open split on a slow link that needs 96 seconds for the frozen layers. Returns the
/// result and the bytes of uploaded models.
async fn planned(epochs: u32) -> (Ran, usize) {
    let storage = Storage {
        probed: true,
        ..photos()
    };
    let (host, storage) = storage.start().await;
    let out = TempDir::new().unwrap();
    let mut job = job("auto", out.path());
    job.model = heavy();
    (job.spec.link_bytes_per_second, job.spec.recipe.epochs) = (Some(1e3), epochs);
    // Learning rates must not depend on the number of epochs.
    (job.spec.recipe.lr_scheduler, job.spec.recipe.warmup_ratio) = (Scheduler::Constant, 0.0);
    let ran = run(&host, job).await;
    let uploads = storage.uploads.lock().unwrap();
    let models = uploads.iter().filter(|(path, _)| path.contains("/models/"));
    (ran, models.map(|(_, bytes)| bytes.len()).sum())
}

fn reason(ran: &Ran) -> String {
    let reason = |event: &Event| match event {
        Event::Split { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    ran.events.iter().find_map(reason).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_emits_all_events_in_order() {
    let (host, _) = photos().start().await;
    let out = TempDir::new().unwrap();
    let ran = run(&host, job("features", out.path())).await;
    let mut bytes = 0;
    let kinds: Vec<&str> = ran
        .events
        .iter()
        .map(|event| match event {
            Event::Dataset { .. } => "dataset",
            Event::Upload { .. } => "upload",
            Event::Pixels { .. } => "pixels",
            Event::Split { .. } => "split",
            Event::Baseline { .. } => "baseline",
            Event::Step { .. } => "step",
            Event::Epoch(TrainedEpoch { bytes_received, .. }) => {
                assert!(bytes == 0 || bytes == *bytes_received, "epochs differ in bytes");
                bytes = *bytes_received;
                "epoch"
            }
            Event::Done(JobResult { bytes_received, .. }) => {
                assert!(*bytes_received > 3 * bytes);
                "done"
            }
            Event::Notice(Notice::Uploading { .. }) | Event::Progress { .. } => "progress",
            Event::BadSample { .. }
            | Event::Notice(Notice::Retry { .. })
            | Event::Notice(Notice::UploadRetry { .. })
            | Event::Notice(Notice::Host { .. })
            | Event::Notice(Notice::NoKeys { .. } | Notice::OutwardLinks { .. } | Notice::Precision { .. })
            | Event::LeftOut(_)
            | Event::Measuring { .. }
            | Event::Warning { .. }
            | Event::Features { .. }
            | Event::Int8 { .. }
            | Event::Profile { .. }
            | Event::Unfreeze { .. }
            | Event::Run { .. }
            | Event::Checkpoint { .. }
            | Event::EarlyStop { .. }
            | Event::Test { .. }
            | Event::HostTime { .. }
            | Event::Replan { .. } => "unexpected",
        })
        .filter(|kind| *kind != "progress")
        .collect();
    let mut expected = vec!["dataset", "pixels", "upload", "upload", "split", "baseline"];
    expected.extend(["step", "step", "step", "epoch"].repeat(3));
    expected.push("done");
    assert_eq!(kinds, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_whole_grants_if_the_host_reports_them() {
    let out = TempDir::new().unwrap();
    let storage = photos();
    let asked: Arc<Mutex<Vec<usize>>> = Arc::default();
    let log = Arc::clone(&asked);
    let host = FakeHost::start(move |_, parts, body| match parts.uri.path() {
        "/v1/load" => Reply::json(&Load {
            grant: Some(2),
            ..Load::default()
        }),
        path => {
            if path == "/v1/extractions" {
                log.lock().unwrap().push(extraction(body).samples.len());
            }
            storage.answer(parts, body)
        }
    })
    .await;
    let job = job("features", out.path());
    assert_eq!((job.spec.recipe.batch, job.spec.request_samples), (8, 3));
    assert!(run(&host, job).await.outcome.is_ok());
    let asked = asked.lock().unwrap();
    // The last request of a batch can contain a single sample.
    assert!(asked.iter().all(|samples| *samples <= 2), "{asked:?}");
    assert!(asked.contains(&2), "{asked:?}");
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn layers_are_sent_only_for_a_job_that_takes_longer_than_sending_them() {
        // An epoch of 21 photos needs several seconds on this link, even if decoded.
        let (short, sent) = planned(2).await;
        assert!(sent < 5_000, "more than the first layer was sent: {sent}");
        let why = reason(&short);
        assert!(
            why.contains("the frozen layers") && why.contains("stay on the trainer"),
            "{why}"
        );
        let measured = short.events.iter().filter_map(|event| match event {
            Event::Measuring { what } => Some(*what),
            _ => None,
        });
        assert_eq!(
            measured.collect::<Vec<_>>(),
            [Measuring::Link, Measuring::Trainer]
        );
        let split = &short.outcome.as_ref().unwrap().split;
        assert!(!matches!(split, frostline_wire::Split::Cut(_)), "{split}");
        let (long, sent) = planned(100).await;
        assert!(sent > 96_000, "{sent}");
        assert!(
            !reason(&long).contains("stay on the trainer"),
            "{}",
            reason(&long)
        );
        // Losses are equal up to the end of the shorter job.
        let short = short.losses();
        let long = long.losses();
        let worst = differ(&short, &long[..short.len()]);
        assert!(!short.is_empty() && worst < 1e-5, "{worst}");
    }
}
