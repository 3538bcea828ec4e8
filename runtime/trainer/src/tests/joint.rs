//! Jobs whose freeze cut contains several tensors.

use super::whole_job::{Ran, differ, job, network, photos, run};
use crate::TrainerError;
use frostline_fake_host::FakeHost;
use frostline_graph::Model;
use frostline_graph::build::{int, ints, node};
use frostline_job::PrefixPrecision;
use tempfile::TempDir;

/// Returns a network whose classifier also reads the first activations, with three convolutions.
fn with_skip() -> Model {
    let mut graph = network().graph().clone();
    let features = graph.node.split_off(4);
    graph.node.extend([
        node("Conv", &["r2", "w2"], &["c3"]).with([ints("pads", &[1; 4]), ints("kernel_shape", &[3; 2])]),
        node("Relu", &["c3"], &["r3"]),
        node("GlobalAveragePool", &["r1"], &["skipped"]),
        node("Flatten", &["skipped"], &["flat"]).with([int("axis", 1)]),
    ]);
    graph.node.extend(features);
    for node in &mut graph.node {
        match node.output[0].as_str() {
            "pooled" => node.input[0] = "r3".into(),
            "scores" => node.input[0] = "merged".into(),
            _ => {}
        }
    }
    let last = graph.node.len() - 1;
    graph
        .node
        .insert(last, node("Add", &["features", "flat"], &["merged"]));
    network().with_graph(graph).unwrap()
}

async fn ran(host: &FakeHost, split: &str, precision: PrefixPrecision) -> (Ran, Option<Model>) {
    let out = TempDir::new().unwrap();
    let mut job = job(split, out.path());
    (job.model, job.freeze) = with_skip().with_cut("r1,r3").unwrap();
    job.spec.prefix_precision = precision;
    let ran = run(host, job).await;
    (ran, Model::read(out.path().join("tuned.onnx")).ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn losses_do_not_depend_on_the_split_inside_the_frozen_layers() {
    let (host, storage) = photos().start().await;
    let (reference, tuned) = ran(&host, "freeze", PrefixPrecision::F32).await;
    let tuned = tuned.unwrap();
    let operators = |model: &Model| {
        let names = model.nodes().iter().map(|node| node.op_type.clone());
        names.collect::<Vec<String>>()
    };
    assert_eq!(operators(&tuned), operators(&with_skip()));
    for split in ["r1,r2", "c1", "none", "auto"] {
        let (other, model) = ran(&host, split, PrefixPrecision::F32).await;
        let worst = differ(&other.losses(), &reference.losses());
        assert!(worst < 1e-5, "{split}: {worst}, {:?}", other.outcome);
        let model = model.unwrap();
        assert_eq!(model.nodes(), tuned.nodes());
        let weights = [&model, &tuned].map(|model| model.weight("w3").unwrap().as_f32().unwrap().to_vec());
        assert!(differ(&weights[0], &weights[1]) < 1e-5, "{split}");
    }
    // The guest and the frozen layers.
    assert_eq!(storage.uploaded().len(), 2, "{:?}", storage.uploaded());
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_splits_and_int8_are_refused() {
    let (host, _) = photos().start().await;
    let (unknown, _) = ran(&host, "r1,c3", PrefixPrecision::F32).await;
    let error = unknown.outcome.unwrap_err().to_string();
    assert!(error.contains("r1,r2"), "{error}");
    let (int8, _) = ran(&host, "r1,r2", PrefixPrecision::Int8).await;
    let error = int8.outcome.unwrap_err();
    assert!(
        matches!(&error, TrainerError::Setting(setting) if setting.to_string().contains("f32 only")),
        "{error}"
    );
}
