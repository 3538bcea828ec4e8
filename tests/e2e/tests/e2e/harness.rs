//! Scratch folder with the bundled demo, and commands to run in it.

use frostline_e2e::{Finished, HostProcess, finish, frostline_binary, repository};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time after which a step of a test counts as stuck, however busy the machine is. Most steps take seconds.
pub(crate) const STUCK: Duration = Duration::from_secs(900);

/// Length of tokens in bytes. Shorter texts are not secret.
const TOKENS: std::ops::Range<usize> = 16..256;

/// Temporary folder of a test, with some of the bundled photos in `photos/`. On drop, checks that no token
/// was written to another file.
pub(crate) struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    /// Creates an empty folder.
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Copies three classes of the bundled photos, with `train` training and `validation` validation photos
    /// per class.
    pub(crate) fn with_photos(train: usize, validation: usize) -> Self {
        let scratch = Self::new();
        for (part, count) in [("train", train), ("validation", validation)] {
            for class in sorted(&demo("photos").join(part)).iter().take(3) {
                let target = scratch.path("photos").join(part).join(class.file_name().unwrap());
                fs::create_dir_all(&target).unwrap();
                for photo in sorted(class).iter().take(count) {
                    fs::copy(photo, target.join(photo.file_name().unwrap())).unwrap();
                }
            }
        }
        scratch
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the class folder number `index` in a part of the photos.
    pub(crate) fn class(&self, part: &str, index: usize) -> PathBuf {
        sorted(&self.path("photos").join(part))[index].clone()
    }

    /// Runs `frostline train` on the photos with the bundled backbone for one epoch, unless `arguments`
    /// specify otherwise.
    pub(crate) fn train(&self, arguments: &[&str]) -> Finished {
        finish(&mut self.train_command(arguments)).unwrap()
    }

    /// Like [`Scratch::train`], but calls `disturb` after the second epoch.
    pub(crate) fn disturbed(&self, arguments: &[&str], disturb: impl FnOnce()) -> Finished {
        Self::disturb(&mut self.train_command(arguments), disturb)
    }

    /// Runs `frostline train` and calls `disturb` after the second epoch.
    pub(crate) fn disturb(train: &mut Command, disturb: impl FnOnce()) -> Finished {
        let mut child = train
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen: Vec<String> = Vec::new();
        while !seen
            .last()
            .is_some_and(|line| line.contains("\"epoch\",\"epoch\":2"))
        {
            seen.push(lines.next().expect("the job ended early").unwrap());
        }
        disturb();
        seen.extend(lines.map(Result::unwrap));
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        Finished {
            code: child.wait().unwrap().code(),
            stdout: seen.join("\n"),
            stderr: errors,
        }
    }

    pub(crate) fn train_command(&self, arguments: &[&str]) -> Command {
        let mut command = frostline();
        command.args(["train", "--json"]);
        for (flag, value) in [
            ("--out", self.path("tuned.onnx").to_str().unwrap()),
            ("--runs", self.path("runs").to_str().unwrap()),
            ("--model", demo("backbone.onnx").to_str().unwrap()),
            ("--data", self.path("photos").to_str().unwrap()),
            ("--freeze", "features"),
            ("--epochs", "1"),
            ("--batch", "8"),
        ] {
            if !arguments.contains(&flag) {
                command.args([flag, value]);
            }
        }
        command.args(arguments);
        command
    }

    /// Asserts that a run failed with a single error line that contains `words`, and did not leave an output
    /// or temporary file.
    pub(crate) fn assert_failed(&self, run: &Finished, words: &[&str]) {
        assert_eq!(run.code, Some(1), "{run:?}");
        let failure = run
            .failure()
            .unwrap_or_else(|| panic!("no error: {}", run.stderr));
        assert_eq!(failure["code"], 1, "{failure}");
        let error = failure["error"].as_str().unwrap();
        assert!(!error.contains('\n'), "{error}");
        assert!(
            !run.stderr.lines().any(|line| line.starts_with("thread '")),
            "a panic: {}",
            run.stderr
        );
        for word in words {
            assert!(error.contains(word), "no {word:?} in: {error}");
        }
        self.assert_nothing_written();
    }

    pub(crate) fn assert_nothing_written(&self) {
        let left: Vec<_> = sorted(self.folder.path())
            .into_iter()
            .filter(|path| path.file_name().unwrap().to_string_lossy().contains("tuned"))
            .collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }

    /// Returns the path of the folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a host with access to the photos.
    pub(crate) fn host(&self, arguments: &[&str]) -> HostProcess {
        let binary = binary();
        HostProcess::start(
            &binary,
            self.folder.path(),
            self.path("photos").to_str().unwrap(),
            arguments,
        )
        .unwrap()
    }
}

/// Checks that logs, reports, state and runs do not contain a token.
impl Drop for Scratch {
    fn drop(&mut self) {
        // Keep the message of a failed test.
        if std::thread::panicking() {
            return;
        }
        let mut files = Vec::new();
        all_files(self.folder.path(), &mut files);
        let read = |path: &PathBuf| Some((path.clone(), fs::read(path).ok()?));
        let (tokens, others): (Vec<_>, Vec<_>) = files.iter().filter_map(read).partition(is_token);
        for (of, token) in &tokens {
            let token = String::from_utf8_lossy(token);
            let told =
                |(_, bytes): &&(PathBuf, Vec<u8>)| String::from_utf8_lossy(bytes).contains(token.trim());
            let told: Vec<&PathBuf> = others.iter().filter(told).map(|(path, _)| path).collect();
            assert!(told.is_empty(), "{} is contained in {told:?}", of.display());
        }
    }
}

/// True if a file contains only a token.
fn is_token((path, bytes): &(PathBuf, Vec<u8>)) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let named = path
        .file_name()
        .is_some_and(|name| name.to_string_lossy().contains("token"));
    let long = (TOKENS.contains(&text.trim().len())) && !text.trim().contains(char::is_whitespace);
    long && (named || text.starts_with("frost_"))
}

fn all_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => all_files(&entry.path(), files),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
}

pub(crate) fn binary() -> PathBuf {
    frostline_binary()
        .expect("frostline is not built: run `cargo xtask test`, or `cargo test -p frostline --no-run` first")
}

pub(crate) fn frostline() -> Command {
    let mut command = Command::new(binary());
    // Features cached by other tests must not affect this test.
    command.env("FROSTLINE_FEATURE_CACHE", "off");
    command
}

/// Returns the path of a file or folder of the bundled demo.
pub(crate) fn demo(name: &str) -> PathBuf {
    repository().join("models/zoo/demo").join(name)
}

/// Parses the JSON objects printed by a successful run.
pub(crate) fn events(run: &Finished) -> Vec<Value> {
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the numbers under `key` in events of one kind.
pub(crate) fn series(events: &[Value], event: &str, key: &str) -> Vec<f64> {
    events
        .iter()
        .filter(|value| value["event"] == event)
        .map(|value| value[key].as_f64().unwrap())
        .collect()
}

pub(crate) fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    entries
}
