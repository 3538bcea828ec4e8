//! `enlarge-photos FROM TO`: copies a folder of photos, each enlarged until its JPEG file has about 110 kB, the average of ImageNet.
//!
//! The bundled photos have 7.6 kB, which no link is too slow for. Photos that are in TO already are kept, so a second run takes no time.

use anyhow::{Context, Result, bail, ensure};
use frostline_images::{DecodeLimits, RgbImage, decode, is_image_name, resize_and_crop};
use frostline_tensor::{Interpolation, PixelSpec, ResizeMode};
use jpeg_encoder::{ColorType, Encoder};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Mean size of the photos in ImageNet's training set, in bytes.
const TARGET_BYTES: usize = 110_000;

/// JPEG quality. Enlarged photos are smooth: at the usual 90 to 95 they would need three times the pixels of ImageNet's.
const QUALITY: u8 = 98;

/// Short side of the first attempt, in pixels; the second is computed from the size of its file.
const FIRST_SIDE: u32 = 400;

/// Exponent of the short side over the size of the file. Files grow more slowly than areas (where it would be 0.5), as enlarged photos
/// get smoother: measured on the bundled photos between 400 and 650 pixels.
const SIDE_EXPONENT: f64 = 0.68;

/// Largest short side in pixels, for photos of a single color, which reach no file size.
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

/// Adds the images below `root`/`folder` to `photos`, as paths relative to `root`.
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
    let folder = to.parent().context("the file has no folder")?;
    fs::create_dir_all(folder)?;
    let unfinished = to.with_extension("part");
    fs::write(&unfinished, enlarge(&photo)?)?;
    Ok(fs::rename(unfinished, to)?)
}

/// The photo as a JPEG of about [`TARGET_BYTES`].
fn enlarge(photo: &RgbImage) -> Result<Vec<u8>> {
    let first = encoded(photo, FIRST_SIDE)?;
    let factor = (TARGET_BYTES as f64 / first.len() as f64).powf(SIDE_EXPONENT);
    let side = (f64::from(FIRST_SIDE) * factor).round() as u32;
    encoded(photo, side.clamp(1, MAX_SIDE))
}

/// The photo with this short side, as a JPEG.
fn encoded(photo: &RgbImage, short_side: u32) -> Result<Vec<u8>> {
    let scale = f64::from(short_side) / f64::from(photo.width().min(photo.height()));
    let scaled = |side: u32| u16::try_from((f64::from(side) * scale) as u64);
    let width = scaled(photo.width()).context("the photo is too wide")?;
    let height = scaled(photo.height()).context("the photo is too tall")?;
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
