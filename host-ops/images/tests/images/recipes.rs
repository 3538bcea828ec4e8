//! Compares preprocessing by published configurations of timm, transformers and torchvision with Pillow. For
//! PNGs, up to 0.5 % of the values differ by one. Cubic and Lanczos filters may differ by two in up to 0.001
//! % of the values.

use crate::photos::write_png;
use frostline_images::{DecodeLimits, RgbImage, load, resize_and_crop};
use frostline_tensor::{ChannelOrder, Interpolation, PixelSpec, ResizeMode};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use Interpolation::{Bicubic, Bilinear, Lanczos, Nearest};
use ResizeMode::{Pad, Short, Squash};

/// Configuration of a network in its library, and the equivalent recipe.
struct Case {
    network: &'static str,
    library: &'static str,
    config: Value,
    spec: PixelSpec,
}

const HALF: [f32; 3] = [0.5; 3];

fn spec(interpolation: Interpolation, resize_mode: ResizeMode, resize: u32, crop: u32) -> PixelSpec {
    PixelSpec {
        resize,
        interpolation,
        resize_mode,
        ..PixelSpec::imagenet(crop, crop)
    }
}

fn timm(network: &'static str, input: u32, crop_pct: f64, spec: PixelSpec) -> Case {
    let config = json!({
        "input_size": [3, input, input],
        "crop_pct": crop_pct,
        "interpolation": spec.interpolation.to_string(),
        "crop_mode": match spec.resize_mode { Short => "center", Squash => "squash", Pad => "border" },
        "mean": spec.mean,
    });
    Case {
        network,
        library: "timm",
        config,
        spec,
    }
}

fn transformers(network: &'static str, config: Value, spec: PixelSpec) -> Case {
    Case {
        network,
        library: "transformers",
        config,
        spec,
    }
}

fn torchvision(network: &'static str, resize: u32, crop: u32, interpolation: Interpolation) -> Case {
    Case {
        network,
        library: "torchvision",
        config: json!({"resize_size": resize, "crop_size": crop, "interpolation": interpolation.to_string()}),
        spec: spec(interpolation, Short, resize, crop),
    }
}

fn cases() -> Vec<Case> {
    let square = |side: u32| json!({"height": side, "width": side});
    let halves = |spec| PixelSpec {
        mean: HALF,
        std: HALF,
        ..spec
    };
    let mut border = spec(Bicubic, Pad, 224, 224);
    border.mean = [124.0 / 255.0, 116.0 / 255.0, 104.0 / 255.0];
    border.fill = [124, 116, 104];
    vec![
        timm(
            "vit_small_patch16_224.augreg",
            224,
            0.9,
            halves(spec(Bicubic, Short, 248, 224)),
        ),
        timm(
            "convnext_tiny.in12k_ft_in1k",
            224,
            0.95,
            spec(Bicubic, Short, 235, 224),
        ),
        timm(
            "convnext_tiny.fb_in1k",
            224,
            0.875,
            spec(Bicubic, Short, 256, 224),
        ),
        timm(
            "efficientnet_b0.ra_in1k",
            224,
            0.875,
            spec(Bicubic, Short, 256, 224),
        ),
        timm(
            "vit_small_patch14_dinov2.lvd142m",
            518,
            1.0,
            spec(Bicubic, Short, 518, 518),
        ),
        timm(
            "swin_tiny_patch4_window7_224.ms_in1k",
            224,
            0.9,
            spec(Bicubic, Short, 248, 224),
        ),
        timm(
            "inception_v3.tf_in1k",
            299,
            0.875,
            halves(spec(Bicubic, Short, 341, 299)),
        ),
        timm(
            "vit_base_patch16_siglip_224.webli",
            224,
            0.9,
            halves(spec(Bicubic, Squash, 248, 224)),
        ),
        timm(
            "mobilenetv4_conv_small.e2400_r224_in1k",
            224,
            0.95,
            spec(Bicubic, Short, 235, 224),
        ),
        timm("border", 224, 1.0, border),
        transformers(
            "microsoft/beit-base-patch16-224",
            json!({"size": square(224), "do_center_crop": false, "crop_size": square(224), "resample": 2}),
            halves(spec(Bilinear, Squash, 224, 224)),
        ),
        transformers(
            "openai/clip-vit-base-patch32",
            json!({"size": {"shortest_edge": 224}, "do_center_crop": true, "crop_size": square(224), "resample": 3}),
            spec(Bicubic, Short, 224, 224),
        ),
        transformers(
            "google/siglip-base-patch16-224",
            json!({"size": square(224), "resample": 3}),
            halves(spec(Bicubic, Squash, 224, 224)),
        ),
        transformers(
            "google/vit-base-patch16-224",
            json!({"size": square(224), "resample": 2}),
            halves(spec(Bilinear, Squash, 224, 224)),
        ),
        transformers(
            "facebook/deit-base-distilled-patch16-224",
            json!({"size": square(256), "do_center_crop": true, "crop_size": square(224), "resample": 3}),
            spec(Bicubic, Squash, 256, 224),
        ),
        transformers(
            "facebook/dinov2-base",
            json!({"size": {"shortest_edge": 256}, "do_center_crop": true, "crop_size": square(224), "resample": 3}),
            spec(Bicubic, Short, 256, 224),
        ),
        transformers(
            "facebook/convnext-tiny-224",
            json!({"size": {"shortest_edge": 224}, "crop_pct": 0.875, "resample": 3}),
            spec(Bicubic, Short, 256, 224),
        ),
        torchvision("resnet50, V1", 256, 224, Bilinear),
        torchvision("resnet50, V2", 232, 224, Bilinear),
        torchvision("vit_b_16, SWAG", 384, 384, Bicubic),
        torchvision("mobilenet_v3_large, V1", 256, 224, Bilinear),
        torchvision("lanczos", 236, 224, Lanczos),
        torchvision("nearest", 256, 224, Nearest),
    ]
}

/// Returns the concatenated pixels computed by Pillow for each path and configuration.
fn by_pillow(asked: &[(&Path, &Case)]) -> Vec<u8> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images/recipes.py");
    let mut python = Command::new("python3")
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = python.stdin.take().unwrap();
    let text: Vec<String> = asked
        .iter()
        .map(|(path, case)| {
            let line = json!({"path": path, "library": case.library, "config": case.config});
            format!("{line}\n")
        })
        .collect();
    let writer = std::thread::spawn(move || lines.write_all(text.concat().as_bytes()).unwrap());
    let mut pixels = Vec::new();
    python.stdout.take().unwrap().read_to_end(&mut pixels).unwrap();
    writer.join().unwrap();
    assert!(python.wait().unwrap().success());
    pixels
}

#[test]
fn pixels_are_those_that_networks_are_trained_with() {
    let folder = tempfile::tempdir().unwrap();
    // Covers downscaling, upscaling and both orientations.
    let photos = [(500, 375), (375, 601), (640, 640), (120, 90)].map(|(width, height)| {
        let path = folder.path().join(format!("{width}x{height}.png"));
        write_png(&path, width, height);
        path
    });
    let cases = cases();
    let asked: Vec<(&Path, &Case)> = cases
        .iter()
        .flat_map(|case| photos.iter().map(move |photo| (photo.as_path(), case)))
        .collect();
    let theirs = by_pillow(&asked);
    let mut rest = theirs.as_slice();
    let mut wrong = Vec::new();
    for case in &cases {
        let mut values = 0;
        let mut off = 0;
        let mut off_by_two = 0;
        let mut furthest = 0;
        for photo in &photos {
            let ours = load(
                &std::fs::read(photo).unwrap(),
                &case.spec,
                &DecodeLimits::default(),
            )
            .unwrap();
            let (theirs, others) = rest.split_at(ours.len());
            rest = others;
            values += ours.len();
            off += ours.iter().zip(theirs).filter(|(a, b)| a != b).count();
            let differences = ours.iter().zip(theirs).map(|(a, b)| a.abs_diff(*b));
            off_by_two += differences.clone().filter(|difference| *difference > 1).count();
            furthest = furthest.max(differences.max().unwrap());
        }
        let share = 100.0 * off as f64 / values as f64;
        let line = format!("{}: {share:.3} % differ, by up to {furthest}", case.network);
        println!("{line}");
        // Lanczos adds up six pixels, which increases rounding errors.
        let most = if case.spec.interpolation == Lanczos {
            100
        } else {
            200
        };
        if furthest > 2 || off_by_two * 100_000 > values || off * most > values {
            wrong.push(line);
        }
    }
    assert!(rest.is_empty());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn channels_come_in_the_networks_order() {
    let photo = crate::fixture("color.png");
    let rgb = PixelSpec {
        resize: 8,
        ..PixelSpec::imagenet(8, 8)
    };
    let bgr = PixelSpec {
        channels: ChannelOrder::Bgr,
        ..rgb
    };
    let limits = DecodeLimits::default();
    let planes = |spec| {
        let pixels = load(&photo, &spec, &limits).unwrap();
        pixels.chunks_exact(64).map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let mut reversed = planes(rgb);
    reversed.reverse();
    assert_eq!(planes(bgr), reversed);
}

#[test]
fn every_recipe_covers_its_crop_whatever_the_image() {
    let sides = [(1, 1), (1, 400), (400, 1), (3, 2), (31, 33)];
    for (width, height) in sides {
        let image = RgbImage::new(width, height, vec![200; (width * height * 3) as usize]).unwrap();
        for mode in [Short, Squash, Pad] {
            for interpolation in [Nearest, Bilinear, Bicubic, Lanczos] {
                let spec = PixelSpec {
                    crop_height: 20,
                    fill: [7; 3],
                    ..spec(interpolation, mode, 30, 28)
                };
                let pixels = resize_and_crop(&image, &spec).unwrap();
                assert_eq!(pixels.len(), 3 * 20 * 28);
                let allowed: &[u8] = if mode == Pad { &[7, 200] } else { &[200] };
                assert!(
                    pixels.iter().all(|pixel| allowed.contains(pixel)),
                    "{width}x{height} {spec:?}"
                );
            }
        }
    }
}
