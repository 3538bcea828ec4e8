//! Reproducible jobs must end with bitwise identical weights after a kill at any step.

use super::computing_host::Storage;
use super::whole_job::{Ran, job, photos, run};
use crate::EncodingChoice;
use crate::{
    ClassWeights, Event, Events, Job, OnBadSample, OptimizerName, RunFolder, Sampling, TrainedStep, train,
};
use bytes::Bytes;
use frostline_client::HostClient;
use frostline_fake_host::FakeHost;
use frostline_features::Cache;
use frostline_wire::Encoding;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A reproducible job with a run folder and a checkpoint after every second step.
pub(super) fn reproducible_job(run: RunFolder, change: impl Fn(&mut Job)) -> Job {
    let mut job = job("features", &run.path);
    job.spec.out = None;
    job.spec.reproducible = true;
    job.spec.checkpoint_steps = Some(2);
    job.run = Some(run);
    change(&mut job);
    job
}

/// Copies the state of a folder at a single point in time, to simulate a kill. The job waits for the copy, so
/// only the checkpoint writer can change files meanwhile. The copy is repeated in this case.
fn copy_as_killed(from: &Path, to: &Path) {
    loop {
        let before = files(from);
        for file in &before {
            let to = to.join(file.strip_prefix(from).unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            // Renamed and removed files are detected below.
            let _ = fs::copy(file, to);
        }
        if files(from) == before {
            return;
        }
        fs::remove_dir_all(to).unwrap();
    }
}

/// All files below `folder`.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => files(&path),
            false => BTreeSet::from([path]),
        })
        .collect()
}

pub(super) fn model(folder: &Path) -> Vec<u8> {
    fs::read(folder.join("tuned.onnx")).unwrap()
}

/// Trains without interruption, then resumes from the state after each second step and compares losses and
/// weights.
async fn assert_survives_kills(storage: Storage, change: fn(&mut Job)) {
    let (host, _) = storage.start().await;
    let folders = TempDir::new().unwrap();
    let whole = folders.path().join("whole");
    let copies: Arc<Mutex<Vec<PathBuf>>> = Arc::default();
    let log: Arc<Mutex<Vec<f32>>> = Arc::default();
    let told = Arc::clone(&copies);
    let from = whole.clone();
    let losses = Arc::clone(&log);
    let events: Events = Arc::new(move |event| {
        let Event::Step(TrainedStep { step, loss, .. }) = event else {
            return;
        };
        losses.lock().unwrap().push(loss);
        let to = from.with_file_name(format!("killed-at-{step}"));
        copy_as_killed(&from, &to);
        told.lock().unwrap().push(to);
    });
    let client = HostClient::new(&host.url, None).unwrap();
    let undisturbed = reproducible_job(RunFolder::new(&whole), change);
    let outcome = train(undisturbed, client, events, CancellationToken::new()).await;
    outcome.unwrap();
    let copies = copies.lock().unwrap().clone();
    let losses = log.lock().unwrap().clone();
    assert!(copies.len() >= 6, "{copies:?}");
    for killed in copies.iter().step_by(2) {
        let ran = run(&host, reproducible_job(RunFolder::resumed(killed), change)).await;
        ran.outcome.as_ref().unwrap();
        let again = ran.losses();
        assert_eq!(
            again,
            losses[losses.len() - again.len()..],
            "{}",
            killed.display()
        );
        assert!(model(killed) == model(&whole), "{}", killed.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn momentum_and_epoch_loss_survive_a_kill() {
    assert_survives_kills(photos(), |job| job.spec.recipe.momentum = 0.9).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn adamw_and_averages_survive_a_kill() {
    assert_survives_kills(photos(), |job| {
        job.spec.recipe.optimizer = OptimizerName::Adamw;
        job.spec.recipe.model_ema_decay = Some(0.9);
        job.spec.recipe.clip_grad_norm = Some(1.0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn accumulated_gradients_survive_a_kill() {
    assert_survives_kills(photos(), |job| {
        (job.spec.recipe.batch, job.spec.recipe.gradient_accumulation_steps) = (4, 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropout_survives_a_kill() {
    assert_survives_kills(photos(), |job| {
        job.spec.recipe.dropout = 0.5;
        // Steps have different sizes and use separate sessions.
        (job.spec.recipe.batch, job.spec.recipe.gradient_accumulation_steps) = (6, 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropout_survives_a_kill_between_accumulation_and_update() {
    assert_survives_kills(photos(), |job| {
        job.spec.recipe.dropout = 0.5;
        // All batches have the same size, so a mask only depends on its step.
        (job.spec.recipe.batch, job.spec.recipe.gradient_accumulation_steps) = (7, 3);
        job.spec.checkpoint_steps = Some(1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mixing_and_balanced_draws_survive_a_kill() {
    assert_survives_kills(photos(), |job| {
        (job.freeze, job.spec.split) = ("r1".to_owned(), "r1".parse().unwrap());
        (job.spec.recipe.mixup_alpha, job.spec.recipe.cutmix_alpha) = (0.2, 1.0);
        (job.spec.recipe.sampling, job.spec.recipe.class_weights) =
            (Sampling::Balanced, ClassWeights::Balanced);
        job.spec.recipe.hflip = 0.5;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unfreezing_survives_a_kill() {
    assert_survives_kills(photos(), |job| {
        job.spec.split = "c1".parse().unwrap();
        job.spec.unfreeze = "2=r2,3=r1".parse().unwrap();
        job.spec.encoding = EncodingChoice::Fixed(Encoding::F16);
        job.spec.recipe.dropout = 0.1;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_a_middle_survives_a_kill() {
    assert_survives_kills(photos(), |job| job.spec.split = "none".parse().unwrap()).await;
    assert_survives_kills(photos(), |job| job.spec.split = "c1".parse().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_features_survive_a_kill() {
    let storage = || Storage {
        etag: Some("1".to_owned()),
        ..photos()
    };
    assert_survives_kills(storage(), |job| keep_rows(job, "r2", "f32")).await;
    assert_survives_kills(storage(), |job| keep_rows(job, "c1", "f32")).await;
    assert_survives_kills(storage(), |job| keep_rows(job, "r2", "f16")).await;
}

/// Caches features at `r2` in the run folder, to include them in copies of the run. Features travel from
/// `split` in this encoding.
fn keep_rows(job: &mut Job, split: &str, encoding: &str) {
    (job.freeze, job.spec.split) = ("r2".to_owned(), split.parse().unwrap());
    job.spec.encoding = encoding.parse().unwrap();
    let folder = job.run.as_ref().unwrap().path.join("features");
    job.features = Some(Cache::new(folder, 1 << 30));
}

#[tokio::test(flavor = "multi_thread")]
async fn standardization_survives_a_kill() {
    assert_survives_kills(photos(), |job| job.spec.recipe.standardize = true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_samples_stay_skipped_after_a_kill() {
    let mut storage = photos();
    let broken = Bytes::from_static(b"no image");
    storage
        .objects
        .insert("train/red/0.png".to_owned(), broken.clone());
    storage.objects.insert("validation/blue/8.png".to_owned(), broken);
    assert_survives_kills(storage, |job| job.spec.on_bad_sample = OnBadSample::Skip).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_job_uses_the_recorded_split() {
    let storage = Storage {
        probed: true,
        ..photos()
    };
    assert_survives_kills(storage, |job| job.spec.split = "auto".parse().unwrap()).await;
}

/// Runs a job and cancels it after `after` steps.
pub(super) async fn stopped(host: &FakeHost, job: Job, after: u64) -> Ran {
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let cancel = CancellationToken::new();
    let log = Arc::clone(&events);
    let stop = cancel.clone();
    let told: Events = Arc::new(move |event| {
        if matches!(event, Event::Step(TrainedStep { step, .. }) if step == after) {
            stop.cancel();
        }
        log.lock().unwrap().push(event);
    });
    let client = HostClient::new(&host.url, None).unwrap();
    let outcome = train(job, client, told, cancel).await;
    let events = events.lock().unwrap().clone();
    Ran { outcome, events }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeatedly_stopped_job_resumes_without_repeating_steps() {
    let (host, _) = photos().start().await;
    let folders = TempDir::new().unwrap();
    let [whole, broken] = ["whole", "broken"].map(|name| folders.path().join(name));
    let reference = run(&host, reproducible_job(RunFolder::new(&whole), |_| ())).await;
    reference.outcome.as_ref().unwrap();
    let mut losses = Vec::new();
    // Step 3 is the last step before validation.
    for (after, resume) in [(1, false), (3, true), (4, true), (8, true), (u64::MAX, true)] {
        let folder = match resume {
            true => RunFolder::resumed(&broken),
            false => RunFolder::new(&broken),
        };
        let ran = stopped(&host, reproducible_job(folder, |_| ()), after).await;
        losses.extend(ran.losses());
        if after < 9 {
            let said = ran.outcome.unwrap_err().to_string();
            assert!(said.contains(&format!("after step {after}")), "{said}");
            model(&broken);
        } else {
            assert_eq!(
                ran.outcome.unwrap().epoch,
                reference.outcome.as_ref().unwrap().epoch
            );
        }
    }
    assert_eq!(losses, reference.losses());
    assert!(model(&broken) == model(&whole));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_job_resumes_where_it_failed() {
    let mut storage = photos();
    let broken = Bytes::from_static(b"no image");
    storage.objects.insert("train/red/6.png".to_owned(), broken);
    let (host, _) = storage.start().await;
    let folders = TempDir::new().unwrap();
    let path = folders.path().join("run");
    let failed = run(&host, reproducible_job(RunFolder::new(&path), |_| ())).await;
    assert!(
        failed
            .outcome
            .unwrap_err()
            .to_string()
            .contains("train/red/6.png")
    );
    let skipping = |job: &mut Job| job.spec.on_bad_sample = OnBadSample::Skip;
    let resumed = run(&host, reproducible_job(RunFolder::resumed(&path), skipping)).await;
    assert_eq!(resumed.skipped(), 1);
    resumed.outcome.unwrap();
    let steps = |events: &[Event]| {
        events
            .iter()
            .filter(|event| matches!(event, Event::Step { .. }))
            .count()
    };
    assert_eq!(steps(&failed.events) + steps(&resumed.events), 9);
}
