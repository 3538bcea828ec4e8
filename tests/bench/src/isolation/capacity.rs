//! Measures the start time of guests and the number of tenants with a guest that fit in 2 GiB, both idle and
//! extracting.

use crate::proc_status::own_bytes;
use crate::report::{Report, median, quantile};
use anyhow::{Context, Result};
use frostline_isolation::distinct;
use frostline_sandbox::{
    Allowance, Call, CallContext, CutView, Guest, Labels, Limits, ModelView, Sandbox, SandboxConfig,
};
use frostline_tensor::{
    BoxFuture, GraphExecutor, LoadedPixels, ObjectReader, OpError, PixelFormat, PixelSpec, SampleLoader,
    SampleRef, Stage, Tensor,
};
use frostline_trainer::Guest as GuestFile;
use futures::future::join_all;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Memory for all tenants, in bytes.
const ROOM: f64 = (2_u64 << 30) as f64;

/// Numbers of concurrent guests.
const IDLE: usize = 1000;
const LIVE: usize = 200;

pub(super) async fn run(report: &mut Report) -> Result<()> {
    let artifacts = tempfile::tempdir()?;
    let sandbox = Sandbox::new(SandboxConfig {
        instances: u32::try_from(LIVE + 8)?,
        artifacts: Some(artifacts.path().to_owned()),
        ..SandboxConfig::default()
    })?;
    starts(report, &sandbox).await?;
    let guests = idle(report, &sandbox).await?;
    live(report, &guests).await
}

/// Instantiates a guest, requests the description and drops the guest: the smallest use of a guest.
async fn starts(report: &mut Report, sandbox: &Sandbox) -> Result<()> {
    let guest = sandbox.prepare(GuestFile::stock().bytes).await?;
    let model = model();
    let mut micros = Vec::new();
    let started = Instant::now();
    for _ in 0..2000 {
        let one = Instant::now();
        guest.describe(&model, "").await?;
        micros.push(one.elapsed().as_secs_f64() * 1e6);
    }
    let rate = micros.len() as f64 / started.elapsed().as_secs_f64();
    let (half, most) = (median(&micros), quantile(&micros, 0.99));
    println!(
        "instantiate, call and drop: median {half:.0} us, p99 {most:.0} us; {rate:.0} per second sequentially"
    );
    report.set("instantiate_p50_us", half);
    report.set("instantiate_p99_us", most);
    report.set("calls_per_second", rate);
    Ok(())
}

/// Prepares one guest per tenant (checked, compiled and mapped) and returns the guests.
async fn idle(report: &mut Report, sandbox: &Sandbox) -> Result<Vec<Guest>> {
    let count = if report.quick() { IDLE / 5 } else { IDLE };
    let (stock, before) = (GuestFile::stock().bytes, resident()?);
    let mut guests = Vec::with_capacity(count);
    for number in 0..count {
        guests.push(sandbox.prepare(distinct(&stock, number)).await?);
    }
    let each = (resident()? - before) / count as f64;
    let fit = (ROOM / each).floor();
    println!(
        "{count} idle tenants: {:.0} KiB each; {fit:.0} fit in 2 GiB",
        each / 1024.0
    );
    report.set("tenants_in_2_gib", fit);
    Ok(guests)
}

/// Measures the memory of extractions that wait for the engine, one per tenant.
async fn live(report: &mut Report, guests: &[Guest]) -> Result<()> {
    let count = LIVE.min(guests.len());
    let model = model();
    let description = guests.first().context("no guests")?.describe(&model, "").await?;
    let call = Call::new(model, &description, "last", "")?;
    let before = resident()?;
    let samples = [SampleRef::new("1")];
    let waiting = guests
        .iter()
        .take(count)
        .enumerate()
        .map(|(number, guest)| guest.extract(&samples, &call, context(number)));
    let measured = async {
        // Enough time for all extractions to reach the engine.
        tokio::time::sleep(Duration::from_secs(3)).await;
        resident()
    };
    let after = tokio::select! {
        after = measured => after?,
        _ = join_all(waiting) => anyhow::bail!("an extraction that must wait forever ended"),
    };
    let each = (after - before) / count as f64;
    let fit = (ROOM / each).floor();
    println!(
        "{count} tenants in an extraction: {:.0} KiB each; {fit:.0} fit in 2 GiB\n",
        each / 1024.0
    );
    report.set("live_tenants_in_2_gib", fit);
    Ok(())
}

fn model() -> Arc<ModelView> {
    Arc::new(ModelView {
        sha256: "5e".repeat(32),
        input: "data".to_owned(),
        input_shape: vec![3, 224, 224],
        joined_inputs: Vec::new(),
        cuts: vec![CutView {
            name: "last".to_owned(),
            shape: vec![4],
        }],
    })
}

fn context(tenant: usize) -> CallContext {
    CallContext {
        executor: Arc::new(Unresponsive),
        loader: Arc::new(Blank),
        augmented: None,
        objects: Arc::new(Unresponsive),
        allowance: Allowance::new(Limits::default()),
        labels: Labels {
            tenant: tenant.to_string(),
            ..Labels::default()
        },
        on_log_line: None,
    }
}

/// An engine and object reader that never answer.
struct Unresponsive;

impl GraphExecutor for Unresponsive {
    fn submit(&self, _: &Stage, _: Tensor) -> BoxFuture<Result<Tensor, OpError>> {
        Box::pin(std::future::pending())
    }
}

impl ObjectReader for Unresponsive {
    fn size(&self, _: SampleRef) -> BoxFuture<Result<u64, OpError>> {
        Box::pin(std::future::pending())
    }

    fn read(&self, _: SampleRef, _: Range<u64>) -> BoxFuture<Result<Vec<u8>, OpError>> {
        Box::pin(std::future::pending())
    }
}

/// Loads gray pixels instead of photos. All values are written, so that memory is committed as for real
/// pixels.
struct Blank;

impl SampleLoader for Blank {
    fn load(
        &self,
        samples: Vec<SampleRef>,
        spec: PixelSpec,
        _: PixelFormat,
    ) -> BoxFuture<Result<LoadedPixels, OpError>> {
        Box::pin(async move {
            let [channels, height, width] = spec.sample_shape();
            let shape = [samples.len(), channels, height, width];
            let values = vec![0.5; shape.iter().product()];
            Ok(LoadedPixels {
                pixels: Tensor::f32(shape, values)?,
                failed: Vec::new(),
            })
        })
    }
}

/// Resident memory of this process in bytes.
fn resident() -> Result<f64> {
    Ok(own_bytes("VmRSS")? as f64)
}
