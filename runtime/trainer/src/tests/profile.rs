use super::whole_job::{network, photos};
use crate::measure::{TrainerTask, spread, trainer_profile};
use crate::recipe::{Views, step_settings};
use crate::{ProfileFolder, Recipe, TrainerError};
use frostline_client::HostClient;
use frostline_engine::SessionOptions;
use frostline_tensor::{Augmentation, PixelSpec, Precision};
use frostline_wire::Layout;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

fn task() -> TrainerTask {
    TrainerTask {
        model: network(),
        frozen: network(),
        frozen_sha256: "frozen".to_owned(),
        freeze: "features".to_owned(),
        cuts: ["r1", "r2", "features"].map(str::to_owned).to_vec(),
        pixels: PixelSpec::imagenet(8, 8),
        view: None,
        batch: 6,
        settings: step_settings(&Recipe::default()),
        options: SessionOptions::default(),
        precision: Precision::Full,
    }
}

#[tokio::test]
async fn a_trainer_measures_itself_once() {
    let (host, _storage) = photos().start().await;
    let client = HostClient::new(&host.url, None).unwrap();
    let folder = TempDir::new().unwrap();
    let cache = ProfileFolder::new(folder.path().join("cache"));
    let fetched = AtomicUsize::new(0);
    let samples = || async {
        fetched.fetch_add(1, Ordering::SeqCst);
        let objects = spread(&client.objects("photos", Layout::Auto).await?, 5);
        Ok(client
            .read("photos", &objects)
            .await?
            .into_iter()
            .flatten()
            .collect())
    };
    let first = trainer_profile(task(), Some(&cache), samples()).await.unwrap();
    let names: Vec<&str> = first.cuts.iter().map(|cut| cut.name.as_str()).collect();
    assert_eq!(names, ["r1", "r2", "features"]);
    let bytes: Vec<u64> = first.cuts.iter().map(|cut| cut.bytes_per_sample).collect();
    assert_eq!(bytes, [4 * 6 * 64, 4 * 6 * 64, 4 * 6]);
    assert!(
        first
            .cuts
            .windows(2)
            .all(|pair| pair[0].compute.at(16.0) < pair[1].compute.at(16.0))
    );
    assert!(first.step_seconds > 0.0 && first.decode_seconds_per_sample > 0.0);
    assert!(first.normalize_seconds_per_sample > 0.0 && first.input.contains_key("u8"));
    assert_eq!(
        (first.batch, first.platform.lanes, first.platform.threads_per_lane),
        (6, 1, 1)
    );

    let again = trainer_profile(task(), Some(&cache), samples()).await.unwrap();
    // JSON may change the last digit.
    assert!((again.step_seconds - first.step_seconds).abs() < 1e-12);
    assert_eq!(again.measured_at, first.measured_at);
    assert_eq!(
        fetched.load(Ordering::SeqCst),
        1,
        "a stored profile needs no samples"
    );
    let others = [
        TrainerTask { batch: 7, ..task() },
        TrainerTask {
            view: Views {
                augmentation: Augmentation {
                    hflip: 0.5,
                    ..Augmentation::default()
                },
                ..Views::default()
            }
            .for_epoch(1),
            ..task()
        },
        TrainerTask {
            frozen_sha256: "other".to_owned(),
            ..task()
        },
        TrainerTask {
            cuts: vec!["features".to_owned()],
            ..task()
        },
    ];
    for (count, other) in (2..).zip(others) {
        trainer_profile(other, Some(&cache), samples()).await.unwrap();
        assert_eq!(fetched.load(Ordering::SeqCst), count);
    }
    for file in std::fs::read_dir(folder.path().join("cache")).unwrap() {
        std::fs::write(file.unwrap().path(), "no JSON").unwrap();
    }
    trainer_profile(task(), Some(&cache), samples()).await.unwrap();
    assert_eq!(
        fetched.load(Ordering::SeqCst),
        6,
        "an unreadable profile is measured again"
    );
}

#[tokio::test]
async fn without_a_usable_sample_there_is_no_profile() {
    let broken = async { Ok(vec![bytes::Bytes::from_static(b"no photo")]) };
    let error = trainer_profile(task(), None, broken).await.unwrap_err();
    assert!(matches!(error, TrainerError::Profile(_)), "{error}");
}

#[tokio::test]
async fn layers_that_cannot_be_trained_are_an_error() {
    let (host, _storage) = photos().start().await;
    let client = HostClient::new(&host.url, None).unwrap();
    let objects = spread(&client.objects("photos", Layout::Auto).await.unwrap(), 2);
    let samples = async {
        Ok(client
            .read("photos", &objects)
            .await?
            .into_iter()
            .flatten()
            .collect())
    };
    let nothing_left = TrainerTask {
        freeze: "scores".to_owned(),
        ..task()
    };
    assert!(trainer_profile(nothing_left, None, samples).await.is_err());
}
