//! Jobs whose rows are varied at the freeze cut.

use super::computing_host::Storage;
use super::whole_job::{job, photos, run};
use crate::{Event, Job, TrainerError};
use frostline_fake_host::FakeHost;
use frostline_features::Cache;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const VALUES: &str = "brightness=0.3,contrast=0.2,noise=0.05";
const ALL: &str = "brightness=0.3,contrast=0.2,posterize=4,hflip=0.5,shift=1,noise=0.05";

async fn host() -> (FakeHost, Arc<Storage>) {
    let storage = Storage {
        etag: Some("1".to_owned()),
        ..photos()
    };
    storage.start().await
}

fn varied(split: &str, freeze: &str, augment: &str, folder: &Path) -> Job {
    let mut job = job(split, folder);
    freeze.clone_into(&mut job.freeze);
    job.recipe.feature_augment = augment.parse().unwrap();
    job
}

fn keeping(job: Job, folder: &Path) -> Job {
    Job {
        features: Some(Cache::new(folder.join("features"), 1 << 30)),
        ..job
    }
}

fn close(left: &[f32], right: &[f32]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(a, b)| (a - b).abs() < 1e-4)
}

#[tokio::test(flavor = "multi_thread")]
async fn losses_do_not_depend_on_where_rows_come_from() {
    let (host, _) = host().await;
    for (freeze, augment) in [
        ("features", VALUES),
        ("r2", VALUES),
        ("r2", "hflip=0.5,shift=1,noise=0.05"),
    ] {
        let out = TempDir::new().unwrap();
        let of = |split| varied(split, freeze, augment, out.path());
        let expected = run(&host, of("none")).await.losses();
        assert_eq!(run(&host, of("none")).await.losses(), expected, "{freeze}");
        for split in ["input", "c1", freeze, "auto"] {
            let found = run(&host, of(split)).await.losses();
            assert!(close(&found, &expected), "{split}: {found:?} {expected:?}");
        }
        let plain = Job {
            recipe: job("none", out.path()).recipe,
            ..of("none")
        };
        assert!(!close(&run(&host, plain).await.losses(), &expected), "{freeze}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_kept_as_they_are_and_varied_anew() {
    let (host, storage) = host().await;
    let out = TempDir::new().unwrap();
    let of = |augment| varied("r2", "r2", augment, out.path());
    let without = run(&host, of(ALL)).await;
    storage.extracted();
    let with = run(&host, keeping(of(ALL), out.path())).await;
    assert_eq!(storage.extracted().len(), 27);
    assert_eq!(with.losses(), without.losses());
    // What an unvaried job finds are the rows that it would have kept itself.
    let plain = |job: Job| Job {
        recipe: super::whole_job::job("r2", out.path()).recipe,
        ..job
    };
    let unvaried = run(&host, plain(of(ALL))).await;
    storage.extracted();
    let found = run(&host, keeping(plain(of(ALL)), out.path())).await;
    assert_eq!(storage.extracted().len(), 0);
    assert_eq!(found.losses(), unvaried.losses());
    let again = run(&host, keeping(of(ALL), out.path())).await;
    assert_eq!(again.losses(), without.losses());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_validated_and_looked_at_stays_as_it_is() {
    let (host, _) = host().await;
    let out = TempDir::new().unwrap();
    let qualities = async |augment: &str, standardize| {
        // A rate so low that the head stays what it was drawn as.
        let mut job = varied("features", "features", augment, out.path());
        job.recipe.lr = Some("1e-30".parse().unwrap());
        job.recipe.standardize = standardize;
        let ran = run(&host, job).await;
        let validations = ran.events.iter().filter_map(|event| match event {
            Event::Epoch { validation, .. } => Some(*validation),
            _ => None,
        });
        (validations.collect::<Vec<_>>(), ran.losses())
    };
    for standardize in [false, true] {
        let (plain, losses) = qualities("noise=0", standardize).await;
        let (varied, changed) = qualities("brightness=1,contrast=1,posterize=1,noise=1", standardize).await;
        assert_eq!((plain.len(), &plain), (3, &varied));
        assert_ne!(losses, changed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_no_maps_are_not_moved() {
    let (host, storage) = host().await;
    let out = TempDir::new().unwrap();
    let mut later = varied("none", "r2", "shift=5", out.path());
    later.unfreeze = "2=r1".parse().unwrap();
    assert!(run(&host, later).await.outcome.is_ok());
    for (freeze, augment, word) in [
        ("features", "hflip=0.5", "'features'"),
        ("features", "shift=1", "freeze up to an earlier cut"),
        ("pooled", "shift=1", "1x1"),
        ("r2", "shift=8", "8x8"),
    ] {
        let job = varied("none", freeze, augment, out.path());
        let error = run(&host, job).await.outcome.unwrap_err();
        assert!(matches!(error, TrainerError::FeatureAugment { .. }), "{error}");
        assert!(error.to_string().contains(word), "{freeze}: {error}");
    }
    let bad = varied("none", "r2", "brightness=7", out.path());
    let error = run(&host, bad).await.outcome.unwrap_err();
    assert!(matches!(error, TrainerError::Setting { .. }), "{error}");
    assert!(storage.uploaded().is_empty());
}
