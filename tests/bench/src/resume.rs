//! Kills trainers and hosts at random times during jobs. Checks if the final weights are identical and
//! measures the lost time.

mod moments;

use crate::photos::{Photos, Pretrained};
use crate::report::{Report, median};
use crate::run::{binary, text};
use anyhow::{Context, Result, ensure};
use frostline_e2e::HostProcess;
use frostline_graph::Model;
use frostline_trainer::{RunState, can_resume, runs};
use moments::{Kill, Moments, Victim};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const SEED: u64 = 15;

/// Threads per trainer. The number of threads affects rounding.
const THREADS: &str = "1";

/// Interval at which trainer processes are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A trial times out after the reference time multiplied by this factor, plus [`TIMEOUT_SECONDS`].
const TIMEOUT_FACTOR: f64 = 20.0;
const TIMEOUT_SECONDS: f64 = 120.0;

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let (wanted, epochs) = if report.quick() { (4, 3) } else { (20, 6) };
    let subject = Subject {
        binary: binary()?,
        pretrained: Pretrained::find(),
        photos: report.photos(),
        epochs,
    };
    println!(
        "{} frozen at {}, {}, {epochs} epochs\n",
        subject.pretrained.name,
        subject.pretrained.last_block,
        subject.photos.root().display()
    );
    let mut references = Vec::new();
    for rows in RowSource::ALL {
        references.push(Reference::measure(&subject, rows)?);
    }
    let [kept, fetched, ..] = references.as_slice() else {
        anyhow::bail!("a reference is missing");
    };
    let alike = kept.tuned.compare(&fetched.tuned).weights;
    println!(
        "with and without the feature cache: {}\n",
        same_or_different(alike)
    );
    println!("trial  rows     seconds    lost, s  weights    file       killed at, s");
    let (mut moments, mut trials, mut attempt) = (Moments::new(SEED), Vec::new(), 0);
    while trials.len() < wanted {
        ensure!(
            attempt < 2 * wanted,
            "{attempt} jobs finished without a kill because the reference job is slower"
        );
        let reference = references.iter().cycle().nth(trials.len());
        let reference = reference.context("no reference")?;
        let kills = moments.draw(trials.len(), reference.seconds);
        let ran = subject.run(reference.rows, kills, Some(reference.seconds))?;
        attempt += 1;
        // Skip jobs that finished before any kill.
        if ran.killed.is_empty() {
            continue;
        }
        let trial = Trial::new(reference, &ran);
        trial.show(trials.len() + 1, reference, &ran);
        trials.push(trial);
    }
    note(report, &trials);
    report.set("reference_seconds_kept", kept.seconds);
    report.set("reference_seconds_fetched", fetched.seconds);
    report.set("identical_kept_and_fetched", alike);
    Ok(())
}

fn note(report: &mut Report, trials: &[Trial]) {
    let count = |of: fn(&Trial) -> bool| trials.iter().filter(|trial| of(trial)).count();
    let identical = count(|trial| trial.same.weights);
    let files = count(|trial| trial.same.files);
    let lost: Vec<f64> = trials.iter().map(|trial| trial.lost).collect();
    let kills: usize = trials.iter().map(|trial| trial.kills).sum();
    println!(
        "\n{identical} of {} trials have identical weights ({files} identical files) after {kills} kills; median time lost {:.1} s",
        trials.len(),
        median(&lost)
    );
    report.set("identical", identical);
    report.set("identical_files", files);
    report.set("trials", trials.len());
    report.set("kills", kills);
    report.set("lost_seconds_median", median(&lost));
}

fn same_or_different(alike: bool) -> &'static str {
    if alike { "the same" } else { "DIFFERENT" }
}

/// The job that all trials run.
struct Subject {
    binary: PathBuf,
    pretrained: Pretrained,
    photos: Photos,
    epochs: u32,
}

/// The job without kills.
struct Reference {
    rows: RowSource,
    seconds: f64,
    tuned: Tuned,
}

impl Reference {
    fn measure(subject: &Subject, rows: RowSource) -> Result<Self> {
        let ran = subject.run(rows, Vec::new(), None)?;
        println!("reference, rows {}: {:.1} s", rows.name(), ran.seconds);
        Ok(Self {
            rows,
            seconds: ran.seconds,
            tuned: ran.tuned,
        })
    }
}

/// Source of features in later epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowSource {
    /// Feature cache on the trainer's disk.
    Kept,
    /// Host.
    Fetched,
    /// Feature cache on the trainer's disk; the host sends pixels in f16 and the trainer computes the frozen
    /// layers.
    Middle,
}

impl RowSource {
    const ALL: [Self; 3] = [Self::Kept, Self::Fetched, Self::Middle];

    fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Fetched => "fetched",
            Self::Middle => "middle",
        }
    }

    /// Command-line flags for a job with this freeze cut.
    fn flags(self, freeze: &str) -> Vec<&str> {
        match self {
            Self::Kept => vec!["--split", freeze, "--encoding", "f32"],
            Self::Fetched => vec!["--split", freeze, "--encoding", "f32", "--feature-cache", "off"],
            Self::Middle => vec!["--split", "input", "--encoding", "f16"],
        }
    }
}

/// Result of a job with kills.
struct Trial {
    same: Same,
    kills: usize,
    /// Additional run time in seconds compared to the reference.
    lost: f64,
}

impl Trial {
    fn new(reference: &Reference, ran: &JobRun) -> Self {
        Self {
            same: reference.tuned.compare(&ran.tuned),
            kills: ran.killed.len(),
            lost: ran.seconds - reference.seconds,
        }
    }

    fn show(&self, number: usize, reference: &Reference, ran: &JobRun) {
        let killed: Vec<String> = ran
            .killed
            .iter()
            .map(|kill| format!("{} {:.1}", kill.victim.name(), kill.at))
            .collect();
        println!(
            "{number:>5}  {:<8} {:>7.1} {:>10.1}  {:<10} {:<10} {}",
            reference.rows.name(),
            ran.seconds,
            self.lost,
            same_or_different(self.same.weights),
            same_or_different(self.same.files),
            killed.join(", ")
        );
    }
}

struct Tuned {
    file: Vec<u8>,
    model: Model,
}

/// Equality of two models.
struct Same {
    /// True if all weights are equal, bit for bit.
    weights: bool,
    /// True if the files are equal.
    files: bool,
}

impl Tuned {
    fn read(file: &Path) -> Result<Self> {
        Ok(Self {
            model: Model::read(file)?,
            file: fs::read(file)?,
        })
    }

    fn compare(&self, other: &Self) -> Same {
        Same {
            weights: self.model.graph().initializer == other.model.graph().initializer,
            files: self.file == other.file,
        }
    }
}

struct JobRun {
    /// Seconds that the trainers ran.
    seconds: f64,
    /// Kills before the job finished.
    killed: Vec<Kill>,
    tuned: Tuned,
}

impl Subject {
    /// Runs the job in a new folder and on a new host, with these kills. The timeout depends on `usual`, the
    /// run time without kills.
    fn run(&self, rows: RowSource, kills: Vec<Kill>, usual: Option<f64>) -> Result<JobRun> {
        let folder = tempfile::tempdir()?;
        let mut setup = Setup {
            subject: self,
            folder: folder.path(),
            rows,
            host: Some(self.host(folder.path(), "127.0.0.1:0")?),
        };
        let timeout = usual.map(|seconds| TIMEOUT_FACTOR * seconds + TIMEOUT_SECONDS);
        let (seconds, killed) = setup.run_trainers(kills, timeout.unwrap_or(f64::INFINITY))?;
        Ok(JobRun {
            seconds,
            killed,
            tuned: Tuned::read(&setup.out())?,
        })
    }

    fn host(&self, folder: &Path, listen: &str) -> Result<HostProcess> {
        let data = text(self.photos.root())?;
        let host = HostProcess::start(&self.binary, folder, data, &["--listen", listen]);
        host.with_context(|| format!("failed to start a host at {listen}"))
    }
}

/// Folder and host of a job.
struct Setup<'a> {
    subject: &'a Subject,
    folder: &'a Path,
    rows: RowSource,
    /// `None` only while the host is replaced.
    host: Option<HostProcess>,
}

impl Setup<'_> {
    fn out(&self) -> PathBuf {
        self.folder.join("tuned.onnx")
    }

    /// Starts trainers until one finishes the job. Returns the seconds that trainers ran, and the kills.
    fn run_trainers(&mut self, kills: Vec<Kill>, timeout: f64) -> Result<(f64, Vec<Kill>)> {
        let (mut active, mut killed) = (0.0, Vec::new());
        let mut coming = kills.into_iter().peekable();
        while !self.is_finished()? {
            let mut trainer = self.trainer()?;
            let started = Instant::now();
            loop {
                let ran = active + started.elapsed().as_secs_f64();
                if let Some(status) = trainer.ended()? {
                    ensure!(
                        status.success() && self.is_finished()?,
                        "the trainer failed ({status}): {}",
                        self.stderr()
                    );
                    break;
                }
                if let Some(kill) = coming.next_if(|kill| kill.at <= ran) {
                    killed.push(Kill { at: ran, ..kill });
                    match kill.victim {
                        Victim::Host => self.replace_host()?,
                        Victim::Trainer => {
                            trainer.kill()?;
                            break;
                        }
                    }
                }
                ensure!(
                    ran < timeout,
                    "trial timed out after {ran:.0} s: {}",
                    self.stderr()
                );
                sleep(POLL_INTERVAL);
            }
            active += started.elapsed().as_secs_f64();
        }
        Ok((active, killed))
    }

    /// Kills the host and restarts it at the same address with the same state.
    fn replace_host(&mut self) -> Result<()> {
        let mut host = self.host.take().context("no host")?;
        let address = host.address().to_string();
        host.kill()?;
        self.host = Some(self.subject.host(self.folder, &address)?);
        Ok(())
    }

    /// Folder of the job's runs.
    fn runs(&self) -> PathBuf {
        self.folder.join("runs")
    }

    fn is_finished(&self) -> Result<bool> {
        let runs = runs(&self.runs())?;
        Ok(runs.iter().any(|run| run.state == RunState::Finished))
    }

    /// Returns the run to resume, or `None` if the job was killed before the first checkpoint.
    fn resumable_run(&self) -> Result<Option<PathBuf>> {
        let runs = runs(&self.runs())?;
        Ok(runs.into_iter().map(|run| run.path).find(|run| can_resume(run)))
    }

    fn trainer(&self) -> Result<Trainer> {
        let host = self.host.as_ref().context("no host")?;
        let pretrained = &self.subject.pretrained;
        let mut command = Command::new(&self.subject.binary);
        command
            .args(["train", "--json", "--reproducible", "--model"])
            .arg(&pretrained.file)
            .args(["--data", text(self.subject.photos.root())?])
            .args(["--freeze", pretrained.last_block])
            .args(self.rows.flags(pretrained.last_block))
            .args(["--batch", "8", "--checkpoint-steps", "5"])
            .args(["--threads", THREADS])
            .args(["--epochs", &self.subject.epochs.to_string(), "--out"])
            .arg(self.out())
            .args(["--host", &host.url(), "--token-file"])
            .arg(host.token_file())
            .arg("--runs")
            .arg(self.runs())
            .arg("--feature-folder")
            .arg(self.folder.join("rows"));
        if let Some(run) = self.resumable_run()? {
            command.arg("--resume").arg(run);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(self.folder.join("stderr"))?)
            .spawn()?;
        Ok(Trainer { child })
    }

    /// Standard error of the last trainer.
    fn stderr(&self) -> String {
        fs::read_to_string(self.folder.join("stderr")).unwrap_or_default()
    }
}

/// A `frostline train` process. Killed on drop.
struct Trainer {
    child: Child,
}

impl Trainer {
    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Kills the process like `kill -9`.
    fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Trainer {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
