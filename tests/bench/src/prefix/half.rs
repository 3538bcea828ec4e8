//! Similarity of activations in f16 and f32, computed on the CPU. ONNX Runtime's CPU kernels compute most f16
//! operators in f32 and omit the casts between them, so this similarity is an upper bound. A second figure is
//! for a network in f32 that rounds every activation to 11 bits, as a GPU does.

use super::names;
use crate::networks::{Grid, exported};
use crate::photos::Photos;
use crate::report::{Report, folder, quantile};
use crate::training::torch;
use crate::zoo::filled;
use anyhow::{Context, Result, bail};
use frostline_engine::{Session, SessionOptions};
use frostline_graph::Model;
use frostline_graph::build::{initializer, node};
use frostline_graph::onnx::{GraphProto, data_type};
use frostline_graph::tensors::{from_proto, to_float};
use frostline_images::{DecodeLimits, load_augmented, normalize};
use frostline_quantization::{cosine, to_f16};
use frostline_tensor::{DType, Data, PixelSpec, Tensor};
use frostline_trainer::last_cut_before_head;
use std::collections::HashSet;
use std::io::stderr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Networks of models/zoo/classifiers.py in addition to the paper's. ViT-B/16 is among the paper's.
const TRANSFORMERS: [&str; 7] = [
    "deit_s",
    "swin_t",
    "dinov2_s",
    "eva02_s",
    "siglip_b",
    "clip_b",
    "convnext_tiny",
];

const PHOTOS: usize = 4;
const SIDE: u32 = 224;

/// Smallest similarity that counts as equal.
const TARGET: f64 = 0.999;

/// Compares the activations of every network at its freeze cut.
pub(super) fn run(report: &mut Report) -> Result<()> {
    let (grid, rows) = (Grid::read()?, photos(&report.photos())?);
    println!(
        "\n{:<16} {:>10} {:>10} {:>12} {:>6}",
        "network", "cosine", "rounded", "largest", "casts"
    );
    let mut cosines = Vec::new();
    for name in names(report) {
        let (model, freeze) = (Model::read(exported(&name)?)?, grid.network(&name)?.freeze);
        cosines.push(network(report, &name, &model, &freeze, &rows)?);
    }
    // Networks named on the command line are the paper's.
    let transformers = if report.named().0.is_empty() {
        &TRANSFORMERS[..]
    } else {
        &[]
    };
    for name in transformers
        .iter()
        .take(if report.quick() { 1 } else { TRANSFORMERS.len() })
    {
        let model = filled(Model::read(transformer(name)?)?)?;
        let freeze = last_cut_before_head(&model)?;
        cosines.push(network(report, name, &model, &freeze, &rows)?);
    }
    let least = quantile(&cosines, 0.0);
    report.set("f16_cosine_min", least);
    println!("\nlowest cosine similarity of f16 to f32: {least:.6}, the target is {TARGET}");
    Ok(())
}

/// Returns the lowest cosine similarity of a photo's activations at `freeze`.
fn network(report: &mut Report, name: &str, model: &Model, freeze: &str, rows: &Tensor) -> Result<f64> {
    let exact = model.slice(None, Some(freeze))?;
    let half = to_f16(&exact)?;
    let expected = forward(&exact, rows)?;
    let on_cpu = least_cosine(&expected, &forward(&half, rows)?)?;
    let rounded = least_cosine(&expected, &forward(&rounded(&half)?, rows)?)?;
    let values = expected.as_f32().context("activations must be f32")?;
    let largest = values
        .iter()
        .fold(0.0_f32, |largest, value| largest.max(value.abs()));
    let casts = half.nodes().iter().filter(|node| node.op_type == "Cast").count();
    println!("{name:<16} {on_cpu:>10.6} {rounded:>10.6} {largest:>12.3e} {casts:>6}");
    report.set(&format!("{name}_f16_cosine"), on_cpu);
    report.set(&format!("{name}_f16_cosine_rounded"), rounded);
    report.set(&format!("{name}_f16_casts"), casts);
    Ok(on_cpu.min(rounded))
}

fn least_cosine(expected: &Tensor, found: &Tensor) -> Result<f64> {
    let mut least = f64::INFINITY;
    for row in 0..expected.rows()? {
        let expected = expected.slice_rows(row, row + 1)?;
        least = least.min(cosine(&expected, &found.slice_rows(row, row + 1)?));
    }
    Ok(least)
}

/// Returns an f16 network as an f32 network that rounds the same values to the 11 bits of f16. The range is not
/// limited.
fn rounded(half: &Model) -> Result<Model> {
    /// `x * FACTOR - (x * FACTOR - x)` has 11 bits (Veltkamp's splitting).
    const FACTOR: f32 = 8193.0;
    const NAME: &str = "rounding factor";
    let shapes = half.shapes(1)?;
    let is_half = |name: &str| {
        let value = shapes.get(name);
        value.is_some_and(|value| value.data_type == data_type::FLOAT16)
    };
    let mut graph = half.graph().clone();
    for weight in &mut graph.initializer {
        if weight.data_type == data_type::FLOAT16 {
            let exact = to_float(&from_proto(weight)?, DType::F32).context("f16 has an f32 form")?;
            *weight = initializer(&weight.name, &exact);
        }
    }
    let factor = initializer(NAME, &Tensor::f32(Vec::new(), vec![FACTOR])?);
    graph.initializer.push(factor);
    for mut original in std::mem::take(&mut graph.node) {
        let mut ends = original.input.iter().chain(&original.output);
        if original.op_type == "Cast" && ends.any(|name| is_half(name)) {
            "Identity".clone_into(&mut original.op_type);
            original.attribute.clear();
        }
        let outputs = original.output.clone();
        for name in original.output.iter_mut().filter(|name| is_half(name)) {
            name.push_str("/exact");
        }
        graph.node.push(original);
        for name in outputs.iter().filter(|name| is_half(name)) {
            let [exact, scaled, rest] = ["exact", "scaled", "rest"].map(|part| format!("{name}/{part}"));
            graph.node.extend([
                node("Mul", &[&exact, NAME], &[&scaled]),
                node("Sub", &[&scaled, &exact], &[&rest]),
                node("Sub", &[&scaled, &rest], &[name]),
            ]);
        }
    }
    Ok(half.with_graph(graph)?)
}

fn forward(model: &Model, rows: &Tensor) -> Result<Tensor> {
    let mut session = Session::open(&model.to_bytes()?, &SessionOptions::default())?;
    let outputs = session.run(&[(model.input_name()?, rows)])?;
    let (_, output) = outputs.into_iter().next().context("the network has no output")?;
    Ok(output)
}

/// Decodes the first photos into network input.
fn photos(photos: &Photos) -> Result<Tensor> {
    let spec = PixelSpec::imagenet(SIDE, SIDE);
    let mut crops = Vec::new();
    for file in files(&photos.part("validation"))?.iter().take(PHOTOS) {
        crops.extend(load_augmented(
            &std::fs::read(file)?,
            &spec,
            &DecodeLimits::default(),
            None,
            "",
        )?);
    }
    let [channels, height, width] = spec.sample_shape();
    let count = crops.len() / (channels * height * width);
    let shape = vec![count, channels, height, width];
    Ok(normalize(&Tensor::new(shape, Data::U8(crops))?, &spec)?)
}

/// Returns the first file of each class.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = |folder: &Path| -> Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
        let mut paths = entries
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<Vec<_>>>()?;
        paths.sort();
        Ok(paths)
    };
    let classes = entries(folder)?.into_iter().filter(|path| path.is_dir());
    let first = |class: PathBuf| -> Result<Option<PathBuf>> {
        let images = entries(&class)?.into_iter();
        let is_photo = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "jpg");
        Ok(images.into_iter().find(is_photo))
    };
    let files = classes.map(first).collect::<Result<Vec<_>>>()?;
    Ok(files.into_iter().flatten().collect())
}

/// Returns the file of a transformer without its weights, which is exported by the first call.
fn transformer(name: &str) -> Result<PathBuf> {
    const EXPORT: &str = "dynamo:20";
    let folder = folder()?.join("f16");
    let file = folder.join(format!("{name}.{}.onnx", EXPORT.replace(':', "-")));
    if file.is_file() {
        return Ok(file);
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/zoo/classifiers.py");
    let mut command = Command::new(torch(&["--trainers", "--zoo"])?);
    command
        .args([script, name, "--exports", EXPORT, "--out"])
        .arg(&folder);
    let status = command.stdout(stderr()).status();
    let status = status.context("cannot start PyTorch's interpreter")?;
    if !status.success() || !file.is_file() {
        bail!("cannot export {name} ({status}); see the output above");
    }
    Ok(file)
}

/// Writes `model` to `out` with its layers up to `freeze` in f16, for training on a CPU, where hosts compute in
/// f32.
pub(super) fn with_half_prefix(model: &Path, freeze: &str, out: &Path) -> Result<()> {
    let model = Model::read(model)?;
    let prefix = to_f16(&model.slice(None, Some(freeze))?)?;
    let suffix = model.slice(Some(freeze), None)?;
    let mut graph = GraphProto {
        output: suffix.graph().output.clone(),
        ..prefix.graph().clone()
    };
    let made = prefix.nodes().iter().flat_map(|node| &node.output);
    let mut known: HashSet<&str> = made.map(String::as_str).collect();
    known.extend(prefix.initializers().into_keys());
    let new = |name: &String| !known.contains(name.as_str());
    let nodes = suffix.nodes().iter().filter(|node| node.output.iter().all(new));
    graph.node.extend(nodes.cloned());
    let weights = suffix
        .graph()
        .initializer
        .iter()
        .filter(|weight| new(&weight.name));
    graph.initializer.extend(weights.cloned());
    std::fs::write(out, model.with_graph(graph)?.to_bytes()?)?;
    Ok(())
}
