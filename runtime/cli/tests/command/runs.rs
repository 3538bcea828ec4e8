//! Tests runs that are interrupted, killed and resumed.

use super::{backbone, failure, frostline, repository};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time after which a job counts as stuck, however busy the machine is.
const STUCK: Duration = Duration::from_secs(900);

/// Returns a reproducible job that needs a few seconds and writes to `folder`.
fn train(folder: &Path, more: &[&str]) -> Command {
    let photos = repository("models/zoo/demo/photos");
    let mut command = Command::new(env!("CARGO_BIN_EXE_frostline"));
    command.args(["train", "--json", "--model", &backbone(), "--freeze", "features"]);
    command.args(["--data", photos.to_str().unwrap(), "--batch", "16"]);
    if !more.contains(&"--epochs") {
        command.args(["--epochs", "3"]);
    }
    command.args(["--lr", "0.05", "--reproducible"]);
    command.args(["--checkpoint-steps", "2", "--threads", "1"]);
    if !more.contains(&"--split") {
        command.args(["--split", "features"]);
    }
    command.arg("--runs").arg(folder).args(more);
    command
}

/// Sends `signal` to a job after an event for which `wanted` returns true. Returns the output and all events.
pub(super) fn signaled(
    command: Command,
    signal: &str,
    wanted: impl Fn(&Value) -> bool,
) -> (Output, Vec<Value>) {
    let kill = |pid: u32| {
        let sent = Command::new("kill").args([signal, &pid.to_string()]).status();
        assert!(sent.unwrap().success());
    };
    disturbed(command, wanted, kill)
}

/// Calls `disturb` with the process id of a job after an event for which `wanted` returns true. Returns the
/// output and all events.
fn disturbed(
    mut command: Command,
    wanted: impl Fn(&Value) -> bool,
    disturb: impl Fn(u32),
) -> (Output, Vec<Value>) {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap();
    let pid = child.id();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut told = Vec::new();
    let mut reached = false;
    for line in lines.map_while(Result::ok) {
        let event: Value = serde_json::from_str(&line).unwrap();
        if !reached && wanted(&event) {
            reached = true;
            disturb(pid);
        }
        told.push(event);
    }
    let output = child.wait_with_output().unwrap();
    assert!(reached, "{output:?}");
    (output, told)
}

fn process(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed()).unwrap()
}

/// Sends SIGINT without starting a process.
fn interrupt(pid: u32) {
    kill_process(process(pid), Signal::INT).unwrap();
}

/// Matches the event of the step with this number.
fn step(number: u64) -> impl Fn(&Value) -> bool {
    move |event| event["event"] == "step" && event["step"] == number
}

fn listed(folder: &Path) -> Vec<Value> {
    let output = frostline(&["runs", "--json", folder.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn model(run: &Value) -> Vec<u8> {
    std::fs::read(Path::new(run["path"].as_str().unwrap()).join("tuned.onnx")).unwrap()
}

#[test]
fn a_job_that_was_interrupted_or_killed_goes_on_to_the_same_model() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, broken] = ["whole", "broken"].map(|name| folder.path().join(name));
    let out = folder.path().join("mine.onnx");
    let finished = train(&whole, &["--out", out.to_str().unwrap()]).output().unwrap();
    assert!(finished.status.success(), "{finished:?}");
    let whole = listed(&whole);
    assert_eq!(
        (whole.len(), &whole[0]["state"]),
        (1, &"finished".into()),
        "{whole:?}"
    );
    assert_eq!(
        (&whole[0]["epochs_done"], &whole[0]["epochs"]),
        (&3.into(), &3.into())
    );
    assert!(
        whole[0]["name"].as_str().unwrap().ends_with("-backbone"),
        "{whole:?}"
    );
    assert_eq!(model(&whole[0]), std::fs::read(out).unwrap());

    let temporary = tempfile::tempdir().unwrap();
    let with_temporary = |mut command: Command| {
        command.env("TMPDIR", temporary.path());
        command
    };
    let (killed, _) = signaled(with_temporary(train(&broken, &[])), "-KILL", step(3));
    assert_eq!(killed.status.code(), None);
    assert_eq!(listed(&broken)[0]["state"], "interrupted");
    // ONNX Runtime also writes a file to this folder.
    let left = || {
        let entries = std::fs::read_dir(temporary.path()).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        paths.find(|path| path.is_dir())
    };
    assert!(left().unwrap().join("state/token").is_file());

    // The next job removes the folder of the killed one.
    let resumed = with_temporary(train(&broken, &["--resume"]));
    let (stopped, _) = signaled(resumed, "-INT", step(5));
    assert_eq!(left(), None);
    assert_eq!(stopped.status.code(), Some(130), "{stopped:?}");
    let said = failure(&stopped);
    assert_eq!(said["kind"], "interrupted");
    assert!(said["hint"].as_str().unwrap().contains("--resume"), "{said}");
    assert!(said["error"].as_str().unwrap().contains("tuned.onnx"), "{said}");
    model(&listed(&broken)[0]);

    let name = listed(&broken)[0]["name"].as_str().unwrap().to_owned();
    let run = broken.join(&name);
    let run = run.to_str().unwrap();
    for (flag, words) in [
        (["--seed", "9"], "seed is 9, the checkpoint has 0"),
        (["--batch", "8"], "batch is 8, the checkpoint has 16"),
    ] {
        let other = frostline(&["train", "--json", "--resume", run, flag[0], flag[1]]);
        let text = failure(&other)["error"].as_str().unwrap().to_owned();
        assert!(text.contains(words), "{text}");
    }

    // All other settings are read from the folder of the run, independently of the working directory.
    let mut bare = Command::new(env!("CARGO_BIN_EXE_frostline"));
    bare.current_dir(folder.path());
    bare.args(["train", "--json", "--resume", "--runs", "broken"]);
    let resumed = bare.output().unwrap();
    assert!(resumed.status.success(), "{resumed:?}");
    let runs = listed(&broken);
    assert_eq!(
        (runs.len(), &runs[0]["state"]),
        (1, &"finished".into()),
        "{runs:?}"
    );
    assert!(model(&runs[0]) == model(&whole[0]));
    let table = String::from_utf8(frostline(&["runs", broken.to_str().unwrap()]).stdout).unwrap();
    assert!(
        table.contains(&name) && table.contains("finished") && table.contains("3/3"),
        "{table}"
    );

    // No unfinished run remains.
    let bare = frostline(&["train", "--json", "--resume", "--runs", broken.to_str().unwrap()]);
    let text = failure(&bare)["error"].as_str().unwrap().to_owned();
    assert!(text.contains("no unfinished run in"), "{text}");
    let none = train(&broken, &["--resume"]).output().unwrap();
    let text = failure(&none)["error"].as_str().unwrap().to_owned();
    assert!(
        none.status.code() == Some(1) && text.contains("finished"),
        "{text}"
    );
}

#[test]
fn an_image_that_changes_in_mid_job_costs_only_itself() {
    let truncate: fn(&Path) = |file| std::fs::write(file, b"\xff\xd8").unwrap();
    let delete: fn(&Path) = |file| std::fs::remove_file(file).unwrap();
    for (change, difference) in [
        (truncate, "0 removed, 1 changed"),
        (delete, "1 removed, 0 changed"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let [photos, runs, next] = ["photos", "runs", "next"].map(|name| folder.path().join(name));
        copy_folder(&repository("models/zoo/demo/photos"), &photos);
        let model_flags = ["--model", &backbone(), "--epochs", "1000", "--prefetch", "1"];
        let endless = uncached(&photos, &runs, &model_flags);
        let victim = photos.join("train/cat/00.jpg");
        let is_epoch = |event: &Value| event["event"] == "epoch";
        let (failed, told) = disturbed(endless, is_epoch, |_| change(&victim));
        assert_eq!(failed.status.code(), Some(1), "{failed:?}");
        let said = failure(&failed);
        let text = said["error"].as_str().unwrap();
        assert!(
            text.contains("train/cat/00.jpg") && text.contains("the best so far"),
            "{text}"
        );
        let run = listed(&runs).remove(0);
        assert_eq!(run["state"], "failed");
        model(&run);
        let path = run["path"].as_str().unwrap();
        assert!(Path::new(path).join("report.html").is_file());

        let from = ["--init-from", path, "--epochs", "1", "--on-bad-sample", "skip"];
        let from = uncached(&photos, &next, &from).output().unwrap();
        assert!(from.status.success(), "{from:?}");

        let refused = failure(&frostline(&["train", "--json", "--resume", path]));
        assert!(
            refused["error"].as_str().unwrap().contains(difference),
            "{refused}"
        );
        // Both errors contain a command that works.
        assert_eq!(refused["hint"], said["hint"]);
        let first = told.iter().filter(|event| is_epoch(event)).count() as u64 + 1;
        resumes_as_suggested(&refused, first, difference);
    }
}

#[test]
fn a_copy_of_the_data_counts_as_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let [photos, copy, whole, broken] =
        ["photos", "copy", "whole", "broken"].map(|name| folder.path().join(name));
    copy_folder(&repository("models/zoo/demo/photos"), &photos);
    // Other files with the same content and times, one after the other, so that a job always finds all files.
    let replace = || {
        let copied = Command::new("cp").arg("-a").arg(&photos).arg(&copy).status();
        assert!(copied.unwrap().success());
        move_files(&copy, &photos);
        std::fs::remove_dir_all(&copy).unwrap();
    };
    let start = [
        "--model",
        &backbone(),
        "--epochs",
        "3",
        "--reproducible",
        "--prefetch",
        "1",
    ];
    // The second half of the job reads the copy, like a host with a separate copy.
    let (finished, told) = disturbed(uncached(&photos, &whole, &start), step(2), |_| replace());
    assert!(finished.status.success(), "{finished:?}");
    assert_unchanged(&told);

    let (stopped, _) = signaled(uncached(&photos, &broken, &start), "-INT", step(5));
    assert_eq!(stopped.status.code(), Some(130), "{stopped:?}");
    replace();
    let path = listed(&broken)[0]["path"].as_str().unwrap().to_owned();
    let resumed = frostline(&["train", "--json", "--resume", &path]);
    assert!(resumed.status.success(), "{resumed:?}");
    let lines = resumed.stdout.lines().map(Result::unwrap);
    let told: Vec<Value> = lines.map(|line| serde_json::from_str(&line).unwrap()).collect();
    assert_unchanged(&told);
    assert!(model(&listed(&broken)[0]) == model(&listed(&whole)[0]));
}

/// Checks that a job skipped no samples and reported no changed data.
fn assert_unchanged(told: &[Value]) {
    for event in told {
        let message = event["message"].as_str().unwrap_or_default();
        assert!(!message.contains("changed"), "{event}");
        assert_eq!(event["skipped"].as_u64().unwrap_or(0), 0, "{event}");
    }
}

/// Moves each file below `from` over the file with the same name below `to`.
fn move_files(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            move_files(&entry.path(), &target);
        } else {
            std::fs::rename(entry.path(), target).unwrap();
        }
    }
}

/// Returns a job on `photos` without cached features, whose runs are written to `runs`.
fn uncached(photos: &Path, runs: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frostline"));
    command.args(["train", "--json", "--freeze", "features", "--split", "features"]);
    command.args(["--batch", "16", "--lr", "0.05", "--threads", "1"]);
    command.args(["--feature-cache", "off", "--data"]).arg(photos);
    command.arg("--runs").arg(runs).args(more);
    command
}

/// Resumes with the command in the hint of an error, until the end of epoch `epoch`. The job must warn that samples
/// are left out.
fn resumes_as_suggested(refused: &Value, epoch: u64, difference: &str) {
    let hint = refused["hint"].as_str().unwrap();
    let (_, words) = hint.split_once("run frostline ").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_frostline"));
    command.args(words.split(' ')).arg("--json");
    let (resumed, told) = signaled(command, "-INT", move |event| {
        event["event"] == "epoch" && event["epoch"].as_u64().unwrap() >= epoch
    });
    assert_eq!(resumed.status.code(), Some(130), "{resumed:?}");
    let warning = format!("{difference}; continuing without these samples");
    let warned = told
        .iter()
        .any(|event| event["message"].as_str().unwrap_or_default().contains(&warning));
    assert!(warned, "{told:?}");
}

#[test]
fn signals_of_one_request_stop_a_job_once() {
    let folder = tempfile::tempdir().unwrap();
    let started = Cell::new(None);
    // `timeout -s INT` sends two signals.
    let twice = |pid: u32| {
        started.set(Some(Instant::now()));
        interrupt(pid);
        interrupt(pid);
        kill_process(process(pid), Signal::TERM).unwrap();
    };
    let (output, _) = disturbed(train(folder.path(), &["--epochs", "1000"]), step(2), twice);
    let elapsed = started.get().unwrap().elapsed();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let run = Path::new(listed(folder.path())[0]["path"].as_str().unwrap()).to_owned();
    // A process that was not scheduled for a second may receive the signals a second apart, as two requests.
    let are_two_requests = elapsed >= Duration::from_secs(1);
    assert!(are_two_requests || run.join("tuned.onnx").is_file(), "{output:?}");
}

#[test]
fn a_later_signal_ends_a_job_that_is_still_stopping() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let no_wait = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened = File::options().read(true).custom_flags(no_wait).open(&pipe);
    let reader = opened.unwrap();
    let out = ["--epochs", "1000", "--out", pipe.to_str().unwrap()];
    let written = RefCell::new(Vec::new());
    let twice = |pid: u32| {
        interrupt(pid);
        // The job has received the signal when it writes its model. It waits while the pipe is full.
        let started = Instant::now();
        let mut byte = [0];
        while (&reader).read(&mut byte).unwrap_or(0) == 0 {
            assert!(started.elapsed() < STUCK, "the job does not write its model");
            std::thread::sleep(Duration::from_millis(10));
        }
        written.borrow_mut().extend(byte);
        std::thread::sleep(Duration::from_secs(1));
        interrupt(pid);
    };
    let (output, _) = disturbed(train(&folder.path().join("runs"), &out), step(2), twice);
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let mut written = written.into_inner();
    (&reader).read_to_end(&mut written).unwrap();
    assert!(frostline_graph::Model::from_bytes(written.into()).is_err());
    assert!(output.stderr.is_empty(), "the job ended by itself: {output:?}");
}

#[test]
fn folders_of_running_jobs_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let [temporary, first, second] = ["temporary", "first", "second"].map(|name| folder.path().join(name));
    std::fs::create_dir(&temporary).unwrap();
    let job = |runs: &Path, more: &[&str]| {
        let mut command = train(runs, more);
        command.env("TMPDIR", &temporary);
        command
    };
    // ONNX Runtime also writes a file to this folder.
    let folders = || {
        let entries = std::fs::read_dir(&temporary).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.is_dir()).collect::<BTreeSet<_>>()
    };
    // While the first job runs, one is killed and another one ends.
    let others = |pid: u32| {
        let running = folders();
        signaled(job(&second, &[]), "-KILL", step(2));
        assert_eq!(folders().len(), 2);
        let last = job(&second, &["--resume"]).output().unwrap();
        assert!(last.status.success(), "{last:?}");
        assert_eq!(folders(), running);
        interrupt(pid);
    };
    let (output, _) = disturbed(job(&first, &["--epochs", "1000"]), step(2), others);
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    model(&listed(&first)[0]);
    assert!(folders().is_empty());
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

mod needs_proc {
    use super::*;

    #[test]
    fn a_hangup_stops_a_job_unless_it_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let [stopped, ignored] = ["stopped", "ignored"].map(|name| folder.path().join(name));
        let (output, _) = signaled(started_with("SIG_DFL", &train(&stopped, &[])), "-HUP", step(2));
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        assert_eq!(listed(&stopped)[0]["state"], "interrupted");
        model(&listed(&stopped)[0]);

        // As under nohup.
        let (output, _) = signaled(started_with("SIG_IGN", &train(&ignored, &[])), "-HUP", step(2));
        assert!(output.status.success(), "{output:?}");
        assert_eq!(listed(&ignored)[0]["state"], "finished");
    }

    /// Returns `job` with this disposition of SIGHUP, which the tests themselves may have been told to ignore.
    fn started_with(disposition: &str, job: &Command) -> Command {
        let script = format!(
            "import os, signal, sys; signal.signal(signal.SIGHUP, signal.{disposition}); os.execvp(sys.argv[1], sys.argv[1:])"
        );
        let mut command = Command::new("python3");
        command
            .args(["-c", &script])
            .arg(job.get_program())
            .args(job.get_args());
        command
    }
}

#[test]
fn there_is_nothing_to_go_on_with_where_there_are_no_runs() {
    let folder = tempfile::tempdir().unwrap();
    assert!(listed(folder.path()).is_empty());
    let nowhere = train(folder.path(), &["--resume"]).output().unwrap();
    let text = failure(&nowhere)["error"].as_str().unwrap().to_owned();
    assert!(text.contains("the folder contains no runs"), "{text}");
    let named = train(folder.path(), &["--resume", "somewhere"]).output().unwrap();
    let text = failure(&named)["error"].as_str().unwrap().to_owned();
    assert!(
        text.contains("somewhere") && text.contains("not a run folder"),
        "{text}"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_job_that_is_printed_is_one_again() {
    let folder = tempfile::tempdir().unwrap();
    let printed = train(folder.path(), &["--hflip", "--dry-run"]).output().unwrap();
    let job: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(
        (&job["recipe"]["hflip"], &job["freeze"]),
        (&0.5.into(), &"features".into())
    );
    let file = folder.path().join("job.json");
    std::fs::write(&file, printed.stdout).unwrap();
    let taken = |more: &[&str]| {
        let words = ["train", "--json", "--dry-run", "--job", file.to_str().unwrap()];
        let output = frostline(&[&words[..], more].concat());
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    assert_eq!(taken(&[]), job);
    assert_eq!(taken(&["--batch", "4"])["recipe"]["batch"], 4);
    std::fs::write(&file, "{\"data\": \"photos\", \"epoch\": 3}").unwrap();
    let wrong = frostline(&["train", "--json", "--dry-run", "--job", file.to_str().unwrap()]);
    let said = failure(&wrong)["error"].as_str().unwrap().to_owned();
    assert!(said.contains("job.json") && said.contains("epoch"), "{said}");
}

/// Copies all class folders except `brick`, the first class. Returns the number of validation images.
fn without_brick(from: &Path, to: &Path) -> usize {
    let mut copied = 0;
    for part in ["train", "validation"] {
        for class in std::fs::read_dir(from.join(part)).unwrap() {
            let class = class.unwrap();
            if class.file_name() == "brick" {
                continue;
            }
            let folder = to.join(part).join(class.file_name());
            std::fs::create_dir_all(&folder).unwrap();
            for photo in std::fs::read_dir(class.path()).unwrap() {
                let photo = photo.unwrap();
                std::fs::copy(photo.path(), folder.join(photo.file_name())).unwrap();
                copied += usize::from(part == "validation");
            }
        }
    }
    copied
}

#[test]
fn a_job_starts_from_the_classes_that_another_one_tuned() {
    let folder = tempfile::tempdir().unwrap();
    let [first, next, fewer] = ["first", "next", "fewer"].map(|name| folder.path().join(name));
    let finished = train(&first, &[]).output().unwrap();
    assert!(finished.status.success(), "{finished:?}");
    let tuned = listed(&first).remove(0);
    let photos = repository("models/zoo/demo/photos");
    let validated = without_brick(&photos, &fewer);
    let all = std::fs::read_dir(photos.join("validation/brick"))
        .unwrap()
        .count()
        + validated;

    // The rate is too low to change a weight, so the score is that of the other job's model.
    let starts = |model: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frostline"));
        command.args(["train", "--json", "--data", fewer.to_str().unwrap()]);
        command.args(["--freeze", "features", "--split", "features", "--epochs", "1"]);
        command.args(["--lr", "1e-30", "--runs", next.to_str().unwrap()]);
        command.args(model).output().unwrap()
    };
    let output = starts(&["--init-from", tuned["path"].as_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("left out of the model: brick"), "{text}");
    let [before, after] = [&tuned, &listed(&next).remove(0)].map(|run| run["best"].as_f64().unwrap());
    let right = |accuracy: f64, of: usize| (accuracy * of as f64).round() as usize;
    // Correct predictions stay correct if the model has fewer classes.
    assert!(
        right(after, validated) + (all - validated) >= right(before, all),
        "{before} of {all}, {after} of {validated}"
    );

    let said = failure(&starts(&["--model", &backbone(), "--head", "keep"]));
    let said = said["error"].as_str().unwrap();
    assert!(said.contains("contains no class names"), "{said}");
    let said = failure(&starts(&["--init-from", folder.path().to_str().unwrap()]));
    assert!(
        said["error"].as_str().unwrap().contains("no tuned.onnx"),
        "{said}"
    );
}

#[test]
fn earlier_training_images_are_not_used_for_validation() {
    let folder = tempfile::tempdir().unwrap();
    let [first, next, more] = ["first", "next", "more"].map(|name| folder.path().join(name));
    let photos = repository("models/zoo/demo/photos/train");
    let run = |runs: &Path, data: &Path, flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frostline"));
        command.args([
            "train",
            "--json",
            "--freeze",
            "features",
            "--epochs",
            "1",
            "--validation",
            "0.25",
        ]);
        command.arg("--data").arg(data).arg("--runs").arg(runs);
        command.args(flags).output().unwrap()
    };
    let finished = run(&first, &photos, &["--model", &backbone()]);
    assert!(finished.status.success(), "{finished:?}");
    let tuned = listed(&first).remove(0);
    let init = ["--init-from", tuned["path"].as_str().unwrap()];
    let said = failure(&run(
        &next,
        &photos,
        &[&init[..], &["--validation-seed", "7"]].concat(),
    ));
    assert_eq!(
        said["hint"],
        "try again with --validation 0.25 --validation-seed 0"
    );
    let same = run(&next, &photos, &init);
    assert!(same.status.success(), "{same:?}");
    assert!(
        !String::from_utf8(same.stdout)
            .unwrap()
            .contains("cannot be compared")
    );
    // An additional image changes the division of its class.
    let brick = more.join("brick");
    std::fs::create_dir_all(&brick).unwrap();
    for class in std::fs::read_dir(&photos).unwrap().map(Result::unwrap) {
        let to = more.join(class.file_name());
        std::fs::create_dir_all(&to).unwrap();
        for photo in std::fs::read_dir(class.path()).unwrap().map(Result::unwrap) {
            std::fs::copy(photo.path(), to.join(photo.file_name())).unwrap();
        }
    }
    std::fs::copy(photos.join("cat/00.jpg"), brick.join("one-more.jpg")).unwrap();
    let changed = run(&next, &more, &init);
    assert!(
        String::from_utf8(changed.stdout)
            .unwrap()
            .contains("cannot be compared")
    );
}

mod long {
    use super::*;

    #[test]
    fn a_job_that_failed_says_how_to_go_on_and_a_plan_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        // A folder at the output path prevents writing the model at the end.
        let out = folder.path().join("out.onnx");
        let runs = folder.path().join("runs");
        // With an explicit link rate, splits are planned for the embedded host as for a remote host.
        let planned = ["--split", "auto", "--link-bytes-per-second", "1e6"];
        let planned = [&planned[..], &["--out", out.to_str().unwrap()]].concat();
        let mut command = train(&runs, &planned);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let begun = lines
            .by_ref()
            .map_while(Result::ok)
            .any(|line| line.contains("\"step\""));
        assert!(begun);
        std::fs::create_dir(&out).unwrap();
        lines.for_each(drop);
        let failed = child.wait_with_output().unwrap();
        let said = failure(&failed);
        assert_eq!(failed.status.code(), Some(1));
        assert!(said["hint"].as_str().unwrap().contains("--resume"), "{said}");
        let run = &listed(&runs)[0];
        assert_eq!(run["state"], "failed");
        let run = Path::new(run["path"].as_str().unwrap());
        let plan: Value = serde_json::from_slice(&std::fs::read(run.join("plan.json")).unwrap()).unwrap();
        assert!(plan["candidates"].as_array().unwrap().len() > 1, "{plan}");
        std::fs::remove_dir(&out).unwrap();
        let again = train(&runs, &[&planned[..], &["--resume"]].concat()).output();
        assert!(again.unwrap().status.success() && out.is_file());
    }

    #[test]
    fn a_run_that_is_resumed_keeps_no_rows_where_it_kept_none() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let features = folder.path().join("features");
        // Only the flag disables the cache.
        let without = |mut command: Command| {
            command.env_remove("FROSTLINE_FEATURE_CACHE");
            command.env("FROSTLINE_FEATURE_FOLDER", &features);
            command
        };
        let job = train(&runs, &["--feature-cache", "off"]);
        signaled(without(job), "-KILL", step(3));
        let mut resumed = Command::new(env!("CARGO_BIN_EXE_frostline"));
        resumed.args(["train", "--json", "--resume", "--runs"]).arg(&runs);
        let resumed = without(resumed).output().unwrap();
        assert!(resumed.status.success(), "{resumed:?}");
        let told = String::from_utf8_lossy(&resumed.stdout);
        assert!(
            !told.contains("\"event\":\"features\"") && !features.exists(),
            "{told}"
        );
    }
}
