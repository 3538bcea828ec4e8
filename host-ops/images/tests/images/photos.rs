//! Compares decoding, resizing and cropping of photos with Pillow. For PNGs, up to 0.5 % of the values
//! differ, by one. For JPEGs, the difference is up to 1/255 on average and up to 4/255 per value.

use frostline_images::{DecodeLimits, load};
use frostline_tensor::PixelSpec;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns all real photos. May only be called by tests in a `needs_shared` module.
fn photos() -> Vec<PathBuf> {
    let mut photos = Vec::new();
    collect(&frostline_needs::shared_file("data/clothing"), &mut photos);
    photos.sort();
    assert!(
        !photos.is_empty(),
        "no photos under $FROSTLINE_SHARED/data/clothing"
    );
    photos
}

fn collect(folder: &Path, photos: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, photos);
        } else if path.extension().is_some_and(|extension| extension == "jpg") {
            photos.push(path);
        }
    }
}

/// Returns the concatenated crops of `photos` computed by Pillow, which `cargo xtask test` installs.
fn by_pillow(photos: &[PathBuf]) -> Vec<u8> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images/pillow.py");
    let mut python = Command::new("python3")
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut paths = python.stdin.take().unwrap();
    let lines: Vec<String> = photos
        .iter()
        .map(|photo| format!("{}\n", photo.display()))
        .collect();
    let writer = std::thread::spawn(move || paths.write_all(lines.concat().as_bytes()).unwrap());
    let mut crops = Vec::new();
    python.stdout.take().unwrap().read_to_end(&mut crops).unwrap();
    writer.join().unwrap();
    assert!(python.wait().unwrap().success());
    crops
}

/// Counts how many values of the crops differ from `expected` by 0, by 1, and so on up to the largest
/// difference.
fn differences(photos: &[PathBuf], expected: &[u8]) -> Vec<u64> {
    let spec = PixelSpec::imagenet(224, 224);
    let crop_len = 3 * 224 * 224;
    assert_eq!(expected.len(), photos.len() * crop_len);
    let mut counts = Vec::new();
    for (photo, expected) in photos.iter().zip(expected.chunks_exact(crop_len)) {
        let crop = load(&std::fs::read(photo).unwrap(), &spec, &DecodeLimits::default()).unwrap();
        for (&ours, &theirs) in crop.iter().zip(expected) {
            let difference = usize::from(ours.abs_diff(theirs));
            if difference >= counts.len() {
                counts.resize(difference + 1, 0);
            }
            counts[difference] += 1;
        }
    }
    counts
}

/// Writes a PNG with waves and noise, which makes rounding irregular.
pub(crate) fn write_png(path: &Path, width: u32, height: u32) {
    let mut noise = 12345_u32;
    let pixels: Vec<u8> = (0..width * height)
        .flat_map(|pixel| {
            let x = f64::from(pixel % width);
            let y = f64::from(pixel / width);
            [0.031, 0.047, 0.083].map(|step| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let wave = (x * step).sin() * 70.0 + (y * step).cos() * 50.0;
                (128.0 + wave) as u8 ^ (noise >> 28) as u8
            })
        })
        .collect();
    let mut encoder = png::Encoder::new(std::fs::File::create(path).unwrap(), width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
}

#[test]
fn pngs_are_as_torchvision_loads_them() {
    let folder = tempfile::tempdir().unwrap();
    // Covers downscaling, upscaling, both orientations, odd crop margins and an unchanged side.
    let sizes = [
        (500, 375),
        (375, 500),
        (1024, 999),
        (256, 300),
        (257, 256),
        (100, 90),
        (226, 1500),
    ];
    let photos = sizes.map(|(width, height)| {
        let path = folder.path().join(format!("{width}x{height}.png"));
        write_png(&path, width, height);
        path
    });
    let expected = by_pillow(&photos);
    let counts = differences(&photos, &expected);
    let values: u64 = counts.iter().sum();
    eprintln!("{} PNGs: counts {counts:?}", photos.len());
    assert!(counts.len() <= 2, "{counts:?}");
    assert!((values - counts[0]) * 200 <= values, "{counts:?}");
}

mod needs_shared {
    use super::*;

    #[test]
    fn photos_are_as_pillow_loads_them() {
        let photos = photos();
        let expected = by_pillow(&photos);
        let counts = differences(&photos, &expected);
        let values: u64 = counts.iter().sum();
        let total: u64 = (0..)
            .zip(&counts)
            .map(|(difference, count)| difference * count)
            .sum();
        let mean = total as f64 / values as f64;
        eprintln!(
            "{} JPEGs: mean difference {mean:.4}/255, counts {counts:?}",
            photos.len()
        );
        assert!(mean <= 1.0 && counts.len() <= 5, "mean {mean}, counts {counts:?}");
    }
}
