//! Seconds from the start of `frostline train` to its first step, on local photos: with the host in the
//! process, and with a separate host, which is measured first.

use crate::photos::Pretrained;
use crate::report::{Report, median};
use crate::run::{binary, text};
use anyhow::{Context, Result, bail};
use frostline_e2e::HostProcess;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const COUNTS: [usize; 3] = [100, 1_000, 10_000];
const ROUNDS: usize = 3;

/// Sets `start_<place>_<photos>_seconds`, the median of three rounds. Each round starts with an empty cache.
pub(crate) fn run(report: &mut Report) -> Result<()> {
    let photos = files(&report.photos().part("train"))?;
    let counts = if report.quick() { &COUNTS[..2] } else { &COUNTS };
    println!("\n{:<10} {:>10} {:>10}", "photos", "embedded", "host");
    for count in counts {
        let folder = tempfile::tempdir()?;
        let root = folder.path().join("photos");
        copies(&photos, &root, *count)?;
        let host = HostProcess::start(&binary()?, &folder.path().join("host"), text(&root)?, &[])?;
        let token = text(host.token_file())?.to_owned();
        let url = host.url();
        let remote = ["--host", url.as_str(), "--token-file", token.as_str()];
        let mut medians = Vec::new();
        for (place, flags) in [("embedded", &[][..]), ("host", &remote)] {
            let rounds = (0..ROUNDS).map(|_| first_step(&root, flags));
            let seconds = median(&rounds.collect::<Result<Vec<_>>>()?);
            report.set(&format!("start_{place}_{count}_seconds"), seconds);
            medians.push(format!("{seconds:>8.2} s"));
        }
        println!("{count:<10} {}", medians.join(" "));
    }
    Ok(())
}

/// Returns the images in the class folders of `folder` with class names.
fn files(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for class in fs::read_dir(folder)? {
        let class = class?;
        for file in fs::read_dir(class.path())? {
            files.push((class.file_name().to_string_lossy().into_owned(), file?.path()));
        }
    }
    files.sort();
    Ok(files)
}

/// Copies `count` photos into class folders below `root`, repeating `photos` if there are fewer.
fn copies(photos: &[(String, PathBuf)], root: &Path, count: usize) -> Result<()> {
    for (number, (class, file)) in photos.iter().cycle().take(count).enumerate() {
        let folder = root.join(class);
        fs::create_dir_all(&folder)?;
        fs::copy(file, folder.join(format!("{number:06}.jpg")))?;
    }
    Ok(())
}

/// Returns the seconds until a job reports its first step, and then kills the job.
fn first_step(root: &Path, flags: &[&str]) -> Result<f64> {
    let (pretrained, folder) = (Pretrained::find(), tempfile::tempdir()?);
    let mut command = Command::new(binary()?);
    command.args(["train", "--json", "--validation", "0.2", "--epochs", "1"]);
    command.args(["--freeze", pretrained.freeze, "--feature-cache", "off", "--model"]);
    command.arg(&pretrained.file).arg("--data").arg(root).args(flags);
    command.arg("--runs").arg(folder.path().join("runs"));
    command.arg("--out").arg(folder.path().join("tuned.onnx"));
    // An empty cache, so no earlier measurement is reused.
    command.env("XDG_CACHE_HOME", folder.path());
    let since = Instant::now();
    let mut job = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let lines = BufReader::new(job.stdout.take().context("the job's output is not piped")?).lines();
    let mut seconds = None;
    for line in lines {
        if line?.starts_with(r#"{"event":"step""#) {
            seconds = Some(since.elapsed().as_secs_f64());
            break;
        }
    }
    job.kill()?;
    job.wait()?;
    match seconds {
        Some(seconds) => Ok(seconds),
        None => bail!("the job ended without a step (see the output above)"),
    }
}
