//! Compatibility with the last release: its command and today's run each other's jobs, hosts, state and checkpoints.

use crate::ort;
use crate::workspace::{self, cargo, output, root, target};
use anyhow::{Context, Result, bail, ensure};
use frostline_e2e::HostProcess;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
        let mut command = Command::new(binary);
        command.env("ORT_DYLIB_PATH", &self.library);
        let photos = demo_folder().join("photos");
        let photos = photos.to_str().context("the checkout's path is not UTF-8")?;
        HostProcess::start_as(command, folder, photos, &[])
            .context("the host did not start; see its output above")
    }

    /// Trains with the frozen layers on `host` and returns the last epoch's loss.
    fn train(&self, binary: &Path, folder: &Path, host: &HostProcess, arguments: &[&str]) -> Result<f64> {
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
            .args(["--host", &format!("http://{}", host.address()), "--token-file"])
            .arg(host.token_file())
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
            .args(arguments)
            .env("ORT_DYLIB_PATH", &self.library)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        let printed = command.output().context("cannot start frostline")?;
        ensure!(
            printed.status.success(),
            "frostline train failed; see its output above"
        );
        let events = String::from_utf8(printed.stdout)?;
        let events = events
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let epochs = events.filter(|event| event.get("event").is_some_and(|name| name == "epoch"));
        let mut losses = epochs.filter_map(|event| event.get("loss").and_then(Value::as_f64));
        losses.next_back().context("frostline train printed no epoch")
    }
}

fn demo_folder() -> PathBuf {
    root().join("models/zoo/demo")
}
