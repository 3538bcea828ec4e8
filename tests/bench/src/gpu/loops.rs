//! Frozen layers on decoded pixels.

use super::Extent;
use super::torch::forward;
use crate::networks::{Grid, exported};
use crate::report::Report;
use anyhow::{Context, Result};
use bytes::Bytes;
use frostline_engine::{Device, Lanes, LanesConfig, StageSource};
use frostline_graph::Model;
use frostline_quantization::for_precision;
use frostline_tensor::{
    Data, ExecutionTerms, GraphExecutor, Normalization, OpError, PixelSpec, Precision, Stage, Tensor, Terms,
};
use futures::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::time::Instant;

/// Number of waiting batches per busy lane.
const AHEAD: usize = 2;

/// Uncounted batches per lane, in which the session is opened and algorithms are chosen.
const WARM: usize = 2;

/// Minimum number of batches per turn and lane.
const FEWEST: usize = 3;

/// Data types in which layers compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    F32,
    Tf32,
    F16,
}

impl Way {
    /// Returns the data types that differ on this device.
    fn on(device: Device) -> &'static [Self] {
        match device {
            Device::Cpu => &[Self::F32, Self::F16],
            Device::Cuda(_) => &[Self::F32, Self::Tf32, Self::F16],
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::F16 => "f16",
        }
    }

    fn precision(self) -> Precision {
        match self {
            Self::F32 => Precision::Full,
            Self::Tf32 => Precision::Tf32,
            Self::F16 => Precision::F16,
        }
    }
}

/// Layers up to the freeze cut.
pub(super) struct Prefix {
    pub(super) network: String,
    model: Bytes,
    stage: Stage,
}

/// Serves the same model for every stage.
struct OneStage(Bytes);

impl StageSource for OneStage {
    fn stage_model(&self, _: &Stage) -> Result<Bytes, OpError> {
        Ok(self.0.clone())
    }
}

impl Prefix {
    pub(super) fn read(network: &str, way: Way) -> Result<Self> {
        let cut = Grid::read()?.network(network)?.freeze.clone();
        let model = Model::read(exported(network)?)?;
        let from = model.input_name()?.to_owned();
        let prefix = model.slice(None, Some(&cut))?;
        let prefix = for_precision(prefix, way.precision())?;
        Ok(Self {
            network: network.to_owned(),
            model: prefix.to_bytes()?.into(),
            stage: Stage {
                model: String::new(),
                from,
                to: cut,
                pixels: Some(Normalization::from_spec(&PixelSpec::imagenet(224, 224))),
                precision: way.precision(),
            },
        })
    }

    pub(super) fn start(&self, config: LanesConfig) -> Result<Lanes> {
        Ok(Lanes::start(config, Arc::new(OneStage(self.model.clone())))?)
    }

    /// Runs at least `rows` images in batches of `batch`. Returns the images per second and the first
    /// activations.
    pub(super) async fn rate(&self, lanes: &Lanes, batch: usize, rows: usize) -> Result<(f64, Tensor)> {
        let terms = Terms {
            fixed_batch: Some(batch),
            precision: self.stage.precision,
            ..Terms::default()
        };
        let executor = lanes.for_tenant("bench").on_terms(
            1,
            ExecutionTerms {
                terms,
                ..ExecutionTerms::default()
            },
        );
        let waiting = AHEAD * lanes.lanes();
        let submit = |pixels: Tensor| executor.submit(&self.stage, pixels);
        let mut first = None;
        for _ in 0..WARM * lanes.lanes() {
            let rows = submit(pixels(batch)?).await?;
            first.get_or_insert(rows);
        }
        let count = rows.div_ceil(batch).max(FEWEST * lanes.lanes());
        let batches = (0..count).map(|_| pixels(batch)).collect::<Result<Vec<_>>>()?;
        let started = Instant::now();
        let done: usize = stream::iter(batches)
            .map(submit)
            .buffer_unordered(waiting)
            .try_fold(0, async |sum, rows| Ok(sum + rows.rows().unwrap_or_default()))
            .await?;
        let rate = done as f64 / started.elapsed().as_secs_f64();
        Ok((rate, first.context("at least one lane is required")?))
    }
}

fn pixels(rows: usize) -> Result<Tensor> {
    let length = rows * 3 * 224 * 224;
    let mut state = 1_u32;
    let values = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    });
    Ok(Tensor::new(
        vec![rows, 3, 224, 224],
        Data::U8(values.take(length).collect()),
    )?)
}

/// Measures all networks, precisions and batch sizes on a single lane. The best batch size is also measured
/// on two lanes and in PyTorch.
pub(super) async fn run(report: &mut Report, extent: &Extent) -> Result<()> {
    println!(
        "{:<10} {:<5} {:>5} {:>5} {:>10} {:>10} {:>8}",
        "network", "", "lanes", "batch", "images/s", "PyTorch", "cosine"
    );
    for network in &extent.networks {
        let mut exact = None;
        for &way in Way::on(extent.device) {
            let name = format!("{network}_{}", way.name());
            if !extent.has_time(&name) {
                continue;
            }
            let prefix = Prefix::read(network, way)?;
            let mut best = (0.0, 0);
            let lanes = prefix.start(one_lane(extent))?;
            for &batch in extent.batches {
                let (rate, rows) = prefix.rate(&lanes, batch, extent.rows).await?;
                let cosine = frostline_quantization::cosine(exact.get_or_insert_with(|| rows.clone()), &rows);
                println!("{network:<10} {:<5} {:>5} {batch:>5} {rate:>10.0}", way.name(), 1);
                report.set(&format!("{name}_b{batch}_images_per_second"), rate);
                if extent.batches.first() == Some(&batch) {
                    report.set(&format!("{name}_cosine"), cosine);
                    println!("{network:<10} {:<5} cosine to f32 {cosine:.6}", way.name());
                }
                if rate > best.0 {
                    best = (rate, batch);
                }
            }
            drop(lanes);
            at_best(report, extent, &prefix, way, best).await?;
        }
    }
    Ok(())
}

/// Measures two lanes and PyTorch at the best batch size for a single lane.
async fn at_best(
    report: &mut Report,
    extent: &Extent,
    prefix: &Prefix,
    way: Way,
    (rate, batch): (f64, usize),
) -> Result<()> {
    let name = format!("{}_{}", prefix.network, way.name());
    let lanes = prefix.start(LanesConfig {
        lanes: 2,
        ..one_lane(extent)
    })?;
    let (two, _) = prefix.rate(&lanes, batch, extent.rows).await?;
    drop(lanes);
    report.set(&format!("{name}_two_lanes_images_per_second"), two);
    println!(
        "{:<10} {:<5} {:>5} {batch:>5} {two:>10.0}",
        prefix.network,
        way.name(),
        2
    );
    if extent.device == Device::Cpu && way == Way::F16 {
        // PyTorch has no fast f16 convolutions on CPUs.
        return Ok(());
    }
    let torch = forward(&prefix.network, way, batch, extent)?;
    report.set(&format!("{name}_pytorch_images_per_second"), torch);
    report.set(&format!("{name}_ratio_vs_pytorch"), rate.max(two) / torch);
    println!(
        "{:<10} {:<5} {:>5} {batch:>5} {rate:>10.0} {torch:>10.0}",
        prefix.network,
        way.name(),
        1
    );
    Ok(())
}

pub(super) fn one_lane(extent: &Extent) -> LanesConfig {
    LanesConfig {
        lanes: 1,
        ..LanesConfig::for_device(extent.device)
    }
}
