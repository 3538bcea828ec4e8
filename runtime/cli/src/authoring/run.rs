use super::workbench::{LocalModel, Workbench, read_guest};
use crate::arguments::RunGuest;
use crate::extract::{check_output, write_activations};
use crate::output::{bytes, print_json, print_table};
use anyhow::{Context, Result, bail};
use frostline_engine::Device;
use frostline_sandbox::{Call, Extracted, Limits, Sandbox, SandboxConfig, Usage};
use frostline_tensor::{DType, OpErrorCode, SampleRef};
use frostline_trainer::last_cut_before_head;
use serde::Serialize;
use std::collections::HashSet;
use std::time::Instant;

/// Number of printed values per activation. With more, rows would exceed 100 columns.
const SHOWN: usize = 6;

/// Result of a call.
#[derive(Debug, Serialize)]
pub(super) struct CallReport {
    /// Name and version from the guest's description.
    guest: String,
    sha256: String,
    split: String,
    dtype: DType,
    shape: Vec<usize>,
    rows: Vec<ActivationSummary>,
    failed: Vec<FailedSample>,
    seconds: Seconds,
    limits: Vec<Used>,
}

/// Activation of a sample.
#[derive(Debug, Serialize)]
struct ActivationSummary {
    key: String,
    /// The first values.
    values: Vec<f32>,
    min: f32,
    mean: f32,
    max: f32,
}

/// A failed sample and the error.
#[derive(Debug, Serialize)]
struct FailedSample {
    key: String,
    code: OpErrorCode,
    message: String,
}

/// Durations in seconds.
#[derive(Debug, Serialize)]
struct Seconds {
    prepare: f64,
    describe: f64,
    /// Duration of the first call, including loading the network.
    extract: f64,
}

/// Usage of a limit.
#[derive(Debug, Serialize)]
struct Used {
    limit: &'static str,
    unit: Unit,
    used: u64,
    allowed: u64,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Unit {
    Bytes,
    Count,
    Milliseconds,
}

impl Unit {
    fn format(self, count: u64) -> String {
        match self {
            Self::Bytes => bytes(count),
            Self::Count => count.to_string(),
            Self::Milliseconds => format!("{:.2} s", count as f64 / 1e3),
        }
    }
}

/// Runs a call and prints the report.
///
/// # Errors
/// Returns an error if the call or all samples failed.
pub(super) async fn run(flags: &RunGuest, json: bool) -> Result<()> {
    if let Some(file) = &flags.out {
        check_output(file)?;
    }
    let (report, extracted) = extract(flags).await?;
    if let Some(file) = &flags.out {
        let keys = report.rows.iter().map(|row| row.key.as_str()).collect();
        tokio::task::block_in_place(|| write_activations(file, keys, &extracted.activations))?;
    }
    if json {
        print_json(&report)?;
    } else {
        show(&report)?;
    }
    let rows = report.shape.first().copied().unwrap_or_default();
    match report.failed.first() {
        Some(first) if rows == 0 => bail!(
            "all {} samples failed; the first error is {}: {}",
            flags.keys.len(),
            first.key,
            first.code.to_string().replace('-', " ")
        ),
        _ => Ok(()),
    }
}

/// Runs a call in the sandbox and the engine like a host.
pub(super) async fn extract(flags: &RunGuest) -> Result<(CallReport, Extracted)> {
    let bytes = read_guest(&flags.file)?;
    let model = LocalModel::read(&flags.model, &flags.interface)?;
    let split = match &flags.split {
        Some(split) => split.clone(),
        None => last_cut_before_head(&model.model)?,
    };
    let view = model.view.clone();
    let device: Device = flags.device.parse()?;
    let bench = Workbench::open(&flags.data, model, device)?;
    let config = SandboxConfig::default();
    let memory = config.memory_bytes;

    let started = Instant::now();
    let guest = Sandbox::new(config)?.prepare(bytes).await?;
    let prepare = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let description = guest.describe(&view, &flags.parameters).await?;
    let describe = started.elapsed().as_secs_f64();
    let call = Call::new(view, &description, &split, &flags.parameters)?;
    let samples: Vec<SampleRef> = flags.keys.iter().map(SampleRef::new).collect();
    let context = bench.context(&description.name);
    let allowance = context.allowance.clone();
    let started = Instant::now();
    let extracted = guest.extract(&samples, &call, context).await?;
    let took = started.elapsed();

    let failed = extracted.failed.iter().map(|failure| FailedSample {
        key: flags.keys.get(failure.index).cloned().unwrap_or_default(),
        code: failure.error.code,
        message: failure.error.message.clone(),
    });
    let milliseconds = u64::try_from(took.as_millis()).context("the call took too long to count")?;
    let report = CallReport {
        guest: format!("{} {}", description.name, description.version),
        sha256: guest.sha256().to_owned(),
        split,
        dtype: extracted.activations.dtype(),
        shape: extracted.activations.shape().dims().to_vec(),
        rows: rows(&flags.keys, &extracted)?,
        failed: failed.collect(),
        seconds: Seconds {
            prepare,
            describe,
            extract: took.as_secs_f64(),
        },
        limits: used(allowance.usage(), memory, allowance.limits(), milliseconds),
    };
    Ok((report, extracted))
}

/// Returns the activations of the successful samples.
fn rows(keys: &[String], extracted: &Extracted) -> Result<Vec<ActivationSummary>> {
    let values = extracted
        .activations
        .as_f32()
        .context("activations must be f32")?;
    let failed: HashSet<usize> = extracted.failed.iter().map(|failure| failure.index).collect();
    let good: Vec<&String> = (0..)
        .zip(keys)
        .filter(|(index, _)| !failed.contains(index))
        .map(|(_, key)| key)
        .collect();
    let width = (values.len() / good.len().max(1)).max(1);
    Ok(good
        .into_iter()
        .zip(values.chunks(width))
        .map(|(key, values)| ActivationSummary {
            key: key.clone(),
            values: values.iter().copied().take(SHOWN).collect(),
            min: values.iter().copied().fold(f32::INFINITY, f32::min),
            mean: values.iter().sum::<f32>() / width as f32,
            max: values.iter().copied().fold(f32::NEG_INFINITY, f32::max),
        })
        .collect())
}

fn used(usage: Usage, memory: usize, limits: &Limits, milliseconds: u64) -> Vec<Used> {
    use Unit::{Bytes, Count, Milliseconds};
    let call = u64::try_from(limits.call_deadline.as_millis()).unwrap_or(u64::MAX);
    // Rounded up, because a guest that was executed must not show 0 ms.
    let cpu = u64::try_from(usage.cpu.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
    let cpu_limit = limits.cpu_seconds.saturating_mul(1000);
    let tensor_limit = limits.tensor_bytes as u64;
    [
        ("time of a call", Milliseconds, milliseconds, call),
        ("guest CPU time", Milliseconds, cpu, cpu_limit),
        ("guest memory", Bytes, usage.memory_peak, memory as u64),
        ("tensors at once", Bytes, usage.tensor_bytes_peak, tensor_limit),
        ("object reads", Count, usage.object_reads, limits.object_reads),
        ("object bytes", Bytes, usage.object_bytes, limits.object_bytes),
        ("output bytes", Bytes, usage.output_bytes, limits.output_bytes),
        ("log bytes", Bytes, usage.log_bytes, limits.log_bytes),
    ]
    .map(|(limit, unit, used, allowed)| Used {
        limit,
        unit,
        used,
        allowed,
    })
    .into()
}

fn show(report: &CallReport) -> Result<()> {
    let shape: Vec<String> = report.shape.iter().map(usize::to_string).collect();
    say!("{}  sha256:{}", report.guest, report.sha256);
    say!("split {}: {} {}", report.split, report.dtype, shape.join("x"));
    let rows = report.rows.iter().map(|row| {
        let first: Vec<String> = row.values.iter().map(|value| format!("{value:.3}")).collect();
        let [min, mean, max] = [row.min, row.mean, row.max].map(|value| format!("{value:.3}"));
        [row.key.clone(), first.join(" "), min, mean, max]
    });
    print_table("KEY|FIRST VALUES|MIN>|MEAN>|MAX>", rows)?;
    for failed in &report.failed {
        say!("failed {} ({}): {}", failed.key, failed.code, failed.message);
    }
    let took = &report.seconds;
    say!(
        "compiled in {:.2} s, described in {:.3} s, extracted in {:.2} s\n",
        took.prepare,
        took.describe,
        took.extract
    );
    let rows = report.limits.iter().map(|used| {
        let share = 100.0 * used.used as f64 / used.allowed.max(1) as f64;
        [
            used.limit.to_owned(),
            used.unit.format(used.used),
            used.unit.format(used.allowed),
            format!("{share:.1} %"),
        ]
    });
    print_table("LIMIT|USED>|ALLOWED>|SHARE>", rows)
}
