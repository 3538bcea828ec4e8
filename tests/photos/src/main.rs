//! Copies a folder of photos and enlarges each until its JPEG file has about 110 kB, the average in ImageNet.
//! Usage: `enlarge-photos FROM TO`.
//!
//! The bundled photos average 7.6 kB, too little to make a link the bottleneck. Photos that already exist in
//! TO are not enlarged again.

use anyhow::{Context, Result, bail, ensure};
use frostline_images::{DecodeLimits, RgbImage, decode, resize_and_crop};
use frostline_tensor::{Interpolation, PixelSpec, ResizeMode, is_image_name};
use jpeg_encoder::{ColorType, Encoder};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Mean file size in ImageNet's training set, in bytes.
const TARGET_BYTES: usize = 110_000;

/// JPEG quality. Enlarged photos are smooth and would need three times ImageNet's number of pixels at the
/// usual quality of 90 to 95.
const QUALITY: u8 = 98;

/// Short side in pixels for the first attempt. The second attempt uses a side computed from the first file's
/// size.
const FIRST_SIDE: u32 = 400;

/// Exponent of the short side as a function of the file size. It is larger than 0.5 because enlarged photos
/// are smoother, so files grow more slowly than areas. Measured on the bundled photos between 400 and 650
/// pixels.
const SIDE_EXPONENT: f64 = 0.68;

/// Maximum short side, in pixels. Photos of a single color never reach the target size.
const MAX_SIDE: u32 = 1_000;

fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [from, to] = arguments.as_slice() else {
        bail!("usage: enlarge-photos FROM TO");
    };
    let mut photos = Vec::new();
    find_photos(from, Path::new(""), &mut photos)?;
    ensure!(!photos.is_empty(), "no photos in {}", from.display());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let worker = || {
            while let Some(photo) = photos.get(next.fetch_add(1, Ordering::Relaxed)) {
                enlarge_file(&from.join(photo), &to.join(photo))
                    .with_context(|| format!("cannot enlarge {}", photo.display()))?;
            }
            Ok(())
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| bail!("a worker thread panicked"))
        })
    })
}

/// Adds images below `root`/`folder` to `photos`, as paths relative to `root`.
fn find_photos(root: &Path, folder: &Path, photos: &mut Vec<PathBuf>) -> Result<()> {
    let path = root.join(folder);
    let entries = fs::read_dir(&path).with_context(|| format!("cannot list {}", path.display()))?;
    for entry in entries {
        let entry = entry?;
        let relative = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            find_photos(root, &relative, photos)?;
        } else if is_image_name(&entry.file_name().to_string_lossy()) {
            photos.push(relative);
        }
    }
    Ok(())
}

fn enlarge_file(from: &Path, to: &Path) -> Result<()> {
    if to.is_file() {
        return Ok(());
    }
    let photo = decode(&fs::read(from)?, &DecodeLimits::default())?;
    let folder = to.parent().context("cannot determine the folder of the file")?;
    fs::create_dir_all(folder)?;
    let unfinished = to.with_extension("part");
    fs::write(&unfinished, enlarge(&photo)?)?;
    Ok(fs::rename(unfinished, to)?)
}

/// Encodes the photo as a JPEG of about [`TARGET_BYTES`].
fn enlarge(photo: &RgbImage) -> Result<Vec<u8>> {
    let first = encode_scaled(photo, FIRST_SIDE)?;
    let factor = (TARGET_BYTES as f64 / first.len() as f64).powf(SIDE_EXPONENT);
    let side = (f64::from(FIRST_SIDE) * factor).round() as u32;
    encode_scaled(photo, side.clamp(1, MAX_SIDE))
}

/// Scales the photo to this short side and encodes it as JPEG.
fn encode_scaled(photo: &RgbImage, short_side: u32) -> Result<Vec<u8>> {
    let scale = f64::from(short_side) / f64::from(photo.width().min(photo.height()));
    let scaled = |side: u32| u16::try_from((f64::from(side) * scale) as u64);
    let width = scaled(photo.width()).context("too wide for JPEG")?;
    let height = scaled(photo.height()).context("too tall for JPEG")?;
    let mut spec = PixelSpec::imagenet(height.into(), width.into());
    spec.resize_mode = ResizeMode::Squash;
    spec.interpolation = Interpolation::Lanczos;
    let planes = resize_and_crop(photo, &spec)?;
    let (red, rest) = planes.split_at(planes.len() / 3);
    let (green, blue) = rest.split_at(red.len());
    let pixels: Vec<u8> = red
        .iter()
        .zip(green)
        .zip(blue)
        .flat_map(|((red, green), blue)| [*red, *green, *blue])
        .collect();
    let mut file = Vec::new();
    Encoder::new(&mut file, QUALITY).encode(&pixels, width, height, ColorType::Rgb)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundled_photo_reaches_the_size() {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/zoo/demo/photos/train/cat/00.jpg");
        let photo = decode(&fs::read(file).unwrap(), &DecodeLimits::default()).unwrap();
        let enlarged = enlarge(&photo).unwrap();
        let allowed = TARGET_BYTES * 9 / 10..TARGET_BYTES * 11 / 10;
        assert!(allowed.contains(&enlarged.len()), "{} bytes", enlarged.len());
        let again = decode(&enlarged, &DecodeLimits::default()).unwrap();
        assert!(again.width() > photo.width());
    }
}
