//! Jobs with recipes other than the default.

use super::computing_host::Storage;
use super::evaluation::measure;
use super::whole_job::{differ, job, photos, run};
use crate::{ClassWeights, LearningRates, OnBadSample, OptimizerName, Recipe, Sampling, Scheduler};
use bytes::Bytes;
use frostline_fake_host::FakeHost;
use frostline_graph::Model;
use tempfile::TempDir;

async fn losses(host: &FakeHost, recipe: Recipe, freeze: &str) -> Vec<f32> {
    let out = TempDir::new().unwrap();
    let mut wanted = job(freeze, out.path());
    freeze.clone_into(&mut wanted.freeze);
    wanted.spec.recipe = recipe;
    let ran = run(host, wanted).await;
    ran.outcome.as_ref().unwrap();
    ran.losses()
}

fn recipe() -> Recipe {
    Recipe {
        batch: 8,
        epochs: 3,
        ..Recipe::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recipe_with_everything_trains_and_repeats() {
    let (host, _) = photos().start().await;
    let all = || Recipe {
        gradient_accumulation_steps: 2,
        optimizer: OptimizerName::Adamw,
        lr: Some("head=0.01,rest=0.001".parse().unwrap()),
        lr_scheduler: Scheduler::OneCycle,
        warmup_ratio: 0.3,
        clip_grad_norm: Some(1.0),
        model_ema_decay: Some(0.9),
        label_smoothing: 0.1,
        dropout: 0.2,
        class_weights: ClassWeights::Balanced,
        sampling: Sampling::Balanced,
        mixup_alpha: 0.2,
        cutmix_alpha: 1.0,
        epochs: 20,
        ..recipe()
    };
    let first = losses(&host, all(), "r1").await;
    assert_eq!(first, losses(&host, all(), "r1").await);
    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
    let begin = mean(&first[..6]);
    let end = mean(&first[first.len() - 6..]);
    assert!(end < begin, "{begin} -> {end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn accumulated_small_batches_equal_a_large_batch() {
    let (host, _) = photos().start().await;
    let together = Recipe {
        batch: 3,
        gradient_accumulation_steps: 7,
        ..recipe()
    };
    let large = Recipe {
        batch: 21,
        ..recipe()
    };
    let small = losses(&host, together, "features").await;
    let large = losses(&host, large, "features").await;
    assert_eq!((small.len(), large.len()), (21, 3));
    for (group, large) in small.chunks(7).zip(large) {
        let mean = group.iter().sum::<f32>() / 7.0;
        assert!((mean - large).abs() < 1e-5, "{mean} instead of {large}");
    }
}

/// Two training samples, including a bad one.
fn half_bad() -> Storage {
    let mut storage = photos();
    let wanted = ["train/red/0.png", "train/blue/0.png", "validation/"];
    storage
        .objects
        .retain(|key, _| !key.contains("green") && wanted.iter().any(|wanted| key.starts_with(wanted)));
    storage
        .objects
        .insert("train/blue/0.png".to_owned(), Bytes::from_static(b"no image"));
    storage
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_bad_samples_does_not_affect_the_update() {
    let (host, _) = half_bad().start().await;
    let losses = async |batch, gradient_accumulation_steps| {
        let out = TempDir::new().unwrap();
        let mut wanted = job("features", out.path());
        wanted.spec.on_bad_sample = OnBadSample::Skip;
        wanted.spec.recipe = Recipe {
            batch,
            gradient_accumulation_steps,
            epochs: 12,
            lr: Some(LearningRates::One(0.1)),
            ..recipe()
        };
        let ran = run(&host, wanted).await;
        ran.outcome.as_ref().unwrap();
        assert_eq!(ran.skipped(), 1);
        ran.losses()
    };
    // The position of the bad sample changes between epochs.
    let together = losses(2, 1).await;
    let apart = losses(1, 2).await;
    assert_eq!(together.len(), 12);
    let worst = differ(&together, &apart);
    assert!(worst < 1e-5, "{worst}: {apart:?} instead of {together:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_has_no_weights_is_refused_before_anything_is_sent() {
    let (host, storage) = photos().start().await;
    let out = TempDir::new().unwrap();
    let mut wanted = job("features", out.path());
    wanted.spec.recipe.lr = Some("layer9=0.1,rest=0.1".parse::<LearningRates>().unwrap());
    let error = run(&host, wanted).await.outcome.unwrap_err().to_string();
    assert!(error.contains("'layer9'") && error.contains("w3"), "{error}");
    assert!(storage.uploads.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn standardized_features_are_learnt_from_faster_and_folded_into_the_model() {
    let (host, _) = photos().start().await;
    let out = TempDir::new().unwrap();
    for freeze in ["features", "r2"] {
        let mut losses = Vec::new();
        for split in ["none", "c1", freeze] {
            let mut wanted = job(split, out.path());
            (wanted.freeze, wanted.spec.recipe) = (freeze.to_owned(), recipe());
            (wanted.spec.recipe.standardize, wanted.spec.recipe.epochs) = (true, 6);
            wanted.spec.recipe.lr = Some(LearningRates::One(0.05));
            let ran = run(&host, wanted).await;
            losses.push(ran.losses());
            let outcome = ran.outcome.unwrap();
            let tuned = Model::read(&outcome.model).unwrap();
            // The written model includes the standardization.
            assert_eq!(
                measure(&host, tuned, None).await.0.unwrap().quality,
                outcome.validation
            );
            assert!(outcome.validation.score() > 0.9, "{freeze}: {outcome:?}");
        }
        for other in &losses[1..] {
            let worst = differ(&losses[0], other);
            assert!(worst < 1e-4, "{freeze}: {worst}");
        }
        let mut plain = job(freeze, out.path());
        (plain.freeze, plain.spec.recipe) = (freeze.to_owned(), recipe());
        (plain.spec.recipe.epochs, plain.spec.recipe.lr) = (6, Some(LearningRates::One(0.05)));
        let plain = run(&host, plain).await.losses();
        assert!(
            losses[0].last() < plain.last(),
            "{freeze}: {:?} and {plain:?}",
            losses[0]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_linear_classifier_is_standardized() {
    let (host, storage) = photos().start().await;
    let out = TempDir::new().unwrap();
    let mut deep = job("none", out.path());
    (deep.freeze, deep.spec.recipe.standardize) = ("r1".to_owned(), true);
    let mut later = job("none", out.path());
    (later.spec.unfreeze, later.spec.recipe.standardize) = ("2=r1".parse().unwrap(), true);
    for job in [deep, later] {
        let error = run(&host, job).await.outcome.unwrap_err().to_string();
        assert!(
            error.contains("linear classifier") && error.contains("freeze"),
            "{error}"
        );
    }
    assert!(storage.uploaded().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn dropout_changes_steps_and_repeats() {
    let (host, _) = photos().start().await;
    let dropped = || Recipe {
        dropout: 0.5,
        ..recipe()
    };
    let first = losses(&host, dropped(), "features").await;
    assert_eq!(first, losses(&host, dropped(), "features").await);
    assert_ne!(first, losses(&host, recipe(), "features").await);
}
