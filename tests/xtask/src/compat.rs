//! Compatibility with the last release: its command and today's run each other's jobs, hosts, state and checkpoints.

use crate::ort;
use crate::workspace::{self, cargo, output, root, target};
use anyhow::{Context, Result, anyhow, bail, ensure};
use frostline_e2e::HostProcess;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

/// Tests today's build against the release `arguments[0]` (a commit or tag), or the last tagged one.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let Some(release) = arguments.first().cloned().or_else(last_release) else {
        println!("skipped: no release is tagged; `cargo xtask compat COMMIT` tests against a commit");
        return Ok(());
    };
    let library = ort::ensure()?;
    let folder = target().join("compat");
    let _ = fs::remove_dir_all(folder.join("run"));
    fs::create_dir_all(folder.join("run"))?;
    let pair = Pair {
        release: build_release(&release, &folder)?,
        today: build_in(&root(), &folder.join("today"))?,
        library,
        folder: folder.join("run"),
    };
    let expected = pair.job("today", &pair.today, &pair.today)?;
    for (name, client, server) in [
        ("the release's client, today's host", &pair.release, &pair.today),
        ("today's client, the release's host", &pair.today, &pair.release),
    ] {
        let loss = pair.job(&name.replace([' ', ',', '\''], "-"), client, server)?;
        ensure!(
            (loss - expected).abs() < 1e-3 * expected,
            "{name}: the loss is {loss}, not {expected}"
        );
        println!("{name}: trained, loss {loss:.4}");
    }
    pair.upgrade()?;
    println!("today's host on the release's state, and back: the tenant's token and model are valid");
    let lost = pair.roll()?;
    println!(
        "two hosts of one state, upgraded one after the other and one back, under a job of either version: {lost} images lost"
    );
    pair.resume()?;
    println!("the release's checkpoint and feature cache: resumed by today's command");
    println!("compatible with {release}");
    Ok(())
}

/// The last tagged release before this commit.
fn last_release() -> Option<String> {
    let arguments = ["describe", "--tags", "--abbrev=0", "--match", "v*"];
    let tag = Command::new("git")
        .args(arguments)
        .current_dir(root())
        .output()
        .ok()?;
    let name = String::from_utf8(tag.stdout).ok()?;
    (tag.status.success() && !name.trim().is_empty()).then(|| name.trim().to_owned())
}

/// Builds the command of `release` and returns its path.
fn build_release(release: &str, folder: &Path) -> Result<PathBuf> {
    let revision = format!("{release}^{{commit}}");
    let commit = output(
        Command::new("git")
            .args(["rev-parse", "--verify", &revision])
            .current_dir(root()),
    )?;
    let binary = folder.join(commit.trim());
    if binary.exists() {
        return Ok(binary);
    }
    let source = folder.join("source");
    let git = |arguments: &[&str]| workspace::run(Command::new("git").args(arguments).current_dir(root()));
    let _ = fs::remove_dir_all(&source);
    git(&["worktree", "prune"])?;
    let path = source.to_str().context("the target folder is not UTF-8")?;
    git(&["worktree", "add", "--detach", path, commit.trim()])?;
    let built = build_in(&source, &binary);
    git(&["worktree", "remove", "--force", path])?;
    built
}

/// Builds the command of the workspace in `source`, sharing compiled dependencies, and copies it to `binary`.
fn build_in(source: &Path, binary: &Path) -> Result<PathBuf> {
    eprintln!("building frostline in {}", source.display());
    let arguments = ["build", "--workspace", "--bin", "frostline", "--test", "command"];
    workspace::run(
        cargo()
            .args(arguments)
            .current_dir(source)
            .env("CARGO_TARGET_DIR", target()),
    )?;
    let _ = fs::remove_file(binary);
    fs::copy(target().join("debug/frostline"), binary)
        .with_context(|| format!("cannot copy the command to {}", binary.display()))?;
    Ok(binary.to_owned())
}

/// The commands of two versions, and where their runs lie.
struct Pair {
    release: PathBuf,
    today: PathBuf,
    library: PathBuf,
    folder: PathBuf,
}

impl Pair {
    /// Trains two epochs through a host of its own and returns the last loss.
    fn job(&self, name: &str, client: &Path, server: &Path) -> Result<f64> {
        let folder = self.subfolder(name)?;
        let host = self.start(server, &folder)?;
        self.train(client, &folder, &host, &["--epochs", "2"])
    }

    /// Starts the release's host, today's on its state, and the release's again; the same token and model train on each.
    fn upgrade(&self) -> Result<()> {
        let folder = self.subfolder("upgrade")?;
        for (step, server) in [&self.release, &self.today, &self.release]
            .into_iter()
            .enumerate()
        {
            let host = self.start(server, &folder)?;
            let client = if step == 1 { &self.today } else { &self.release };
            self.train(client, &folder, &host, &["--epochs", "1"])
                .with_context(|| format!("step {} of the upgrade failed", step + 1))?;
        }
        Ok(())
    }

    /// Two hosts of the release on one state become today's one after the other, and one goes back, while a job of either version trains on
    /// both. Returns the images that either job lost; their losses must agree.
    fn roll(&self) -> Result<u64> {
        /// Far more than both jobs go through until the last restart.
        const EPOCHS: &str = "60";
        let folder = self.subfolder("roll")?;
        let state = folder.join("state");
        let state = state.to_str().context("the target folder is not UTF-8")?;
        let folders = [self.subfolder("roll/a")?, self.subfolder("roll/b")?];
        // Hosts of one state let in the same token where their files say the same.
        let token = "t".repeat(64);
        for folder in &folders {
            fs::set_permissions(folder, Permissions::from_mode(0o700))?;
            fs::write(folder.join("token"), &token)?;
            fs::set_permissions(folder.join("token"), Permissions::from_mode(0o600))?;
        }
        let [a, b] = &folders;
        let start = |binary: &Path, folder: &Path, listen: &str| {
            let local = folder.to_str().context("the target folder is not UTF-8")?;
            let arguments = ["--state", state, "--local", local, "--listen", listen];
            self.start_with(binary, folder, &arguments)
        };
        let mut hosts = [
            start(&self.release, a, "127.0.0.1:0")?,
            start(&self.release, b, "127.0.0.1:0")?,
        ];
        let (epochs, ended) = mpsc::channel();
        let jobs: Vec<_> = [("release", &self.release), ("today", &self.today)]
            .into_iter()
            .map(|(name, binary)| {
                let mut command = self.job_command(binary, &self.subfolder(&format!("roll/{name}"))?, &hosts);
                command.args(["--epochs", EPOCHS, "--feature-cache", "off", "--reproducible"]);
                RunningJob::start(name, command, epochs.clone())
            })
            .collect::<Result<_>>()?;
        drop(epochs);
        for (index, binary) in [(0, &self.today), (1, &self.today), (0, &self.release)] {
            // Both go on after what happened last.
            for job in &jobs {
                let both = ended.iter().filter(|name| *name == job.name).take(2).count();
                ensure!(both == 2, "the jobs ended before all hosts were restarted");
            }
            let (Some(host), Some(folder)) = (hosts.get_mut(index), folders.get(index)) else {
                continue;
            };
            let address = host.address().to_string();
            workspace::run(Command::new("kill").args(["-TERM", &host.id().to_string()]))?;
            ensure!(host.wait()?.success(), "a host did not stop as it should");
            *host = start(binary, folder, &address)?;
        }
        let ends = jobs.into_iter().map(RunningJob::end);
        let ends = ends.collect::<Result<Vec<JobEnd>>>()?;
        let (Some(one), Some(other)) = (ends.first(), ends.last()) else {
            bail!("no job ran");
        };
        ensure!(
            (one.loss - other.loss).abs() < 1e-3 * other.loss,
            "the jobs' losses are {} and {}",
            one.loss,
            other.loss
        );
        Ok(one.lost + other.lost)
    }

    /// Lets the release train some epochs and today's command resume its run to the end.
    fn resume(&self) -> Result<()> {
        let folder = self.subfolder("resume")?;
        let host = self.start(&self.today, &folder)?;
        let started = self.train(&self.release, &folder, &host, &["--epochs", "2"])?;
        let runs = fs::read_dir(folder.join("runs"))?.collect::<Result<Vec<_>, _>>()?;
        let [run] = runs.as_slice() else {
            bail!("the release wrote {} run folders, not 1", runs.len());
        };
        let run = run.path();
        let run = run.to_str().context("the target folder is not UTF-8")?;
        let ended = self.train(&self.today, &folder, &host, &["--resume", run, "--epochs", "4"])?;
        ensure!(
            ended < started,
            "the resumed run's loss is {ended}, it was {started}"
        );
        Ok(())
    }

    fn subfolder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder)
    }

    fn start(&self, binary: &Path, folder: &Path) -> Result<HostProcess> {
        self.start_with(binary, folder, &[])
    }

    fn start_with(&self, binary: &Path, folder: &Path, arguments: &[&str]) -> Result<HostProcess> {
        let mut command = Command::new(binary);
        command.env("ORT_DYLIB_PATH", &self.library);
        let photos = demo_folder().join("photos");
        let photos = photos.to_str().context("the checkout's path is not UTF-8")?;
        HostProcess::start_as(command, folder, photos, arguments)
            .context("the host did not start; see its output above")
    }

    /// Trains with the frozen layers on `host` and returns the last epoch's loss.
    fn train(&self, binary: &Path, folder: &Path, host: &HostProcess, arguments: &[&str]) -> Result<f64> {
        let mut command = self.job_command(binary, folder, std::slice::from_ref(host));
        command.args(arguments);
        let (epochs, _) = mpsc::channel();
        Ok(RunningJob::start("", command, epochs)?.end()?.loss)
    }

    /// A job with its frozen layers on `hosts`.
    fn job_command(&self, binary: &Path, folder: &Path, hosts: &[HostProcess]) -> Command {
        let demo = demo_folder();
        let mut command = Command::new(binary);
        command
            .args([
                "train",
                "--json",
                "--freeze",
                "features",
                "--split",
                "freeze",
                "--batch",
                "32",
                "--lr",
                "0.05",
                "--lr-scheduler",
                "constant",
                "--warmup-ratio",
                "0",
            ])
            .arg("--data")
            .arg(demo.join("photos"))
            .arg("--model")
            .arg(demo.join("backbone.onnx"))
            .arg("--out")
            .arg(folder.join("tuned.onnx"))
            .arg("--runs")
            .arg(folder.join("runs"))
            .arg("--feature-folder")
            .arg(folder.join("features"))
            .env("ORT_DYLIB_PATH", &self.library)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        for host in hosts {
            command.args(["--host", &host.url()]);
        }
        if let Some(host) = hosts.first() {
            command.arg("--token-file").arg(host.token_file());
        }
        command
    }
}

/// A job that trains.
struct RunningJob {
    name: &'static str,
    child: Child,
    events: JoinHandle<JobEnd>,
}

/// What a job said.
#[derive(Debug, Default)]
struct JobEnd {
    /// Of its last epoch.
    loss: f64,
    epochs: usize,
    /// Images that it went on without.
    lost: u64,
}

impl RunningJob {
    /// Starts it; its name is sent to `epochs` after each.
    fn start(name: &'static str, mut command: Command, epochs: mpsc::Sender<&'static str>) -> Result<Self> {
        let mut child = command.spawn().context("cannot start frostline")?;
        let stdout = child.stdout.take().context("frostline has no output")?;
        let events = thread::spawn(move || {
            let mut end = JobEnd::default();
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let event: Value = serde_json::from_str(&line).unwrap_or_default();
                match event.get("event").and_then(Value::as_str) {
                    Some("epoch") => {
                        end.loss = event.get("loss").and_then(Value::as_f64).unwrap_or(f64::NAN);
                        end.epochs += 1;
                        // Who counted them may have stopped.
                        epochs.send(name).ok();
                    }
                    Some("bad_sample") => end.lost += 1,
                    _ => {}
                }
            }
            end
        });
        Ok(Self { name, child, events })
    }

    /// Waits for its end.
    fn end(mut self) -> Result<JobEnd> {
        let status = self.child.wait()?;
        ensure!(status.success(), "frostline train failed; see its output above");
        let end = self.events.join();
        let end = end.map_err(|_| anyhow!("the reader of a job's events panicked"))?;
        ensure!(end.epochs > 0, "frostline train printed no epoch");
        Ok(end)
    }
}

fn demo_folder() -> PathBuf {
    root().join("models/zoo/demo")
}
