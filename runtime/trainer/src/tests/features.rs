//! Features cached for later epochs and jobs.

use super::computing_host::Storage;
use super::hosts::run_with;
use super::pipeline::png;
use super::resuming::{model, reproducible_job, stopped};
use super::whole_job::{Ran, job, photos, run, widened};
use crate::{EncodingChoice, Event, Job, RunFolder, TrainedEpoch, TrainedStep};
use frostline_client::HostClient;
use frostline_fake_host::FakeHost;
use frostline_features::Cache;
use frostline_wire::Split;
use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

pub(super) const TRAIN: usize = 21;
pub(super) const VALIDATION: usize = 6;

pub(super) async fn host() -> (FakeHost, Arc<Storage>) {
    versioned("1").await
}

async fn versioned(etag: &str) -> (FakeHost, Arc<Storage>) {
    let storage = Storage {
        etag: Some(etag.to_owned()),
        ..photos()
    };
    storage.start().await
}

/// A job with a feature cache in `folder`.
pub(super) fn with_feature_cache(split: &str, folder: &TempDir) -> Job {
    let mut job = job(split, folder.path());
    job.features = Some(Cache::new(folder.path().join("features"), 1 << 30));
    job
}

/// Number of samples extracted, with the minimum and maximum number of extractions per sample.
fn times(extracted: &[String]) -> (usize, usize, usize) {
    let mut counts = BTreeMap::new();
    for key in extracted {
        *counts.entry(key).or_insert(0) += 1;
    }
    let least = counts.values().min().copied().unwrap_or(0);
    let most = counts.values().max().copied().unwrap_or(0);
    (counts.len(), least, most)
}

fn told(ran: &Ran) -> Vec<(u64, u64)> {
    let told = ran.events.iter().filter_map(|event| match event {
        Event::Features { kept, rows, .. } => Some((*kept, *rows)),
        _ => None,
    });
    told.collect()
}

fn epochs(ran: &Ran) -> Vec<(u64, u64)> {
    let epochs = ran.events.iter().filter_map(|event| match event {
        Event::Epoch(TrainedEpoch {
            cached_rows,
            fetched_rows,
            ..
        }) => Some((*cached_rows, *fetched_rows)),
        _ => None,
    });
    epochs.collect()
}

pub(super) fn close(left: &[f32], right: &[f32]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(a, b)| (a - b).abs() < 1e-5)
}

#[tokio::test(flavor = "multi_thread")]
async fn caching_extracts_every_sample_once_and_does_not_change_losses() {
    let (host, storage) = host().await;
    for split in ["none", "input", "r2", "features", "auto"] {
        let folder = TempDir::new().unwrap();
        let without = run(&host, job(split, folder.path())).await;
        assert_eq!(times(&storage.extracted()), (TRAIN + VALIDATION, 3, 4), "{split}");
        let with = run(&host, with_feature_cache(split, &folder)).await;
        assert_eq!(times(&storage.extracted()), (TRAIN + VALIDATION, 1, 1), "{split}");
        assert!(close(&with.losses(), &without.losses()), "{split}");
        assert_eq!(told(&with), [(0, 27)], "{split}");
        assert_eq!(epochs(&with), [(6, 21), (27, 0), (27, 0)], "{split}");
        let quality = |ran: Ran| ran.outcome.unwrap().validation;
        assert_eq!(quality(with), quality(without), "{split}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn features_are_not_cached_if_two_batches_exceed_the_memory() {
    let (host, _) = host().await;
    let folder = TempDir::new().unwrap();
    let mut wide = with_feature_cache("none", &folder);
    // A batch of objects has 173 KB, a batch of features 640 KB.
    (wide.model, wide.freeze) = (widened(20_000), "wide".to_owned());
    wide.spec.memory_bytes = 400_000;
    let ran = run(&host, wide.clone()).await;
    ran.outcome.as_ref().unwrap();
    assert_eq!((told(&ran), epochs(&ran)), (vec![], vec![(0, 27); 3]));
    let warned = ran
        .events
        .iter()
        .any(|event| matches!(event, Event::Warning { message } if message.contains("640000 bytes")));
    assert!(warned, "{:?}", ran.events);
    wide.spec.memory_bytes = 1_280_000;
    let kept = run(&host, wide).await;
    assert_eq!(epochs(&kept), [(6, 21), (27, 0), (27, 0)]);
    assert!(close(&kept.losses(), &ran.losses()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_job_only_uses_cached_features() {
    let (first_host, _) = host().await;
    let folder = TempDir::new().unwrap();
    let first = run(&first_host, with_feature_cache("r2", &folder)).await;
    let (second_host, storage) = host().await;
    let second = run(&second_host, with_feature_cache("auto", &folder)).await;
    let outcome = second.outcome.as_ref().unwrap();
    assert_eq!((storage.extracted().len(), storage.uploaded().len()), (0, 0));
    assert_eq!(
        outcome.received.total(),
        outcome.received.listing + outcome.received.other
    );
    assert_eq!(
        (told(&second), outcome.split.clone()),
        (vec![(27, 27)], Split::None)
    );
    assert!(close(&second.losses(), &first.losses()));
    // A fixed split is only used for missing features, and all features are cached.
    let third = run(&second_host, with_feature_cache("features", &folder)).await;
    assert_eq!(storage.extracted().len(), 0);
    assert!(close(&third.losses(), &first.losses()));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_hashed_while_their_rows_are_needed() {
    let folder = TempDir::new().unwrap();
    // The times of the last change of a file: a new one, the same, and of a copy.
    for (changed, hashed, extracted) in [(10, 27, 27), (10, 0, 0), (20, 27, 0)] {
        let storage = Storage {
            etag: Some("1".to_owned()),
            changed: Some(changed),
            ..photos()
        };
        let (host, storage) = storage.start().await;
        let mut job = with_feature_cache("features", &folder);
        job.spec.recipe.batch = 2;
        job.spec.prefetch = 1;
        let at_first_step = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&at_first_step);
        let counted = Arc::clone(&storage);
        let client = HostClient::new(&host.url, None).unwrap();
        let ran = run_with(client.into(), job, move |event| {
            if matches!(event, Event::Step(TrainedStep { step: 1, .. })) {
                *seen.lock().unwrap() = Some(counted.hashed.lock().unwrap().len());
            }
        })
        .await;
        ran.outcome.unwrap();
        // Up to the first step, only the validation samples and a few batches were hashed.
        let first = at_first_step.lock().unwrap().unwrap();
        assert!(
            first < TRAIN + VALIDATION,
            "{first} files were hashed before the first step"
        );
        let keys = storage.hashed.lock().unwrap().clone();
        assert_eq!(times(&keys).0, hashed, "{keys:?}");
        assert_eq!(keys.len(), hashed, "{keys:?}");
        assert_eq!(storage.extracted().len(), extracted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_new_samples_are_extracted() {
    let (first_host, _) = host().await;
    let folder = TempDir::new().unwrap();
    run(&first_host, with_feature_cache("features", &folder))
        .await
        .outcome
        .unwrap();
    let mut grown = Storage {
        etag: Some("1".to_owned()),
        ..photos()
    };
    for number in 0..2_u32 {
        let key = format!("train/red/new-{number}.png");
        grown.objects.insert(key, png([250, 10, 10], 16 + number));
    }
    let (second_host, storage) = grown.start().await;
    let ran = run(&second_host, with_feature_cache("auto", &folder)).await;
    ran.outcome.as_ref().unwrap();
    let mut extracted = storage.extracted();
    extracted.sort();
    assert_eq!(extracted, ["train/red/new-0.png", "train/red/new-1.png"]);
    assert_eq!(epochs(&ran)[1..], [(29, 0), (29, 0)]);
    // Objects with a different version are different objects.
    let (third_host, storage) = versioned("2").await;
    run(&third_host, with_feature_cache("features", &folder))
        .await
        .outcome
        .unwrap();
    assert_eq!(times(&storage.extracted()), (TRAIN + VALIDATION, 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn features_of_unversioned_objects_are_not_reused_by_other_jobs() {
    let (host, storage) = photos().start().await;
    let folder = TempDir::new().unwrap();
    for _ in 0..2 {
        run(&host, with_feature_cache("features", &folder))
            .await
            .outcome
            .unwrap();
        assert_eq!(times(&storage.extracted()), (TRAIN + VALIDATION, 1, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rounded_features_are_cached_separately() {
    let (host, storage) = host().await;
    let folder = TempDir::new().unwrap();
    for encoding in ["f32", "f16", "int8"] {
        let encoded = |mut job: Job| {
            job.spec.encoding = EncodingChoice::Fixed(encoding.parse().unwrap());
            job
        };
        let without = run(&host, encoded(job("features", folder.path()))).await;
        storage.extracted();
        let with = run(&host, encoded(with_feature_cache("features", &folder))).await;
        // Two activations are requested again in f32 to compare them.
        let most = if encoding == "f32" { 1 } else { 2 };
        assert_eq!(
            times(&storage.extracted()),
            (TRAIN + VALIDATION, 1, most),
            "{encoding}"
        );
        assert_eq!(with.losses(), without.losses(), "{encoding}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn views_that_do_not_repeat_are_not_cached() {
    let (host, _) = host().await;
    let folder = TempDir::new().unwrap();
    let varied = |views| {
        let mut job = with_feature_cache("features", &folder);
        job.spec.recipe.hflip = 0.5;
        (job.spec.recipe.views, job.spec.recipe.epochs) = (views, 4);
        job
    };
    for (views, expected) in [
        (None, vec![(6, 21), (6, 21), (6, 21), (6, 21)]),
        (Some(2), vec![(6, 21), (6, 21), (27, 0), (27, 0)]),
    ] {
        let without = Job {
            features: None,
            ..varied(views)
        };
        let without = run(&host, without).await;
        let with = run(&host, varied(views)).await;
        assert!(close(&with.losses(), &without.losses()), "{views:?}");
        assert_eq!(epochs(&with), expected, "{views:?}");
        fs::remove_dir_all(folder.path().join("features")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_row_is_extracted_again() {
    let (host, storage) = host().await;
    let folder = TempDir::new().unwrap();
    let first = run(&host, with_feature_cache("features", &folder)).await;
    storage.extracted();
    let features = folder.path().join("features");
    let store = Cache::new(&features, 0).list().remove(0).name;
    let rows = features.join(store).join("rows");
    let mut bytes = fs::read(&rows).unwrap();
    bytes[5] ^= 1;
    fs::write(&rows, bytes).unwrap();
    let warnings = |ran: &Ran| {
        let told = ran.events.iter().filter_map(|event| match event {
            Event::Warning { message } => Some(message.clone()),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    let second = run(&host, with_feature_cache("features", &folder)).await;
    assert_eq!(storage.extracted().len(), 1);
    assert!(close(&second.losses(), &first.losses()));
    let told = warnings(&second);
    assert!(
        told.len() == 1 && told[0].starts_with("1 cached features"),
        "{told:?}"
    );
    let third = run(&host, with_feature_cache("features", &folder)).await;
    assert_eq!(storage.extracted().len(), 0);
    assert!(close(&third.losses(), &first.losses()));
    assert_eq!(warnings(&third), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_cache_stores_what_fits() {
    let (host, storage) = host().await;
    let folder = TempDir::new().unwrap();
    let mut small = with_feature_cache("features", &folder);
    // Rows with six values.
    let room = 14 * (6 * 4 + 24);
    small.features = Some(Cache::new(folder.path().join("features"), room));
    let without = run(&host, job("features", folder.path())).await;
    storage.extracted();
    let with = run(&host, small.clone()).await;
    assert!(close(&with.losses(), &without.losses()));
    assert!(epochs(&with).iter().all(|(kept, fetched)| kept + fetched == 27));
    let warned = with
        .events
        .iter()
        .filter(|event| matches!(event, Event::Warning { .. }));
    assert_eq!(warned.count(), 1);
    // During the first job, rows queued for the disk were found as well, but only 14 were written.
    let again = run(&host, small).await;
    assert_eq!(told(&again), [(14, 27)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_cache_folder_causes_one_warning() {
    let (host, storage) = host().await;
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("file"), "x").unwrap();
    let mut job = with_feature_cache("features", &folder);
    job.features = Some(Cache::new(folder.path().join("file/features"), 1 << 20));
    let ran = run(&host, job).await;
    ran.outcome.as_ref().unwrap();
    assert_eq!(times(&storage.extracted()), (TRAIN + VALIDATION, 3, 4));
    let warnings = ran.events.iter().filter_map(|event| match event {
        Event::Warning { message } => Some(message.as_str()),
        _ => None,
    });
    let warnings: Vec<&str> = warnings.collect();
    assert!(
        warnings.len() == 1 && warnings[0].contains("file/features"),
        "{warnings:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn standardized_features_are_extracted_once_too() {
    let (host, storage) = host().await;
    let folder = TempDir::new().unwrap();
    let standardized = |mut job: Job| {
        job.spec.recipe.standardize = true;
        job
    };
    let without = run(&host, standardized(job("features", folder.path()))).await;
    assert_eq!(times(&storage.extracted()), (TRAIN + VALIDATION, 4, 4));
    let with = run(&host, standardized(with_feature_cache("features", &folder))).await;
    assert_eq!(times(&storage.extracted()), (TRAIN + VALIDATION, 1, 1));
    assert!(close(&with.losses(), &without.losses()));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_freeze_cut_has_separate_features() {
    let (host, storage) = host().await;
    let folder = TempDir::new().unwrap();
    let unfreezing = |mut job: Job| {
        job.spec.unfreeze = "3=r1".parse().unwrap();
        job.spec.recipe.epochs = 4;
        job
    };
    let without = run(&host, unfreezing(job("none", folder.path()))).await;
    storage.extracted();
    let with = run(&host, unfreezing(with_feature_cache("none", &folder))).await;
    with.outcome.as_ref().unwrap();
    assert_eq!(times(&storage.extracted()), (TRAIN + VALIDATION, 2, 2));
    assert!(close(&with.losses(), &without.losses()));
    let again = run(&host, unfreezing(with_feature_cache("none", &folder))).await;
    assert_eq!(storage.extracted().len(), 0);
    assert!(close(&again.losses(), &without.losses()));
}

/// A reproducible job with an optional feature cache.
fn exact(run: RunFolder, split: &str, encoding: &str, cache: Option<&Cache>) -> Job {
    let job = reproducible_job(run, |job| {
        job.spec.split = split.parse().unwrap();
        job.spec.encoding = EncodingChoice::Fixed(encoding.parse().unwrap());
    });
    Job {
        features: cache.cloned(),
        ..job
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reproducible_job_ignores_rounded_features_of_other_jobs() {
    let (host, _) = host().await;
    let folder = TempDir::new().unwrap();
    let mut rounded = with_feature_cache("features", &folder);
    rounded.spec.encoding = EncodingChoice::Fixed("f16".parse().unwrap());
    run(&host, rounded.clone()).await.outcome.unwrap();
    let at = |name: &str| folder.path().join(name);
    let auto = |run: RunFolder| {
        let job = reproducible_job(run, |job| {
            job.spec.split = "auto".parse().unwrap();
            job.spec.candidates = Some(vec![Split::None]);
        });
        Job {
            features: rounded.features.clone(),
            ..job
        }
    };
    let begun = stopped(&host, auto(RunFolder::new(at("a"))), 4).await.losses();
    fs::remove_dir_all(at("features")).unwrap();
    let rest = run(&host, auto(RunFolder::resumed(at("a")))).await.losses();
    let whole = exact(RunFolder::new(at("b")), "none", "f32", None);
    let whole = run(&host, whole).await.losses();
    assert_eq!([begun, rest].concat(), whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn int8_features_are_cached_per_split() {
    let (host, storage) = host().await;
    let folder = TempDir::new().unwrap();
    let eight = |mut job: Job| {
        job.spec.encoding = EncodingChoice::Fixed("int8".parse().unwrap());
        job
    };
    for split in ["r2", "c1"] {
        let without = run(&host, eight(job(split, folder.path()))).await;
        storage.extracted();
        let with = run(&host, eight(with_feature_cache(split, &folder))).await;
        // Two activations are requested again in f32 to compare them.
        assert_eq!(times(&storage.extracted()), (TRAIN + VALIDATION, 1, 2), "{split}");
        assert_eq!(with.losses(), without.losses(), "{split}");
    }
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_reproducible_job_gets_identical_bits_from_hosts_and_cache() {
        let (host, _) = host().await;
        for (split, encoding) in [
            ("c1", "f16"),
            ("features", "f16"),
            ("none", "f32"),
            ("r2", "int8"),
        ] {
            let folders = TempDir::new().unwrap();
            let at = |name: &str| folders.path().join(name);
            let whole = exact(RunFolder::new(at("whole")), split, encoding, None);
            let whole = run(&host, whole).await.losses();
            let cache = Cache::new(at("features"), 1 << 30);
            // The second job finds all features. The third job loses them before it resumes.
            for (number, gone) in [(1, false), (2, false), (3, true)] {
                let path = at(&number.to_string());
                let begun = exact(RunFolder::new(&path), split, encoding, Some(&cache));
                let begun = stopped(&host, begun, 4).await.losses();
                if gone {
                    fs::remove_dir_all(at("features")).unwrap();
                }
                let rest = exact(RunFolder::resumed(&path), split, encoding, Some(&cache));
                let rest = run(&host, rest).await.losses();
                assert_eq!([begun, rest].concat(), whole, "{split} {encoding} {number}");
                assert!(model(&path) == model(&at("whole")), "{split} {encoding} {number}");
            }
        }
    }
}
