//! Jobs with no frozen layers, and the handling of BatchNormalization.

use super::whole_job::{differ, job, network, photos, run};
use crate::{Event, Job, Policy, TrainerError};
use frostline_graph::Model;
use frostline_graph::build::{initializer, node};
use frostline_job::BatchNorm;
use frostline_tensor::Tensor;
use std::path::Path;
use tempfile::TempDir;

/// A job with the network's input as the freeze cut.
fn unfrozen(split: &str, out: &Path) -> Job {
    let mut job = job(split, out);
    job.freeze = "image".to_owned();
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_network_is_trained_alike_on_objects_and_on_pixels() {
    let (host, storage) = photos().start().await;
    let out = TempDir::new().unwrap();
    let reference = run(&host, unfrozen("none", out.path())).await;
    assert!(reference.outcome.is_ok(), "{:?}", reference.outcome);
    let expected = reference.losses();
    assert_eq!(expected.len(), 9);
    assert!(storage.uploaded().is_empty(), "{:?}", storage.uploaded());
    for split in ["input", "auto", "freeze"] {
        let ran = run(&host, unfrozen(split, out.path())).await;
        assert!(ran.outcome.is_ok(), "{split}: {:?}", ran.outcome);
        let worst = differ(&ran.losses(), &expected);
        assert!(worst < 1e-5, "{split}: {worst}");
    }
    let frozen = run(&host, job("none", out.path())).await.losses();
    assert!(frozen.last() > expected.last(), "{frozen:?}, {expected:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_layer_is_trained_if_nothing_is_frozen() {
    let (host, _) = photos().start().await;
    let out = TempDir::new().unwrap();
    let job = unfrozen("none", out.path());
    let before = job.model.clone();
    assert!(run(&host, job).await.outcome.is_ok());
    let after = Model::read(out.path().join("tuned.onnx")).unwrap();
    let first = |model: &Model| model.initializers()["w1"].clone();
    assert_ne!(first(&before).raw_data, first(&after).raw_data);
}

/// A constant cannot be distinguished from a weight in an unusual place.
#[tokio::test(flavor = "multi_thread")]
async fn tensors_that_are_not_trained_are_named() {
    let mut proto = network().into_proto();
    let graph = proto.graph.as_mut().unwrap();
    let mut head = graph.node.pop().unwrap();
    graph.node.push(node("Max", &["features", "floor"], &["limited"]));
    "limited".clone_into(&mut head.input[0]);
    graph.node.push(head);
    let floor = Tensor::f32([6], (0..6).map(|value| value as f32 / 100.0).collect()).unwrap();
    graph.initializer.push(initializer("floor", &floor));
    let (host, _) = photos().start().await;
    let out = TempDir::new().unwrap();
    let mut job = unfrozen("none", out.path());
    job.model = Model::from_proto(proto).unwrap();
    let ran = run(&host, job).await;
    assert!(ran.outcome.is_ok(), "{:?}", ran.outcome.err());
    let named =
        |event: &Event| matches!(event, Event::Warning { message } if message.ends_with("constants: floor"));
    assert!(ran.events.iter().any(named), "{:?}", ran.events);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_split_exists_before_the_input() {
    let (host, _) = photos().start().await;
    let out = TempDir::new().unwrap();
    let refused = run(&host, unfrozen("r1", out.path())).await.outcome;
    assert!(
        matches!(&refused, Err(TrainerError::SplitAfterFreeze { allowed, .. }) if allowed.contains("input")),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_norm_updates_require_batch_norm_layers() {
    let (host, storage) = photos().start().await;
    let out = TempDir::new().unwrap();
    let mut job = job("features", out.path());
    job.spec.recipe.batch_norm = BatchNorm::Updated;
    job.spec.split = Policy::Auto;
    let refused = run(&host, job).await.outcome.unwrap_err().to_string();
    assert!(
        refused.contains("no BatchNormalization with statistics"),
        "{refused}"
    );
    assert!(storage.uploaded().is_empty(), "{:?}", storage.uploaded());
}
