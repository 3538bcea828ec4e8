//! Kills lanes repeatedly under load. Counts lost and wrong answers and measures the time to the next answer.

use crate::fleet::load::Job;
use crate::fleet::{Fleet, Setting, Tenant};
use crate::report::{Report, median};
use anyhow::{Context, Result, bail};
use frostline_tensor::{Data, Tensor};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::time::sleep;

pub(super) const BUDGET: u64 = 4 << 30;
const NETWORK: &str = "resnet18";

/// The interval of kills.
const EVERY: Duration = Duration::from_secs(2);

/// Images of a batch.
const IMAGES: usize = 32;

/// The tolerance of values relative to the largest: other batch sizes may round differently.
const TOLERANCE: f32 = 1e-4;

/// Kills for which the time to the next answer is measured.
const KILLS: usize = 5;

pub(super) async fn run(report: &mut Report) -> Result<()> {
    let span = Duration::from_secs(if report.quick() { 12 } else { 60 });
    let fleet = Fleet::start(&Setting::with_budget(BUDGET), &report.photos()).await?;
    let (subject, tenant) = (fleet.offer(NETWORK)?, fleet.tenant("killed", 1).await?);
    let job = Job::usual(&tenant, &subject);
    let expected = fleet.batch(&job, IMAGES).await?;
    let (kills, checked) = tokio::join!(
        killing(&fleet, span),
        check_answers(&fleet, &job, &expected, span)
    );
    let (kills, checked) = (kills?, checked?);
    println!(
        "{kills} lanes killed in {} s: {} images correct, {} lost, {} wrong",
        span.as_secs(),
        checked.right,
        checked.lost,
        checked.wrong
    );
    if let Some(error) = &checked.failure {
        println!("    {error}");
    }
    report.set("kills", kills);
    report.set("lost_after_kills", checked.lost);
    report.set("wrong_after_kills", checked.wrong);
    drop(fleet);
    back(report).await
}

/// Kills the lanes in turn and returns the number of kills.
async fn killing(fleet: &Fleet, span: Duration) -> Result<usize> {
    let end = Instant::now() + span;
    let mut kills = 0;
    loop {
        sleep(EVERY).await;
        if Instant::now() >= end {
            return Ok(kills);
        }
        let lanes = fleet.lanes();
        if let Some(lane) = lanes.get(kills % lanes.len().max(1)) {
            kill(*lane)?;
            kills += 1;
        }
    }
}

fn kill(process: u32) -> Result<()> {
    let killed = Command::new("kill").args(["-9", &process.to_string()]).output()?;
    if !killed.status.success() {
        bail!("kill: {}", String::from_utf8_lossy(&killed.stderr));
    }
    Ok(())
}

/// The checked answers.
#[derive(Default)]
struct Checked {
    right: usize,
    lost: usize,
    wrong: usize,
    /// The last error.
    failure: Option<String>,
}

/// Requests the same batch repeatedly and checks the answers.
async fn check_answers(fleet: &Fleet, job: &Job<'_>, expected: &Tensor, span: Duration) -> Result<Checked> {
    let (end, mut checked) = (Instant::now() + span, Checked::default());
    while Instant::now() < end {
        match fleet.batch(job, IMAGES).await {
            Ok(rows) => {
                let wrong = different(expected, &rows)?;
                checked.wrong += wrong;
                checked.right += IMAGES - wrong;
            }
            Err(error) => {
                checked.lost += IMAGES;
                checked.failure = Some(format!("{error:#}"));
            }
        }
    }
    Ok(checked)
}

/// Number of missing or different rows.
fn different(expected: &Tensor, rows: &Tensor) -> Result<usize> {
    let (expected, rows) = (values(expected)?, values(rows)?);
    let largest = expected
        .iter()
        .fold(0.0_f32, |largest, value| largest.max(value.abs()));
    let row = expected.len().div_ceil(IMAGES).max(1);
    let pairs = expected.chunks(row).zip(rows.chunks(row));
    let wrong = pairs.filter(|(expected, row)| {
        let apart = |(a, b): (&f32, &f32)| (a - b).abs() > TOLERANCE * largest || b.is_nan();
        expected.len() != row.len() || expected.iter().zip(row.iter()).any(apart)
    });
    Ok(wrong.count() + IMAGES.saturating_sub(rows.len() / row))
}

fn values(tensor: &Tensor) -> Result<&[f32]> {
    match tensor.data() {
        Data::F32(values) => Ok(values),
        _ => bail!("activations are not f32"),
    }
}

/// Kills a host's only lane during sequential requests and measures the time to the next answer.
async fn back(report: &mut Report) -> Result<()> {
    let setting = Setting {
        lanes: 1,
        ..Setting::with_budget(BUDGET)
    };
    let fleet = Fleet::start(&setting, &report.photos()).await?;
    let subject = fleet.offer(NETWORK)?;
    let mut milliseconds = Vec::new();
    for number in 0..KILLS {
        // Each kill uses a new tenant; otherwise the model would be quarantined as the cause of lost lanes.
        let tenant: Tenant = fleet.tenant(&format!("back-{number}"), 1).await?;
        let job = Job::usual(&tenant, &subject);
        fleet.batch(&job, 1).await?;
        let lane = *fleet.lanes().first().context("no lane")?;
        let killed = Instant::now();
        kill(lane)?;
        fleet.batch(&job, 1).await?;
        milliseconds.push(killed.elapsed().as_secs_f64() * 1e3);
    }
    let back = median(&milliseconds);
    println!("a host's only lane killed: next image after {back:.0} ms (median of {milliseconds:.0?})\n");
    report.set("serve_again_ms", back);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{IMAGES, different};
    use frostline_tensor::Tensor;

    #[test]
    fn different_and_missing_rows_are_counted() {
        let rows = |count: usize| {
            let values = (0..count * 2).map(|value| value as f32).collect();
            Tensor::f32([count, 2], values).unwrap()
        };
        assert_eq!(different(&rows(IMAGES), &rows(IMAGES)).unwrap(), 0);
        assert_eq!(different(&rows(IMAGES), &rows(IMAGES - 3)).unwrap(), 3);
        let mut values: Vec<f32> = (0..IMAGES * 2).map(|value| value as f32).collect();
        values[5] = f32::NAN;
        let other = Tensor::f32([IMAGES, 2], values).unwrap();
        assert_eq!(different(&rows(IMAGES), &other).unwrap(), 1);
    }
}
