//! Activations of photos at the cuts of networks.

use crate::networks::short;
use crate::photos::Photos;
use anyhow::{Context, Result, bail};
use frostline_engine::{Session, SessionOptions};
use frostline_graph::{Cut, Model};
use frostline_images::{DecodeLimits, load, normalise};
use frostline_tensor::{DType, Data, PixelSpec, Tensor};
use std::path::{Path, PathBuf};

/// Candidates looked at in one network.
const CUTS: usize = 8;

/// A batch of photos at one place of a network.
pub(super) struct Activations {
    /// The cut, or `input`.
    pub(super) name: String,
    /// One row a photo.
    pub(super) rows: Tensor,
    /// Whether these are pixels before normalisation.
    pub(super) pixels: bool,
}

impl Activations {
    /// Bytes of one row as `f32`.
    pub(super) fn f32_bytes(&self) -> Result<f64> {
        Ok(self.rows.shape().row()?.bytes(4)? as f64)
    }
}

/// Runs `count` photos through a network, part by part, and shows `look` the pixels and what comes out at each of its cuts.
pub(super) fn each_cut(
    file: &Path,
    photos: &Photos,
    count: usize,
    mut look: impl FnMut(Activations) -> Result<()>,
) -> Result<()> {
    let model = Model::read(file)?;
    let described = model.network()?;
    let &[3, height, width] = described.input.shape.dims() else {
        bail!("the input of {} is not an image", file.display());
    };
    let spec = PixelSpec::imagenet(u32::try_from(height)?, u32::try_from(width)?);
    let pixels = pixels(&photos.part("validation"), count, &spec)?;
    let mut rows = normalise(&pixels, &spec)?;
    look(Activations {
        name: "input".to_owned(),
        rows: pixels,
        pixels: true,
    })?;
    let mut from = described.input.name.clone();
    for cut in candidates(&described.cuts) {
        let part = model.slice(Some(&from), Some(&cut.name))?.to_bytes()?;
        let mut session = Session::open(
            &part,
            &SessionOptions {
                threads: 2,
                ..SessionOptions::default()
            },
        )?;
        let mut outputs = session.run(&[(from.as_str(), &rows)])?;
        rows = outputs.pop().context("a part of the network gave nothing")?.1;
        look(Activations {
            name: short(&cut.name).to_owned(),
            rows: rows.clone(),
            pixels: false,
        })?;
        from.clone_from(&cut.name);
    }
    Ok(())
}

/// The cuts before the head in groups of neighbours; of each group the smallest, and of those the last: where a block ends.
fn candidates(cuts: &[Cut]) -> Vec<&Cut> {
    let possible: Vec<&Cut> = cuts
        .iter()
        .filter(|cut| cut.before_head && cut.dtype == DType::F32)
        .collect();
    let group = possible.len().div_ceil(CUTS).max(1);
    let smallest = |group: &[&'_ Cut]| group.iter().map(|cut| cut.bytes_per_sample).min();
    possible
        .chunks(group)
        .filter_map(|group| {
            let least = smallest(group);
            group
                .iter()
                .rev()
                .find(|cut| Some(cut.bytes_per_sample) == least)
                .copied()
        })
        .collect()
}

/// The first photo of each class in turn, decoded and cropped, before normalisation.
fn pixels(folder: &Path, count: usize, spec: &PixelSpec) -> Result<Tensor> {
    let mut bytes = Vec::new();
    let mut found = 0;
    for class in sorted(folder)?.iter().cycle().take(count) {
        let photos = sorted(class)?;
        let photo = photos
            .get(found / 10)
            .or(photos.first())
            .context("a class has no photos")?;
        bytes.extend(load(&std::fs::read(photo)?, spec, &DecodeLimits::default())?);
        found += 1;
    }
    let [channels, height, width] = spec.sample_shape();
    Ok(Tensor::new([found, channels, height, width], Data::U8(bytes))?)
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    Ok(paths)
}
