//! Jobs with frozen layers in int8.

use super::resuming::model;
use super::whole_job::{Ran, differ, job, photos, run};
use crate::{Event, Job, RunFolder, TrainerError};
use frostline_graph::Model;
use frostline_graph::onnx::data_type;
use frostline_job::{ExportPrefix, PrefixPrecision};
use std::path::Path;
use tempfile::TempDir;

fn int8_job(split: &str, out: &Path) -> Job {
    let mut job = job(split, out);
    job.spec.prefix_precision = PrefixPrecision::Int8;
    // With random weights and three colors, activations are too similar for the precision check.
    job.spec.allow_imprecise = true;
    job
}

/// Returns whether int8 was used, and the number of quantized layers.
fn int8_event(ran: &Ran) -> Option<(bool, usize)> {
    ran.events.iter().find_map(|event| match event {
        Event::Int8 {
            used,
            quantized_layers,
            ..
        } => Some((*used, *quantized_layers)),
        _ => None,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn int8_losses_do_not_depend_on_the_split() {
    let (host, storage) = photos().start().await;
    let out = TempDir::new().unwrap();
    let exact = run(&host, job("none", out.path())).await;
    assert_eq!(int8_event(&exact), None);
    let reference = run(&host, int8_job("none", out.path())).await;
    let expected = reference.losses();
    assert_eq!(int8_event(&reference), Some((true, 2)), "{:?}", reference.outcome);
    assert_eq!(expected.len(), 9);
    let apart = differ(&expected, &exact.losses());
    assert!(apart > 0.0 && apart < 0.05, "{apart}");
    for split in ["input", "r1", "r2", "pooled", "features", "auto"] {
        let ran = run(&host, int8_job(split, out.path())).await;
        let worst = differ(&ran.losses(), &expected);
        assert!(worst < 1e-5, "{split}: {worst}, {:?}", ran.outcome);
    }
    // The guest and a single network with frozen layers in int8.
    assert_eq!(storage.uploaded().len(), 2, "{:?}", storage.uploaded());
    let inside = run(&host, int8_job("c1", out.path())).await.outcome;
    assert!(inside.unwrap_err().to_string().contains("c1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_written_model_is_in_f32_unless_int8_is_wanted() {
    let (host, _) = photos().start().await;
    let tuned = async |export: ExportPrefix| {
        let out = TempDir::new().unwrap();
        let mut job = int8_job("features", out.path());
        job.spec.export_prefix = export;
        let ran = run(&host, job).await;
        assert!(ran.outcome.is_ok(), "{:?}", ran.outcome);
        Model::read(out.path().join("tuned.onnx")).unwrap()
    };
    let exact = tuned(ExportPrefix::F32).await;
    let small = tuned(ExportPrefix::Int8).await;
    let bytes = |model: &Model| {
        let weights = model.graph().initializer.iter();
        weights
            .filter(|weight| weight.data_type == data_type::INT8)
            .count()
    };
    assert_eq!(bytes(&exact), 0);
    assert!(bytes(&small) > 0);
    for model in [exact, small] {
        assert!(model.metadata("frostline.int8").is_some());
        model.network().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_run_computes_with_the_same_integers() {
    let (host, _) = photos().start().await;
    let folder = TempDir::new().unwrap();
    let kept = |run: RunFolder| {
        let mut job = int8_job("features", folder.path());
        job.spec.out = None;
        job.run = Some(run);
        job
    };
    let path = folder.path().join("run");
    run(&host, kept(RunFolder::new(&path))).await.outcome.unwrap();
    let record = path.join("int8.json");
    let before = model(&path);
    // Use ranges that calibration with these images would not find.
    let text = std::fs::read_to_string(&record).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["ranges"]["r2"]["greatest"] = 123.0.into();
    std::fs::write(&record, json.to_string()).unwrap();
    let resumed = run(&host, kept(RunFolder::resumed(&path))).await;
    assert_eq!(int8_event(&resumed), Some((true, 2)), "{:?}", resumed.outcome);
    let again: serde_json::Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    assert_eq!(again["ranges"], json["ranges"]);
    // The run was already finished, so the model does not change.
    assert_eq!(model(&path), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_cannot_use_int8_says_why() {
    let (host, _) = photos().start().await;
    let out = TempDir::new().unwrap();
    let refused = async |change: fn(&mut Job)| {
        let mut job = int8_job("none", out.path());
        change(&mut job);
        run(&host, job).await.outcome.unwrap_err().to_string()
    };
    let frozen = refused(|job| job.freeze = "image".to_owned()).await;
    assert!(frozen.contains("requires frozen layers"), "{frozen}");
    let export = refused(|job| {
        job.spec.prefix_precision = PrefixPrecision::F32;
        job.spec.export_prefix = ExportPrefix::Int8;
    });
    assert!(export.await.contains("set prefix_precision to int8"));
    let mut auto = int8_job("none", out.path());
    (auto.freeze, auto.spec.prefix_precision) = ("image".to_owned(), PrefixPrecision::Auto);
    let ran = run(&host, auto).await;
    assert_eq!((int8_event(&ran), ran.outcome.is_ok()), (None, true));
}

#[test]
fn an_imprecise_network_is_refused_with_the_worst_layer() {
    let error = TrainerError::Imprecise {
        cosine: 0.951,
        least: 0.99,
        worst: "layer2".to_owned(),
    };
    let text = error.to_string();
    for part in [
        "0.9510",
        "0.99",
        "'layer2'",
        "Use f32",
        "accept the lower precision",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
