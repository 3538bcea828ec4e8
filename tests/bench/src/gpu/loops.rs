//! Frozen layers on decoded pixels.

use super::Extent;
use super::torch::Forward;
use crate::networks::{Grid, exported};
use crate::report::Report;
use anyhow::{Context, Result};
use bytes::Bytes;
use frostline_batching::device::MemoryEstimate;
use frostline_engine::{CudaOptions, Device, Lanes, LanesConfig, StageSource};
use frostline_fusion::fuse_attention;
use frostline_graph::Model;
use frostline_quantization::{for_precision, to_f16};
use frostline_tensor::{
    Data, ExecutionTerms, GraphExecutor, Normalization, OpError, PixelSpec, Precision, Stage, Tensor, Terms,
};
use futures::{StreamExt, TryStreamExt, stream};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Number of waiting batches per busy lane.
const AHEAD: usize = 2;

/// Uncounted batches per lane, in which the session is opened and algorithms are chosen.
const WARM: usize = 2;

/// Minimum number of batches per turn and lane.
const FEWEST: usize = 3;

/// Precision and switches with which layers are measured.
#[derive(Debug)]
pub(super) struct Variant {
    name: &'static str,
    /// Precision in PyTorch.
    torch: &'static str,
    precision: Precision,
    /// Leaves out the folding of normalizations, which hosts do for f16.
    is_unfolded: bool,
    /// Computes attention in ONNX Runtime's fused operator.
    fuses_attention: bool,
    cuda: CudaOptions,
}

impl Variant {
    /// The variant to which the activations of other variants are compared.
    pub(super) const F32: Self = Self {
        name: "f32",
        torch: "f32",
        precision: Precision::Full,
        is_unfolded: false,
        fuses_attention: false,
        cuda: CudaOptions {
            nhwc: None,
            fuse_conv_bias: false,
            graphs: false,
        },
    };

    const TF32: Self = Self {
        name: "tf32",
        torch: "tf32",
        precision: Precision::Tf32,
        ..Self::F32
    };

    const F16: Self = Self {
        name: "f16",
        torch: "f16",
        precision: Precision::F16,
        ..Self::F32
    };

    /// Returns true if the variant can run on this device and differs from the others there. ONNX Runtime's
    /// fused attention supports only f32 on CPUs.
    fn applies(&self, device: Device) -> bool {
        let is_usual = self.cuda == Self::F32.cuda;
        let rewrites_half = self.precision == Precision::F16 && !self.fuses_attention;
        device != Device::Cpu || is_usual && (self.precision.is_full() || rewrites_half)
    }

    /// Returns the network that is measured for `network`.
    fn rewrite(&self, network: Model) -> Result<Model> {
        let network = match self.is_unfolded {
            true => to_f16(&network)?,
            false => for_precision(network, self.precision)?,
        };
        Ok(match self.fuses_attention {
            true => fuse_attention(&network)?.0,
            false => network,
        })
    }

    /// Returns the settings of `lanes` lanes.
    fn config(&self, lanes: usize, device: Device) -> LanesConfig {
        LanesConfig {
            lanes,
            cuda: self.cuda,
            ..one_lane(device)
        }
    }
}

pub(super) fn one_lane(device: Device) -> LanesConfig {
    LanesConfig {
        lanes: 1,
        ..LanesConfig::for_device(device)
    }
}

/// Variants that jobs can select, in the order of measurement. The first one is exact.
const VARIANTS: [Variant; 3] = [Variant::F32, Variant::TF32, Variant::F16];

/// Variants with one changed switch, and the variants that hosts use.
const SWITCHED: [(Variant, &Variant); 8] = [
    (
        Variant {
            name: "f16_attention",
            fuses_attention: true,
            ..Variant::F16
        },
        &Variant::F16,
    ),
    (
        Variant {
            name: "f16_graphs",
            cuda: CudaOptions {
                graphs: true,
                ..Variant::F16.cuda
            },
            ..Variant::F16
        },
        &Variant::F16,
    ),
    (
        Variant {
            name: "f16_conv_bias",
            cuda: CudaOptions {
                fuse_conv_bias: true,
                ..Variant::F16.cuda
            },
            ..Variant::F16
        },
        &Variant::F16,
    ),
    (
        Variant {
            name: "f16_nchw",
            cuda: CudaOptions {
                nhwc: Some(false),
                ..Variant::F16.cuda
            },
            ..Variant::F16
        },
        &Variant::F16,
    ),
    (
        Variant {
            name: "f16_all",
            fuses_attention: true,
            cuda: CudaOptions {
                nhwc: None,
                fuse_conv_bias: true,
                graphs: true,
            },
            ..Variant::F16
        },
        &Variant::F16,
    ),
    (
        Variant {
            name: "f16_unfolded",
            is_unfolded: true,
            ..Variant::F16
        },
        &Variant::F16,
    ),
    (
        Variant {
            name: "tf32_attention",
            fuses_attention: true,
            ..Variant::TF32
        },
        &Variant::TF32,
    ),
    (
        Variant {
            name: "f32_attention",
            fuses_attention: true,
            ..Variant::F32
        },
        &Variant::F32,
    ),
];

/// Seconds that must be left for `torch.compile`, which needs up to a minute for a network.
const COMPILE_SECONDS: u64 = 60;

/// Layers up to the freeze cut.
pub(super) struct Prefix {
    model: Bytes,
    stage: Stage,
}

/// Serves models by name.
struct Models(HashMap<String, Bytes>);

impl StageSource for Models {
    fn stage_model(&self, stage: &Stage) -> Result<Bytes, OpError> {
        let model = self.0.get(&stage.model).cloned();
        model.ok_or_else(|| OpError::invalid(format!("unknown model {}", stage.model)))
    }

    fn guess(&self, stage: &Stage) -> MemoryEstimate {
        let bytes = self.0.get(&stage.model).map_or(0, |model| model.len() as u64);
        MemoryEstimate {
            session: 4 * bytes,
            fixed: 64 << 20,
            per_row: 32 << 20,
        }
    }
}

impl Prefix {
    pub(super) fn read(network: &str, variant: &Variant) -> Result<Self> {
        let cut = Grid::read()?.network(network)?.freeze.clone();
        let model = Model::read(exported(network)?)?;
        let from = model.input_name()?.to_owned();
        let prefix = variant.rewrite(model.slice(None, Some(&cut))?)?;
        Ok(Self {
            model: prefix.to_bytes()?.into(),
            stage: Stage {
                model: network.to_owned(),
                from,
                to: cut,
                pixels: Some(Normalization::from_spec(&PixelSpec::imagenet(224, 224))),
                precision: variant.precision,
            },
        })
    }

    fn start(&self, config: LanesConfig) -> Result<Lanes> {
        Self::start_all(std::slice::from_ref(self), config)
    }

    /// Starts lanes that run any of `prefixes`.
    pub(super) fn start_all(prefixes: &[Self], config: LanesConfig) -> Result<Lanes> {
        let models = prefixes
            .iter()
            .map(|prefix| (prefix.stage.model.clone(), prefix.model.clone()));
        Ok(Lanes::start(config, Arc::new(Models(models.collect())))?)
    }

    /// Runs `rows` images for a tenant.
    pub(super) async fn extract(&self, lanes: &Lanes, tenant: &str, rows: usize) -> Result<()> {
        let executor = lanes.for_tenant(tenant);
        executor.submit(&self.stage, pixels(rows)?).await?;
        Ok(())
    }

    /// Runs at least `rows` images in batches of `batch`. Returns the images per second and the first
    /// activations.
    async fn rate(&self, lanes: &Lanes, batch: usize, rows: usize) -> Result<(f64, Tensor)> {
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

/// Measures all networks, variants and batch sizes on a single lane, next to PyTorch. The best batch size is
/// also measured on two lanes.
pub(super) async fn run(report: &mut Report, extent: &Extent) -> Result<()> {
    for network in &extent.networks {
        if !extent.has_time(network) {
            continue;
        }
        println!("\n{network:<14} lanes batch   images/s    PyTorch");
        let mut torch = Forward::start(network, extent)?;
        let mut exact = None;
        for variant in &VARIANTS {
            let name = format!("{network}_{}", variant.name);
            if variant.applies(extent.device) && extent.has_time(&name) {
                measure(report, extent, network, variant, &mut torch, &mut exact).await?;
            }
        }
        switches(report, extent, network).await?;
        compile(report, extent, network, &mut torch)?;
    }
    Ok(())
}

/// Measures a variant. `exact` contains the activations of the first one, which is in full precision.
async fn measure(
    report: &mut Report,
    extent: &Extent,
    network: &str,
    variant: &Variant,
    torch: &mut Forward,
    exact: &mut Option<Tensor>,
) -> Result<()> {
    let name = format!("{network}_{}", variant.name);
    // PyTorch has no fast f16 convolutions on CPUs.
    let has_peer = extent.device != Device::Cpu || variant.torch != "f16";
    let prefix = Prefix::read(network, variant)?;
    let lanes = prefix.start(variant.config(1, extent.device))?;
    let (mut best, mut best_torch) = ((0.0, 0), f64::NAN);
    for &batch in extent.batches {
        if best.1 > 0 && !extent.has_time(&format!("{name} with {batch} rows")) {
            break;
        }
        let (rate, rows) = prefix.rate(&lanes, batch, extent.rows).await?;
        report.set(&format!("{name}_b{batch}_images_per_second"), rate);
        if best.1 == 0 {
            let cosine = frostline_quantization::cosine(exact.get_or_insert_with(|| rows.clone()), &rows);
            println!("{name:<14} cosine to f32 {cosine:.6}");
            report.set(&format!("{name}_cosine"), cosine);
        }
        if rate > best.0 {
            best = (rate, batch);
        }
        println!("{name:<14} {:>5} {batch:>5} {rate:>10.0}", 1);
        if has_peer {
            let mut fastest = f64::NAN;
            for (layout, rate) in torch.eager(variant.torch, batch)? {
                report.set(
                    &format!("{name}_b{batch}_pytorch_{layout}_images_per_second"),
                    rate,
                );
                fastest = fastest.max(rate);
            }
            println!("{name:<14}       {batch:>5} {fastest:>21.0}");
            best_torch = best_torch.max(fastest);
            report.set(&format!("{name}_ratio_vs_pytorch"), best.0 / best_torch);
        }
    }
    drop(lanes);
    let (rate, batch) = best;
    if extent.has_time(&format!("{name} on two lanes")) {
        let lanes = prefix.start(variant.config(2, extent.device))?;
        let (two, _) = prefix.rate(&lanes, batch, extent.rows).await?;
        println!("{name:<14} {:>5} {batch:>5} {two:>10.0}", 2);
        report.set(&format!("{name}_two_lanes_images_per_second"), two);
        if has_peer {
            report.set(&format!("{name}_ratio_vs_pytorch"), rate.max(two) / best_torch);
        }
    }
    Ok(())
}

/// Compares each switch with the variant that hosts use, with the rows of a host's engine batch.
async fn switches(report: &mut Report, extent: &Extent, network: &str) -> Result<()> {
    let Some(&batch) = extent.batches.get(1) else {
        return Ok(());
    };
    let applicable = SWITCHED
        .iter()
        .filter(|(switched, _)| switched.applies(extent.device));
    for (switched, usual) in applicable {
        let name = format!("{network}_{}", switched.name);
        if !extent.has_time(&name) {
            break;
        }
        let mut measured = Vec::new();
        for variant in [usual, switched] {
            let prefix = Prefix::read(network, variant)?;
            let lanes = prefix.start(variant.config(1, extent.device))?;
            measured.push(prefix.rate(&lanes, batch, extent.rows).await?);
        }
        if let [(usual, expected), (rate, rows)] = &measured[..] {
            let cosine = frostline_quantization::cosine(expected, rows);
            println!(
                "{name:<24} {:>5.2} of the usual rate, cosine {cosine:.6}",
                rate / usual
            );
            report.set(&format!("{name}_over_usual"), rate / usual);
            report.set(&format!("{name}_cosine"), cosine);
        }
    }
    Ok(())
}

/// Measures `torch.compile`. On a CPU, a backend without a compiler is used.
fn compile(report: &mut Report, extent: &Extent, network: &str, torch: &mut Forward) -> Result<()> {
    let (backend, seconds) = match extent.device {
        Device::Cpu => ("aot_eager", 0),
        Device::Cuda(_) => ("inductor", COMPILE_SECONDS),
    };
    let Some(&batch) = extent.batches.get(extent.batches.len() / 2) else {
        return Ok(());
    };
    for variant in VARIANTS
        .iter()
        .rev()
        .filter(|variant| variant.applies(extent.device))
    {
        let is_measured = extent.device != Device::Cpu || variant.torch == "f32";
        let name = format!("{network}_{}_torch_compile", variant.name);
        if is_measured && extent.has_seconds(&name, seconds) {
            let rate = torch.compiled(variant.torch, batch, backend)?;
            println!("{name} {rate:.0} images/s");
            report.set(&format!("{name}_images_per_second"), rate);
        }
    }
    Ok(())
}
