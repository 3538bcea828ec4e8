//! Compares each kind of image with Pillow.

use crate::{fixture, images};
use frostline_images::{DecodeLimits, RgbImage, decode, resize_and_crop};
use frostline_tensor::PixelSpec;

/// Parses an 8-bit binary PPM written by Pillow.
fn ppm(name: &str) -> RgbImage {
    let bytes = fixture(name);
    let mut lines = bytes.splitn(4, |&byte| byte == b'\n');
    assert_eq!(lines.next().unwrap(), b"P6");
    let size = String::from_utf8(lines.next().unwrap().to_vec()).unwrap();
    let (width, height) = size.split_once(' ').unwrap();
    assert_eq!(lines.next().unwrap(), b"255");
    RgbImage::new(
        width.parse().unwrap(),
        height.parse().unwrap(),
        lines.next().unwrap().to_vec(),
    )
    .unwrap()
}

/// Returns the maximum and mean difference.
fn difference(ours: &[u8], theirs: &[u8]) -> (u8, f64) {
    assert_eq!(ours.len(), theirs.len());
    let differences = ours.iter().zip(theirs).map(|(a, b)| a.abs_diff(*b));
    let sum: u64 = differences.clone().map(u64::from).sum();
    (differences.max().unwrap(), sum as f64 / ours.len() as f64)
}

#[test]
fn every_kind_is_decoded_as_pillow_does() {
    let mut wrong = Vec::new();
    for (name, bytes) in images().into_iter().filter(|(name, _)| !name.contains("-source")) {
        let expected = ppm(&format!(
            "{}.ppm",
            name.replace('.', "-").replace("-jpg", "-jpeg")
        ));
        let image = decode(&bytes, &DecodeLimits::default()).unwrap();
        assert_eq!(
            (image.width(), image.height()),
            (expected.width(), expected.height()),
            "{name}"
        );
        let (largest, mean) = difference(image.pixels(), expected.pixels());
        eprintln!("{name}: largest {largest}, mean {mean:.3}");
        // The standard allows JPEG decoders to round differently. All other formats define exact pixels.
        let allowed = if name.ends_with(".jpg") {
            (4, 1.0)
        } else {
            (0, 0.0)
        };
        if largest > allowed.0 || mean > allowed.1 {
            wrong.push(format!("{name}: largest {largest}, mean {mean:.3}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn resizing_and_cropping_are_torchvisions() {
    let mut differing = 0;
    let mut values = 0;
    for source in ["wide", "tall"] {
        let image = decode(
            &fixture(&format!("{source}-source.png")),
            &DecodeLimits::default(),
        )
        .unwrap();
        for (resize, crop_height, crop_width) in
            [(32, 20, 28), (45, 45, 21), (60, 31, 26), (7, 4, 3), (31, 30, 31)]
        {
            let spec = PixelSpec {
                resize,
                crop_height,
                crop_width,
                ..PixelSpec::imagenet(1, 1)
            };
            let expected = ppm(&format!("{source}-{resize}-{crop_height}x{crop_width}.ppm"));
            let crop = resize_and_crop(&image, &spec).unwrap();
            let plane = (crop_height * crop_width) as usize;
            let interleaved: Vec<u8> = (0..plane)
                .flat_map(|pixel| (0..3).map(move |channel| (channel, pixel)))
                .map(|(c, p)| crop[c * plane + p])
                .collect();
            let (largest, _) = difference(&interleaved, expected.pixels());
            let pairs = interleaved.iter().zip(expected.pixels());
            differing += pairs.filter(|(ours, theirs)| ours != theirs).count();
            values += interleaved.len();
            assert!(
                largest <= 1,
                "{source} {resize} {crop_height}x{crop_width}: {largest}"
            );
        }
    }
    eprintln!("{differing} of {values} values differ by one");
    assert!(differing * 200 <= values, "{differing} of {values}");
}
