//! Two PyTorch trainers and two hosts: difference of the losses, speed-up by the second trainer and the
//! second host, and stalls of trainers when hosts restart or are killed. Also simulates the placement of
//! samples on up to 1,000 hosts (see `placement`).

mod placement;

use crate::package;
use crate::report::Report;
use crate::run::{binary, json_lines, number, text};
use crate::training::torch;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::Command;

/// Keys in the last line printed by `peers/scale.py`.
const FIGURES: [&str; 7] = [
    "ddp_loss_difference_max",
    "ddp_speedup_2",
    "lost_samples",
    "repeated_samples",
    "rolling_restart_stall_seconds",
    "host_kill_stall_seconds",
    "hosts_2_vs_1",
];

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let python = torch(&["--vision"])?;
    let package = package::unpacked()?;
    let photos = report.photos();
    let script: PathBuf = [env!("CARGO_MANIFEST_DIR"), "peers", "scale.py"].iter().collect();
    let mut command = Command::new(&python);
    command
        .arg(text(&script)?)
        .args(["--photos", text(photos.root())?]);
    command.args(report.quick().then_some("--quick"));
    package
        .add_to_environment(&mut command)?
        .env("FROSTLINE", binary()?);
    let printed = json_lines(&mut command)?;
    let (last, jobs) = printed.split_last().context("scale.py printed nothing")?;
    for job in jobs {
        println!("{job}");
    }
    println!();
    for name in FIGURES {
        let figure = number(last, name)?;
        report.set(name, figure);
        println!("{name:<30} {figure:.6}");
    }
    println!();
    placement::run(report)
}
