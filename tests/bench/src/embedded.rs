//! `frostline.torch.pushdown` with the host that it starts on this machine: seconds to the first batch with
//! empty and with filled caches, and resources after repeated calls and with several data roots.

use crate::package::{self, Package};
use crate::report::{Report, median};
use crate::run::{json_lines, last_object, number, source};
use crate::training::torch;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Parts that can run separately.
pub(crate) const PARTS: [&str; 3] = ["first-batch", "calls", "roots"];
const NETWORKS: [&str; 2] = ["resnet18", "vit_b_16"];
const ROUNDS: usize = 3;
/// Keys in the lines that `embedded.py` prints for the parts `calls` and `roots`.
const RESOURCES: [&str; 5] = ["processes", "memory_mb", "host_memory_mb", "disk_mb", "cache_mb"];

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let peer = Peer {
        python: torch(&["--zoo"])?,
        package: package::unpacked()?,
    };
    if report.has("first-batch") {
        first_batch(report, &peer)?;
    }
    for part in ["calls", "roots"] {
        if report.has(part) {
            resources(report, &peer, part)?;
        }
    }
    Ok(())
}

/// The script, with an interpreter that has PyTorch.
struct Peer {
    python: PathBuf,
    package: Package,
}

impl Peer {
    /// Returns the command that measures a part on the bundled photos, with caches and temporary files in
    /// `folder`.
    fn command(&self, part: &str, folder: &Path) -> Result<Command> {
        let mut command = Command::new(&self.python);
        command
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/peers/embedded.py"))
            .arg(part)
            .arg("--data")
            .arg(source("models/zoo/demo/photos"))
            .arg("--folder")
            .arg(folder);
        self.package.add_to_environment(&mut command)?;
        Ok(command)
    }
}

/// Sets `<network>_<first|second>_pushdown_seconds` and `_first_batch_seconds`, the medians of three rounds.
/// Each round starts with empty caches, which the second process reuses.
fn first_batch(report: &mut Report, peer: &Peer) -> Result<()> {
    let rounds = if report.quick() { 1 } else { ROUNDS };
    println!(
        "\n{:<10} {:<8} {:>12} {:>12}",
        "network", "run", "pushdown", "first batch"
    );
    for network in NETWORKS {
        let mut seconds: [[Vec<f64>; 2]; 2] = Default::default();
        for _ in 0..rounds {
            let folder = tempfile::tempdir()?;
            for [pushdown, batch] in &mut seconds {
                let mut command = peer.command("first-batch", folder.path())?;
                let measured = last_object(command.args(["--network", network]))?;
                pushdown.push(number(&measured, "pushdown_seconds")?);
                batch.push(number(&measured, "first_batch_seconds")?);
            }
        }
        for (run, measured) in ["first", "second"].into_iter().zip(&seconds) {
            let [pushdown, batch] = measured.each_ref().map(|seconds| median(seconds));
            println!("{network:<10} {run:<8} {pushdown:>10.2} s {batch:>10.2} s");
            report.set(&format!("{network}_{run}_pushdown_seconds"), pushdown);
            report.set(&format!("{network}_{run}_first_batch_seconds"), batch);
        }
    }
    Ok(())
}

/// Sets `<part>_<count>_<resource>` for each of [`RESOURCES`].
fn resources(report: &mut Report, peer: &Peer, part: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let printed = json_lines(&mut peer.command(part, folder.path())?)?;
    println!(
        "\n{part:<6} {}",
        RESOURCES.map(|name| format!("{name:>14}")).join(" ")
    );
    for line in &printed {
        let count = number(line, part)?;
        let mut columns = Vec::new();
        for name in RESOURCES {
            let figure = number(line, name)?;
            report.set(&format!("{part}_{count}_{name}"), figure);
            columns.push(format!("{figure:>14.1}"));
        }
        println!("{count:<6} {}", columns.join(" "));
    }
    Ok(())
}
