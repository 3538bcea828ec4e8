//! Jobs that end early because of bad data, invalid settings, or cancellation.

use super::computing_host::Storage;
use super::whole_job::{differ, job, photos, run};
use crate::EncodingChoice;
use crate::{
    Event, Events, Job, Keep, LearningRates, OnBadSample, Recipe, Scheduler, TrainedStep, TrainerError, train,
};
use bytes::Bytes;
use frostline_client::HostClient;
use frostline_tensor::DType;
use frostline_wire::{Activation, ServedCut, TensorInfo};
use std::sync::Arc;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_photo_fails_the_job_or_shortens_its_batch() {
    let mut storage = photos();
    storage
        .objects
        .insert("train/red/0.png".to_owned(), Bytes::from_static(b"no image"));
    let (host, _) = storage.start().await;
    let out = TempDir::new().unwrap();
    let mut losses = Vec::new();
    for split in ["none", "features"] {
        let failed = run(&host, job(split, out.path())).await.outcome.unwrap_err();
        assert!(
            matches!(failed.cause(), TrainerError::BadSample { key, .. } if key == "train/red/0.png"),
            "{failed}"
        );
        // A job that fails after the first step writes its weights.
        let written = std::fs::read_dir(out.path()).unwrap().count();
        assert_eq!(
            written == 1,
            matches!(failed, TrainerError::Failed { .. }),
            "{failed}"
        );
        let mut skipping = job(split, out.path());
        skipping.spec.on_bad_sample = OnBadSample::Skip;
        let ran = run(&host, skipping).await;
        losses.push(ran.losses());
        assert_eq!(ran.skipped(), 1);
        ran.outcome.unwrap();
        std::fs::remove_file(out.path().join("tuned.onnx")).unwrap();
    }
    assert!(differ(&losses[0], &losses[1]) < 1e-5, "{losses:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_diverging_job_ends_and_names_the_step() {
    let (host, _) = photos().start().await;
    let out = TempDir::new().unwrap();
    let mut wild = job("features", out.path());
    wild.spec.recipe.lr = Some(LearningRates::One(1e9));
    let error = run(&host, wild).await.outcome.unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(
            error,
            TrainerError::Diverged {
                step: 1..=9,
                kept: None,
                ..
            }
        ),
        "{text}"
    );
    assert!(
        text.contains("1000000000") && text.contains("no model was written"),
        "{text}"
    );
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_diverges_late_keeps_its_best_model() {
    let (host, _) = photos().start().await;
    let out = TempDir::new().unwrap();
    let mut late = job("features", out.path());
    // Weight decay subtracts three times the weight per step. Weights double and change sign regardless of
    // the data.
    late.spec.recipe = Recipe {
        lr: Some(LearningRates::One(0.01)),
        lr_scheduler: Scheduler::Constant,
        warmup_ratio: 0.0,
        momentum: 0.0,
        weight_decay: Some(300.0),
        epochs: 40,
        ..late.spec.recipe
    };
    let ran = run(&host, late).await;
    let error = ran.outcome.unwrap_err();
    let TrainerError::Diverged {
        step,
        kept: Some(kept),
        ..
    } = &error
    else {
        panic!("{error}");
    };
    assert!(*step > 3 && kept.text.contains("tuned.onnx"), "{error}");
    assert!(frostline_graph::Model::read(out.path().join("tuned.onnx")).is_ok());
    assert!(!ran.events.iter().any(|event| matches!(event, Event::Done { .. })));
}

/// Returns the error of a job with valid data.
async fn refused(storage: Storage, change: impl FnOnce(&mut Job)) -> String {
    let (host, _) = storage.start().await;
    let out = TempDir::new().unwrap();
    let mut job = job("auto", out.path());
    change(&mut job);
    // Boxed, because a test with several of these would overflow the stack.
    let error = Box::pin(run(&host, job)).await.outcome.unwrap_err();
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
    error.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_settings_are_refused_before_training() {
    let texts = [
        refused(photos(), |job| job.freeze = "feature".to_owned()).await,
        refused(photos(), |job| job.freeze = "scores".to_owned()).await,
        refused(photos(), |job| {
            job.freeze = "c2".to_owned();
            job.spec.split = "pooled".parse().unwrap();
        })
        .await,
        refused(photos(), |job| {
            job.spec.recipe.lr = Some(LearningRates::One(f64::NAN))
        })
        .await,
        refused(photos(), |job| {
            job.spec.out = Some("/nonexistent/tuned.onnx".into())
        })
        .await,
        refused(photos(), |job| {
            job.spec.encoding = EncodingChoice::Fixed(frostline_wire::Encoding::U8);
            job.spec.split = "pooled".parse().unwrap();
        })
        .await,
        refused(photos(), |job| {
            job.spec.encoding = EncodingChoice::Fixed(frostline_wire::Encoding::F16);
            job.spec.split = "none".parse().unwrap();
        })
        .await,
    ];
    let expected = [
        "features",
        "head",
        "at or before",
        "learning rate",
        "/nonexistent",
        "u8 is for pixels",
        "objects are sent unchanged",
    ];
    assert_eq!(texts.len(), expected.len());
    for (text, expected) in texts.iter().zip(expected) {
        assert!(text.contains(expected) && !text.contains('\n'), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_rules_out_what_it_does_not_serve() {
    let only = |activation| Storage {
        serves: vec![ServedCut {
            name: "features".to_owned(),
            activation,
        }],
        ..photos()
    };
    let text = refused(only(Activation::Faithful), |job| {
        job.spec.split = "r1".parse().unwrap()
    })
    .await;
    assert!(
        text.contains("rules out the split 'r1'") && text.contains("features"),
        "{text}"
    );
    let custom = Activation::Custom(vec![TensorInfo {
        name: "custom".to_owned(),
        dtype: DType::F32,
        shape: vec![9],
    }]);
    let text = refused(only(custom), |job| job.spec.split = "features".parse().unwrap()).await;
    assert!(text.contains("[9]"), "{text}");
    let own = Storage {
        own_pixels: true,
        ..only(Activation::Faithful)
    };
    let text = refused(own, |job| job.spec.split = "input".parse().unwrap()).await;
    assert!(text.contains("the guest computes the network input"), "{text}");
}

/// Runs a long job until the event `stops` cancels it. Returns the error and the output folder.
async fn cancelled(stops: fn(&Event) -> bool, change: fn(&mut Job)) -> (TrainerError, TempDir) {
    let (host, _) = photos().start().await;
    let out = TempDir::new().unwrap();
    let mut endless = job("features", out.path());
    endless.spec.recipe.epochs = 1_000_000;
    change(&mut endless);
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let told: Events = Arc::new(move |event| {
        if stops(&event) {
            stop.cancel();
        }
    });
    let client = HostClient::new(&host.url, None).unwrap();
    (train(endless, client, told, cancel).await.unwrap_err(), out)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_cancelled_before_its_first_step_leaves_nothing() {
    for stops in [
        |event: &Event| matches!(event, Event::Dataset { .. }),
        |event: &Event| matches!(event, Event::Baseline { .. }),
    ] {
        let (error, out) = cancelled(stops, |_| ()).await;
        assert!(matches!(error, TrainerError::Cancelled), "{error}");
        assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_cancelled_after_a_step_writes_a_model_and_names_it() {
    let first = |event: &Event| matches!(event, Event::Step(TrainedStep { step: 2, .. }));
    let later = |event: &Event| matches!(event, Event::Step(TrainedStep { step: 8, .. }));
    let last = |job: &mut Job| job.spec.keep = Keep::Last;
    for (stops, change, at, words) in [
        (
            first as fn(&Event) -> bool,
            (|_| ()) as fn(&mut Job),
            (1, 2),
            "from mid-epoch",
        ),
        (later, |_| (), (3, 8), "the best so far"),
        (later, last, (3, 8), "from mid-epoch"),
    ] {
        let (error, out) = cancelled(stops, change).await;
        let text = error.to_string();
        let TrainerError::Stopped { epoch, step, kept } = error else {
            panic!("{text}");
        };
        assert_eq!((epoch, step), at);
        assert!(
            kept.text.contains(words) && kept.text.contains("tuned.onnx"),
            "{text}"
        );
        let model = frostline_graph::Model::read(out.path().join("tuned.onnx")).unwrap();
        assert_ne!(
            model.weight("w3").unwrap().shape().dims(),
            [7, 6],
            "the head is not replaced"
        );
    }
}
