//! Real photos against Pillow: decode, resize and crop differ by at most 1/255 on average and 4/255 anywhere.

use frostline_images::{DecodeLimits, load};
use frostline_tensor::PixelSpec;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn photos() -> Option<Vec<PathBuf>> {
    let Some(shared) = std::env::var_os("FROSTLINE_SHARED") else {
        eprintln!("skipped: FROSTLINE_SHARED is not set");
        return None;
    };
    let mut photos = Vec::new();
    collect(&Path::new(&shared).join("data/clothing"), &mut photos);
    photos.sort();
    assert!(
        !photos.is_empty(),
        "no photos under $FROSTLINE_SHARED/data/clothing"
    );
    Some(photos)
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

/// The crops of `photos` by Pillow, one after the other; `None` when Python or Pillow is not there.
fn by_pillow(photos: &[PathBuf]) -> Option<Vec<u8>> {
    let there = Command::new("python3").args(["-c", "import PIL.Image"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: python3 with Pillow is not installed");
        return None;
    }
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
    Some(crops)
}

#[test]
fn photos_are_as_pillow_loads_them() {
    let Some(photos) = photos() else { return };
    let Some(expected) = by_pillow(&photos) else {
        return;
    };
    let spec = PixelSpec::imagenet(224, 224);
    let (mut total, mut largest, mut histogram) = (0_u64, 0_u8, [0_u64; 256]);
    let crop_len = 3 * 224 * 224;
    assert_eq!(expected.len(), photos.len() * crop_len);
    for (photo, expected) in photos.iter().zip(expected.chunks_exact(crop_len)) {
        let crop = load(&std::fs::read(photo).unwrap(), &spec, &DecodeLimits::default()).unwrap();
        for (&ours, &theirs) in crop.iter().zip(expected) {
            let difference = ours.abs_diff(theirs);
            total += u64::from(difference);
            largest = largest.max(difference);
            histogram[usize::from(difference)] += 1;
        }
    }
    let mean = total as f64 / expected.len() as f64;
    let counts = &histogram[..=usize::from(largest)];
    eprintln!(
        "{} photos: mean difference {mean:.4}/255, largest {largest}/255, counts {counts:?}",
        photos.len()
    );
    assert!(mean <= 1.0 && largest <= 4, "mean {mean}, largest {largest}");
}
