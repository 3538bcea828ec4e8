//! Run folders: contents, the epoch to write, and refused resumes.

use super::pipeline::png;
use super::resuming::{reproducible_job, stopped};
use super::whole_job::{heavy, photos, run};
use crate::evaluation::Predictions;
use crate::{
    Event, Events, Job, Keep, OnBadSample, RunFolder, RunState, Scheduler, TrainedEpoch, TrainerError,
    can_resume, model_metadata, runs, train, unfinished,
};
use frostline_client::{HostClient, Task};
use frostline_fake_host::FakeHost;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Returns a folder with a run that was stopped after step 5.
async fn interrupted(host: &FakeHost) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    let ran = stopped(host, reproducible_job(RunFolder::new(&path), |_| ()), 5).await;
    assert!(matches!(ran.outcome, Err(TrainerError::Stopped { step: 5, .. })));
    (folder, path)
}

async fn resumed(host: &FakeHost, path: &Path, change: fn(&mut Job)) -> super::whole_job::Ran {
    run(host, reproducible_job(RunFolder::resumed(path), change)).await
}

fn files(path: &Path) -> Vec<String> {
    let names = fs::read_dir(path).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path.join("events.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_folder_contains_all_files() {
    let (host, _) = photos().start().await;
    let folder = TempDir::new().unwrap();
    let (path, out) = (folder.path().join("run"), folder.path().join("mine.onnx"));
    let mut job = reproducible_job(RunFolder::new(&path), |_| ());
    job.spec.out = Some(out.clone());
    let ran = run(&host, job).await;
    let outcome = ran.outcome.as_ref().unwrap();
    assert_eq!(outcome.model, out);
    assert_eq!(fs::read(out).unwrap(), fs::read(path.join("tuned.onnx")).unwrap());
    let expected = [
        "checkpoints",
        "config.json",
        "end.json",
        "events.jsonl",
        "lock",
        "predictions.csv",
        "samples.index",
        "tuned.onnx",
    ];
    // The folder `mistakes` only exists if there are mistakes.
    let mut left = files(&path);
    left.retain(|name| name != "mistakes");
    assert_eq!(left, expected);
    let checkpoints = files(&path.join("checkpoints"));
    let steps = checkpoints.iter().filter(|name| name.starts_with("step-"));
    assert_eq!(
        steps.collect::<Vec<_>>(),
        ["step-000000008.checkpoint", "step-000000009.checkpoint"]
    );
    // The second checkpoint refers to the best epoch before the last one.
    let best = checkpoints.iter().filter(|name| name.starts_with("best-"));
    let best: Vec<&String> = best.collect();
    assert_eq!(
        best.last(),
        Some(&&format!("best-{:09}.checkpoint", outcome.epoch))
    );
    assert!(best.len() <= 2, "{best:?}");
    let config: Value = serde_json::from_slice(&fs::read(path.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["freeze"], "features");
    assert_eq!(config["recipe"]["lr"], 0.003);
    let told = lines(&path);
    assert_eq!(told.first().unwrap()["event"], "run");
    assert_eq!(told.last().unwrap()["event"], "done");
    assert!(told.is_sorted_by_key(|line| line["at"].as_f64().unwrap()));
    let whole = ran
        .events
        .iter()
        .filter(|event| !matches!(event, Event::Notice(_)) && !event.is_progress());
    assert_eq!(
        told.iter().filter(|line| line.get("event").is_some()).count(),
        whole.count()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_listed_with_their_state() {
    let (host, _) = photos().start().await;
    let (folder, path) = interrupted(&host).await;
    let only = |folder: &Path| {
        let runs = runs(folder).unwrap();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs.into_iter().next().unwrap()
    };
    let listed = only(folder.path());
    assert_eq!(
        (listed.state, listed.epochs_done, listed.epochs),
        (RunState::Interrupted, 1, 3)
    );
    assert_eq!((listed.model.as_str(), listed.best_epoch), ("Tiny net", Some(1)));
    assert_eq!(listed.figure.as_deref(), Some("validation_accuracy"));
    let job = || reproducible_job(RunFolder::resumed(&path), |_| ());
    assert_eq!(
        unfinished(folder.path(), &job().checked().await.unwrap())
            .unwrap()
            .path,
        path
    );
    let other = reproducible_job(RunFolder::resumed(&path), |job| job.spec.recipe.momentum = 0.5);
    let said = unfinished(folder.path(), &other.checked().await.unwrap())
        .unwrap_err()
        .to_string();
    assert!(said.contains("momentum is 0.5, the checkpoint has 0.9"), "{said}");
    resumed(&host, &path, |_| ()).await.outcome.unwrap();
    assert_eq!(only(folder.path()).state, RunState::Finished);
    let said = unfinished(folder.path(), &job().checked().await.unwrap())
        .unwrap_err()
        .to_string();
    assert!(said.contains(": finished"), "{said}");
    let nowhere = unfinished(&folder.path().join("none"), &job().checked().await.unwrap());
    assert!(
        nowhere
            .unwrap_err()
            .to_string()
            .contains("the folder contains no runs")
    );
}

/// Weights change sign with every step, regardless of the data. Good and bad epochs alternate.
fn flipping(job: &mut Job) {
    job.spec.recipe.lr = Some(crate::LearningRates::One(0.05));
    (
        job.spec.recipe.lr_scheduler,
        job.spec.recipe.warmup_ratio,
        job.spec.recipe.momentum,
    ) = (Scheduler::Constant, 0.0, 0.0);
    job.spec.recipe.weight_decay = Some(40.0);
    job.spec.recipe.epochs = 12;
}

fn epochs(events: &[Event]) -> Vec<f64> {
    let score = |event: &Event| match event {
        Event::Epoch(TrainedEpoch { validation, .. }) => Some(validation.score()),
        _ => None,
    };
    events.iter().filter_map(score).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_best_epoch_is_written_unless_the_last_is_asked_for() {
    let (host, _) = photos().start().await;
    let folder = TempDir::new().unwrap();
    let best = run(
        &host,
        reproducible_job(RunFolder::new(folder.path().join("best")), flipping),
    )
    .await;
    let last = reproducible_job(RunFolder::new(folder.path().join("last")), |job| {
        flipping(job);
        job.spec.keep = Keep::Last;
    });
    let last = run(&host, last).await;
    let scores = epochs(&best.events);
    assert_eq!(scores, epochs(&last.events));
    let top = scores.iter().copied().fold(0.0, f64::max);
    let place = scores.iter().position(|score| *score == top).unwrap();
    let best = best.outcome.unwrap();
    let last = last.outcome.unwrap();
    assert_eq!((best.epoch as usize, best.validation.score()), (place + 1, top));
    assert_eq!((last.epoch, Some(&last.validation.score())), (12, scores.last()));
}

#[tokio::test(flavor = "multi_thread")]
async fn predictions_of_the_best_epoch_survive_a_kill_after_the_last_epoch() {
    let (host, _) = photos().start().await;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    let of_numbers = Predictions::new(Task::Numbers, Arc::default());
    assert!(Predictions::of_tensors(Task::Classes, Arc::default(), &of_numbers.tensors().unwrap()).is_none());
    let whole = run(&host, reproducible_job(RunFolder::new(&path), flipping)).await;
    whole.outcome.unwrap();
    let results = ["predictions.csv", "mistakes/mistakes.json"];
    let before = results.map(|name| fs::read(path.join(name)).unwrap());
    for name in ["predictions.csv", "end.json"] {
        fs::remove_file(path.join(name)).unwrap();
    }
    fs::remove_dir_all(path.join("mistakes")).unwrap();
    let again = resumed(&host, &path, flipping).await;
    again.outcome.as_ref().unwrap();
    assert!(again.losses().is_empty());
    assert!(results.map(|name| fs::read(path.join(name)).unwrap()) == before);
}

#[tokio::test(flavor = "multi_thread")]
async fn early_stopping_applies_to_new_and_resumed_jobs() {
    let (host, _) = photos().start().await;
    let folder = TempDir::new().unwrap();
    let patient = |job: &mut Job| {
        flipping(job);
        // With this rate no epoch is better than the first.
        job.spec.recipe.lr = Some(crate::LearningRates::One(1e-12));
        job.spec.patience = Some(2);
    };
    let path = folder.path().join("run");
    let ran = run(&host, reproducible_job(RunFolder::new(&path), patient)).await;
    assert_eq!(epochs(&ran.events).len(), 3);
    let stop = ran
        .events
        .iter()
        .find(|event| matches!(event, Event::EarlyStop { .. }));
    assert_eq!(stop, Some(&Event::EarlyStop { epoch: 3, best: 1 }));
    assert_eq!(ran.outcome.unwrap().epoch, 1);
    let again = resumed(&host, &path, patient).await;
    assert!(epochs(&again.events).is_empty());
    again.outcome.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_checkpoint_is_reported_and_the_previous_one_is_used() {
    let (host, _) = photos().start().await;
    let folder = TempDir::new().unwrap();
    let whole = folder.path().join("whole");
    run(&host, reproducible_job(RunFolder::new(&whole), |_| ()))
        .await
        .outcome
        .unwrap();
    let (_other, path) = interrupted(&host).await;
    let newest = path.join("checkpoints/step-000000005.checkpoint");
    let mut bytes = fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&newest, bytes).unwrap();
    let ran = resumed(&host, &path, |_| ()).await;
    ran.outcome.as_ref().unwrap();
    let told = ran.events.iter().any(|event| {
        matches!(event, Event::Warning { message } if message.contains("step-000000005") && message.contains("checksum"))
    });
    assert!(told, "{:?}", ran.events);
    assert!(
        matches!(ran.events.first(), Some(Event::Run { steps: 4, .. })),
        "{:?}",
        ran.events.first()
    );
    assert!(fs::read(path.join("tuned.onnx")).unwrap() == fs::read(whole.join("tuned.onnx")).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_resumes_are_refused_with_one_line() {
    let (host, _) = photos().start().await;
    let (_folder, path) = interrupted(&host).await;
    let said = async |change: fn(&mut Job)| {
        let error = resumed(&host, &path, change).await.outcome.unwrap_err();
        assert!(matches!(error, TrainerError::Resume { .. }), "{error}");
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    };
    let text = said(|job| job.spec.recipe.batch = 4).await;
    assert!(text.contains("batch is 4, the checkpoint has 8"), "{text}");
    let text = said(|job| (job.model, job.spec.model) = (heavy(), Some("Heavy net".into()))).await;
    assert!(
        text.contains("'Tiny net'") && text.contains("'Heavy net'"),
        "{text}"
    );
    let text = said(|job| job.spec.threads = 2).await;
    assert!(text.contains("threads is 2, the checkpoint has 1"), "{text}");
    let text = said(|job| job.spec.recipe.epochs = 9).await;
    assert!(text.contains("epochs is 9, the checkpoint has 3"), "{text}");
    let nothing = resumed(&host, &path.join("nothing"), |_| ())
        .await
        .outcome
        .unwrap_err();
    assert!(nothing.to_string().contains("not a run folder"), "{nothing}");
    let again = run(&host, reproducible_job(RunFolder::new(&path), |_| ()))
        .await
        .outcome
        .unwrap_err();
    assert!(again.to_string().contains("resume it"), "{again}");
}

/// Returns the keys in the predictions of a run, which are the validation samples.
fn validated(path: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(path.join("predictions.csv")).unwrap();
    let keys = text
        .lines()
        .skip(1)
        .map(|line| line.split(',').next().unwrap().to_owned());
    keys.collect()
}

fn warnings(ran: &super::whole_job::Ran) -> Vec<&str> {
    let warnings = ran.events.iter().filter_map(|event| match event {
        Event::Warning { message } => Some(message.as_str()),
        _ => None,
    });
    warnings.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_fails_keeps_its_best_model_and_resumes_without_the_image() {
    const REPLACED: &str = "train/red/3.png";
    let (host, storage) = photos().start().await;
    let folder = TempDir::new().unwrap();
    let (path, out) = (folder.path().join("run"), folder.path().join("mine.onnx"));
    let job = |folder: RunFolder, policy| {
        let mut job = reproducible_job(folder, |job| job.spec.recipe.epochs = 12);
        (job.spec.out, job.spec.on_bad_sample) = (Some(out.clone()), policy);
        job
    };
    let replace: Events = Arc::new(move |event| {
        if let Event::Epoch(TrainedEpoch { epoch: 1, .. }) = event {
            *storage.replaced.lock().unwrap() = Some(REPLACED.to_owned());
        }
    });
    let client = HostClient::new(&host.url, None).unwrap();
    let first = job(RunFolder::new(&path), OnBadSample::Fail);
    let error = train(first, client, replace, CancellationToken::new())
        .await
        .unwrap_err();
    let TrainerError::Failed { source, kept } = &error else {
        panic!("{error}");
    };
    assert!(
        matches!(&**source, TrainerError::BadSample { key, .. } if key == REPLACED),
        "{error}"
    );
    assert!(
        kept.epoch >= 1 && kept.text.contains("the best so far"),
        "{error}"
    );
    let text = error.to_string();
    assert!(text.contains("mine.onnx") && !text.contains('\n'), "{text}");
    assert_eq!(
        fs::read(&out).unwrap(),
        fs::read(path.join("tuned.onnx")).unwrap()
    );
    frostline_graph::Model::read(&out).unwrap();
    let listed = runs(folder.path()).unwrap().remove(0);
    assert_eq!(listed.state, RunState::Failed);
    assert!(can_resume(&path) && !path.join("predictions.csv").exists());

    // The next listing contains the new version.
    let mut changed = photos();
    changed.objects.insert(REPLACED.to_owned(), png([1, 2, 3], 99));
    let (host, _) = changed.start().await;
    let refused = run(&host, job(RunFolder::resumed(&path), OnBadSample::Fail)).await;
    let refused = refused.outcome.unwrap_err();
    assert!(matches!(&refused, TrainerError::DataChanged { .. }), "{refused}");
    assert!(
        refused
            .to_string()
            .contains("0 samples added, 0 removed, 1 changed"),
        "{refused}"
    );
    let ran = run(&host, job(RunFolder::resumed(&path), OnBadSample::Skip)).await;
    ran.outcome.as_ref().unwrap();
    assert_eq!(ran.skipped(), 1);
    let told = warnings(&ran);
    assert!(
        told.iter()
            .any(|told| told.contains("1 changed; continuing without")),
        "{told:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_job_keeps_its_division_of_changed_data() {
    let storage = || {
        let mut storage = photos();
        let objects = std::mem::take(&mut storage.objects).into_iter();
        let objects = objects.map(|(key, bytes)| (key.split_once('/').unwrap().1.to_owned(), bytes));
        storage.objects = objects.collect();
        storage
    };
    let divided = |job: &mut Job| {
        job.spec.validation = Some(0.3);
        job.spec.on_bad_sample = OnBadSample::Skip;
    };
    let (host, original) = storage().start().await;
    let folder = TempDir::new().unwrap();
    let [whole, path] = ["whole", "run"].map(|name| folder.path().join(name));
    run(&host, reproducible_job(RunFolder::new(&whole), divided))
        .await
        .outcome
        .unwrap();
    let held_out = validated(&whole);
    let trained = original
        .objects
        .keys()
        .find(|key| !held_out.contains(*key))
        .unwrap();
    stopped(&host, reproducible_job(RunFolder::new(&path), divided), 4).await;

    let mut changed = storage();
    changed.objects.remove(trained);
    for name in ["new", "newer"] {
        changed
            .objects
            .insert(format!("red/{name}.png"), png([1, 2, 3], 12));
    }
    let (other, _) = changed.start().await;
    let ran = stopped(&other, reproducible_job(RunFolder::resumed(&path), divided), 6).await;
    let told = warnings(&ran);
    assert!(
        told.iter()
            .any(|told| told.contains("2 samples added, 1 removed, 0 changed")),
        "{told:?}"
    );
    // The list of the first job is still compared. An image that returns stays left out.
    let ran = run(&host, reproducible_job(RunFolder::resumed(&path), divided)).await;
    ran.outcome.as_ref().unwrap();
    assert_eq!(ran.skipped(), 1);
    assert!(
        warnings(&ran).iter().all(|told| !told.contains("changed")),
        "{:?}",
        warnings(&ran)
    );
    let ran = run(&other, reproducible_job(RunFolder::resumed(&path), divided)).await;
    ran.outcome.unwrap();
    assert_eq!(validated(&path), held_out);
    let division = |run: &Path| {
        let model = frostline_graph::Model::read(run.join("tuned.onnx")).unwrap();
        model_metadata::division(&model).unwrap()
    };
    assert_eq!(division(&path), division(&whole).with_unknown_past());

    // Other classes are another job.
    let mut fewer = storage();
    fewer.objects.retain(|key, _| !key.starts_with("red"));
    let (host, _) = fewer.start().await;
    let ran = run(&host, reproducible_job(RunFolder::resumed(&path), divided)).await;
    let error = ran.outcome.unwrap_err().to_string();
    assert!(
        error.contains("the classes of the data set have changed"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_not_written_over_the_network() {
    let folder = TempDir::new().unwrap();
    let network = folder.path().join("net.onnx");
    super::network().write(&network).unwrap();
    std::os::unix::fs::symlink("net.onnx", folder.path().join("link.onnx")).unwrap();
    let job = |out: &str| {
        let mut job = reproducible_job(RunFolder::new(folder.path().join("run")), |_| ());
        (job.spec.model, job.spec.out) = (Some(network.clone()), Some(folder.path().join(out)));
        job
    };
    for out in ["net.onnx", "link.onnx"] {
        let error = job(out).checked().await.unwrap_err().to_string();
        assert!(
            error.contains("cannot overwrite the network of the job"),
            "{error}"
        );
    }
    job("tuned.onnx").checked().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_dataset_is_refused_with_sample_counts() {
    let (host, _) = photos().start().await;
    let (_folder, path) = interrupted(&host).await;
    let mut changed = photos();
    changed.objects.remove("train/red/3.png");
    for new in ["train/red/new.png", "train/green/new.png"] {
        changed.objects.insert(new.to_owned(), png([1, 2, 3], 12));
    }
    changed
        .objects
        .insert("train/blue/0.png".to_owned(), png([1, 2, 3], 99));
    let (host, _) = changed.start().await;
    let error = resumed(&host, &path, |_| ())
        .await
        .outcome
        .unwrap_err()
        .to_string();
    assert!(error.contains("2 samples added, 1 removed, 1 changed"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_of_another_run_is_refused() {
    let (host, _) = photos().start().await;
    let (_folder, path) = interrupted(&host).await;
    let other = TempDir::new().unwrap();
    let theirs = other.path().join("run");
    let job = reproducible_job(RunFolder::new(&theirs), |job| {
        (job.model, job.spec.model) = (heavy(), Some("Heavy net".into()));
    });
    stopped(&host, job, 7).await;
    let name = "checkpoints/step-000000007.checkpoint";
    fs::copy(theirs.join(name), path.join(name)).unwrap();
    let error = resumed(&host, &path, |_| ())
        .await
        .outcome
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("has the model 'Heavy net', this job has 'Tiny net'"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_with_only_corrupt_checkpoints_is_refused_and_one_without_any_restarts() {
    let (host, _) = photos().start().await;
    let (_folder, path) = interrupted(&host).await;
    for name in files(&path.join("checkpoints")) {
        File::options()
            .write(true)
            .open(path.join("checkpoints").join(name))
            .unwrap()
            .set_len(100)
            .unwrap();
    }
    let error = resumed(&host, &path, |_| ())
        .await
        .outcome
        .unwrap_err()
        .to_string();
    assert!(error.contains("all 2 checkpoints are corrupt"), "{error}");
    fs::remove_dir_all(path.join("checkpoints")).unwrap();
    let ran = resumed(&host, &path, |_| ()).await;
    ran.outcome.as_ref().unwrap();
    assert_eq!(ran.losses().len(), 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_reported_and_the_job_continues() {
    let (host, _) = photos().start().await;
    let folder = TempDir::new().unwrap();
    let mut job = reproducible_job(RunFolder::new(folder.path().join("run")), |_| ());
    job.run.as_mut().unwrap().create = |path| match path.parent() {
        Some(folder) if folder.ends_with("checkpoints") => File::options().write(true).open("/dev/full"),
        _ => File::create_new(path),
    };
    let ran = run(&host, job).await;
    ran.outcome.unwrap();
    let told = ran.events.iter().filter_map(|event| match event {
        Event::Checkpoint { error, .. } => Some(error.clone().unwrap()),
        _ => None,
    });
    let told: Vec<String> = told.collect();
    assert!(
        told.len() > 3 && told.iter().all(|error| error.contains("No space left")),
        "{told:?}"
    );
    assert_eq!(files(&folder.path().join("run/checkpoints")), [""; 0]);
    // The event contains the file that could not be written. After an epoch, this is the best epoch's.
    let named = ran.events.iter().filter_map(|event| match event {
        Event::Checkpoint { file, .. } => file.file_name()?.to_str(),
        _ => None,
    });
    let named: Vec<&str> = named.collect();
    assert_eq!(named.first(), Some(&"step-000000000.checkpoint"));
    assert!(named.contains(&"best-000000001.checkpoint"), "{named:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_jobs_do_not_share_a_folder() {
    let (host, _) = photos().start().await;
    let (_folder, path) = interrupted(&host).await;
    let lock = File::open(path.join("lock")).unwrap();
    lock.lock().unwrap();
    let error = resumed(&host, &path, |_| ())
        .await
        .outcome
        .unwrap_err()
        .to_string();
    assert!(error.contains("another job is using the folder"), "{error}");
    assert_eq!(runs(path.parent().unwrap()).unwrap()[0].state, RunState::Running);
    lock.unlock().unwrap();
    resumed(&host, &path, |_| ()).await.outcome.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn more_epochs_are_trained_where_no_rate_depends_on_them() {
    let (host, _) = photos().start().await;
    let folder = TempDir::new().unwrap();
    let constant = |job: &mut Job| {
        (job.spec.recipe.lr_scheduler, job.spec.recipe.warmup_ratio) = (Scheduler::Constant, 0.0);
    };
    let path = folder.path().join("run");
    run(&host, reproducible_job(RunFolder::new(&path), constant))
        .await
        .outcome
        .unwrap();
    let longer = |job: &mut Job| {
        (job.spec.recipe.lr_scheduler, job.spec.recipe.warmup_ratio) = (Scheduler::Constant, 0.0);
        job.spec.recipe.epochs = 5;
    };
    let more = resumed(&host, &path, longer).await;
    more.outcome.as_ref().unwrap();
    let whole = run(
        &host,
        reproducible_job(RunFolder::new(folder.path().join("whole")), longer),
    )
    .await;
    assert_eq!(more.losses(), whole.losses()[9..]);
}
