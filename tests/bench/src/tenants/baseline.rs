//! Runs the same jobs without a host. Every job is a process with a loop around ONNX Runtime, without
//! coordination of memory.

use super::BUDGET;
use super::crowd::{JOB_TIMEOUT, LARGE, MOST};
use crate::fleet::{MIB, MemoryGroup, Subject};
use crate::report::Report;
use crate::run::text;
use anyhow::{Context, Result, bail};
use frostline_engine::{Session, SessionOptions};
use frostline_tensor::{DType, Tensor};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Interval at which processes are polled.
const EVERY: Duration = Duration::from_millis(50);

/// Runs [`MOST`] concurrent jobs with one batch of [`LARGE`] samples each, in a memory cgroup limited to the
/// budget.
pub(super) fn run(report: &mut Report, subjects: &[Subject]) -> Result<()> {
    let group = MemoryGroup::open(BUDGET);
    if let Some(reason) = group.missing() {
        println!("loops without a host: skipped ({reason})\n");
        report.set("failures_fixed_large", None::<usize>);
        return Ok(());
    }
    let (program, started) = (std::env::current_exe()?, Instant::now());
    let begun = subjects.iter().cycle().take(MOST).map(|subject| {
        let mut command = group.command(&program);
        command.args(["tenants", "--extract", text(&subject.file)?]);
        anyhow::Ok(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?,
        )
    });
    let loops = begun.collect::<Result<Vec<_>>>()?;
    let watch = group.watch(std::process::id());
    let mut failed = 0;
    for process in loops {
        failed += usize::from(!delivers(process, started + JOB_TIMEOUT)?);
    }
    println!(
        "{MOST} loops without a host on {} networks, batches of {LARGE}: {:.1} s, {:.0} MiB, {failed} failed, {} killed for memory\n",
        subjects.len(),
        started.elapsed().as_secs_f64(),
        watch.peak() as f64 / MIB,
        group.oom_kills().unwrap_or(0)
    );
    report.set("failures_fixed_large", failed);
    Ok(())
}

/// Returns true if the process succeeds before `end`, and kills it at that time.
fn delivers(mut process: Child, end: Instant) -> Result<bool> {
    loop {
        if let Some(status) = process.try_wait()? {
            return Ok(status.success());
        }
        if Instant::now() >= end {
            process.kill()?;
            process.wait()?;
            return Ok(false);
        }
        std::thread::sleep(EVERY);
    }
}

/// Runs a batch of images through the network with ONNX Runtime's default arena.
pub(super) fn extract(file: &Path) -> Result<()> {
    let mut session = Session::open(&std::fs::read(file)?, &SessionOptions::default())?;
    let input = session
        .inputs()
        .first()
        .context("the network must have an input")?;
    let row = input
        .shape
        .iter()
        .skip(1)
        .map(|size| size.context("the dimensions of a row must be fixed"));
    let shape: Vec<usize> = std::iter::once(Ok(LARGE)).chain(row).collect::<Result<_>>()?;
    let name = input.name.clone();
    let mut images = Tensor::zeros(DType::F32, shape)?;
    // Pages of zeros would not be committed.
    images.as_bytes_mut().fill(0x3c);
    let rows = session.run(&[(name.as_str(), &images)])?;
    if rows
        .first()
        .context("the network must have an output")?
        .1
        .rows()?
        != LARGE
    {
        bail!("{} returned a wrong number of rows", file.display());
    }
    Ok(())
}
