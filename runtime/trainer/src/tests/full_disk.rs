//! Disks that fill up during a job.

use super::whole_job::{job, photos};
use crate::{Event, Events, JobResult, RunFolder, TrainedStep, TrainerError, train};
use frostline_client::HostClient;
use frostline_graph::Model;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const DISK: &str = "FROSTLINE_TEST_DISK";

/// Runs a job with its run folder on `disk`, which is filled after the second step. Returns the result and
/// all warnings.
async fn filled(disk: &Path, out: &Path) -> (Result<JobResult, TrainerError>, Vec<String>) {
    let (host, _) = photos().start().await;
    let mut job = job("features", disk);
    job.spec.out = Some(out.to_owned());
    job.run = Some(RunFolder::new(disk.join("run")));
    // Emit enough events to exceed the free space in the last page of the event file.
    job.spec.recipe.epochs = 40;
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&said);
    let ballast = disk.join("ballast");
    let events: Events = Arc::new(move |event| match event {
        Event::Step(TrainedStep { step: 2, .. }) => {
            let mut file = File::create(&ballast).unwrap();
            while file.write_all(&[1; 4096]).is_ok() {}
        }
        Event::Warning { message } => log.lock().unwrap().push(message),
        Event::Checkpoint {
            error: Some(error), ..
        } => log.lock().unwrap().push(format!("checkpoint: {error}")),
        _ => {}
    });
    let client = HostClient::new(&host.url, None).unwrap();
    let outcome = train(job, client, events, CancellationToken::new()).await;
    fs::remove_file(disk.join("ballast")).unwrap();
    fs::remove_dir_all(disk.join("run")).unwrap();
    let said = said.lock().unwrap().clone();
    (outcome, said)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "requires a small disk; `a_model_is_written_although_the_disk_of_its_run_is_full` runs it"]
async fn on_a_small_disk() {
    let disk = PathBuf::from(std::env::var_os(DISK).unwrap());
    let elsewhere = TempDir::new().unwrap();
    let out = elsewhere.path().join("mine.onnx");
    let (outcome, said) = filled(&disk, &out).await;
    assert_eq!(outcome.unwrap().model, out);
    Model::read(&out).unwrap();
    for words in [
        "checkpoint: No space left",
        "stopped writing events",
        "predictions.csv",
        "run/tuned.onnx",
    ] {
        assert!(said.iter().any(|line| line.contains(words)), "{words}: {said:#?}");
    }
    let events = said.iter().filter(|line| line.contains("stopped writing events"));
    assert_eq!(events.count(), 1, "{said:#?}");
    assert!(
        said.iter().all(|line| line.contains("No space left")),
        "{said:#?}"
    );

    // The output path is on the full disk as well: the job fails and leaves no partial files.
    let (outcome, _) = filled(&disk, &disk.join("mine.onnx")).await;
    let error = outcome.unwrap_err().to_string();
    assert!(
        error.contains("mine.onnx") && error.contains("No space left"),
        "{error}"
    );
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0);
}

mod needs_unshare {
    use super::*;

    /// Runs the ignored test with a small disk in a mount namespace.
    #[test]
    fn a_model_is_written_although_the_disk_of_its_run_is_full() {
        let folder = TempDir::new().unwrap();
        let setup = format!("mount -t tmpfs -o size=1m none \"${DISK}\"");
        let mut command = frostline_needs::in_mount_namespace(&setup, std::env::current_exe().unwrap());
        command.args(["tests::full_disk::on_a_small_disk", "--exact"]);
        command.args(["--ignored", "--nocapture"]);
        let tried = command.env(DISK, folder.path()).output().unwrap();
        let told = String::from_utf8_lossy(&tried.stdout) + String::from_utf8_lossy(&tried.stderr);
        assert!(tried.status.success() && told.contains("1 passed"), "{told}");
    }
}
