use super::whole_job::{job, photos, run};
use crate::{Recipe, Sampling, TrainerError};
use frostline_tensor::{ColorJitter, RandAugment, RandomErasing, RandomResizedCrop};
use tempfile::TempDir;

fn everything(recipe: &Recipe) -> Recipe {
    Recipe {
        random_resized_crop: Some(RandomResizedCrop::default()),
        hflip: 0.5,
        rand_augment: Some(RandAugment::default()),
        color_jitter: Some(ColorJitter {
            brightness: 0.4,
            contrast: 0.4,
            saturation: 0.4,
            hue: 0.1,
        }),
        random_erasing: Some(RandomErasing::default()),
        ..recipe.clone()
    }
}

/// The recipe with all augmentations removed.
fn nothing(recipe: &Recipe) -> Recipe {
    Recipe {
        random_resized_crop: None,
        hflip: 0.0,
        rand_augment: None,
        color_jitter: None,
        random_erasing: None,
        ..recipe.clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn augmentation_does_not_depend_on_the_split_and_repeats() {
    let (host, _) = photos().start().await;
    let out = TempDir::new().unwrap();
    let losses = async |split: &str, change: fn(&mut Recipe)| {
        let mut job = job(split, out.path());
        job.spec.recipe = everything(&job.spec.recipe);
        change(&mut job.spec.recipe);
        let ran = run(&host, job).await;
        assert!(ran.outcome.is_ok(), "{split}: {:?}", ran.outcome);
        (ran.losses(), ran.outcome.unwrap().validation)
    };
    let as_it_is = |_: &mut Recipe| ();
    let (expected, accuracy) = losses("none", as_it_is).await;
    assert_eq!(losses("none", as_it_is).await, (expected.clone(), accuracy));
    for split in ["input", "r2", "features", "auto"] {
        let (found, measured) = losses(split, as_it_is).await;
        let close = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(
            close && found.len() == expected.len(),
            "{split}: {found:?} {expected:?}"
        );
        assert_eq!(measured, accuracy, "{split}: validation must not augment");
    }
    let (plain, _) = losses("none", |recipe| *recipe = nothing(recipe)).await;
    let (once, _) = losses("none", |recipe| recipe.views = Some(1)).await;
    let (other, _) = losses("none", |recipe| recipe.seed += 1).await;
    assert!(plain != expected && once != expected && other != expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_drawn_several_times_is_augmented_differently_at_every_split() {
    let mut storage = photos();
    storage
        .objects
        .retain(|key, _| !key.starts_with("train/red/") || key.ends_with("/0.png"));
    let (host, _) = storage.start().await;
    let out = TempDir::new().unwrap();
    let losses = async |split: &str, views| {
        let mut job = job(split, out.path());
        job.spec.recipe = everything(&job.spec.recipe);
        job.spec.recipe.sampling = Sampling::Balanced;
        job.spec.recipe.views = views;
        let ran = run(&host, job).await;
        assert!(ran.outcome.is_ok(), "{split}: {:?}", ran.outcome);
        ran.losses()
    };
    for views in [None, Some(2)] {
        let expected = losses("none", views).await;
        assert_eq!(losses("none", views).await, expected);
        let found = losses("features", views).await;
        let close = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(close && found.len() == expected.len(), "{found:?} {expected:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_cannot_augment_is_named_before_anything_runs() {
    let mut storage = photos();
    storage.own_pixels = true;
    let (host, _) = storage.start().await;
    let out = TempDir::new().unwrap();
    let mut job = job("features", out.path());
    job.spec.recipe = everything(&job.spec.recipe);
    job.guest.parameters = Some(String::new());
    let error = run(&host, job).await.outcome.unwrap_err();
    assert!(matches!(error, TrainerError::CannotAugment { .. }), "{error}");
    assert!(error.to_string().contains("test guest 1"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_recipe_is_refused_before_any_request() {
    let (host, storage) = photos().start().await;
    let out = TempDir::new().unwrap();
    let mut job = job("input", out.path());
    job.spec.recipe.hflip = f64::NAN;
    let error = run(&host, job).await.outcome.unwrap_err();
    assert!(matches!(error, TrainerError::Setting(_)), "{error}");
    assert!(storage.uploaded().is_empty());
}
