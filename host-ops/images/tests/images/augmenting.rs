//! Checks that draws depend only on seed, view and key, and that no combination of image and recipe panics.

use crate::{fixture, images};
use frostline_images::{
    BatchLoader, DecodeLimits, DecodePool, Draw, LoaderOptions, Operation, RgbImage, load, load_augmented,
    position_in_image, resize_and_crop,
};
use frostline_tensor::{
    Augmentation, ColorJitter, PixelFormat, PixelSpec, RandAugment, RandomErasing, RandomResizedCrop,
    ResizeMode, SampleLoader, SampleRef, View,
};
use std::sync::Arc;

pub(crate) fn view(augmentation: Augmentation) -> View {
    View {
        augmentation,
        seed: 3,
        number: 5,
    }
}

fn everything() -> Augmentation {
    Augmentation {
        random_resized_crop: Some(RandomResizedCrop::default()),
        hflip: 0.5,
        rand_augment: Some(RandAugment::default()),
        color_jitter: Some(ColorJitter {
            brightness: 0.4,
            contrast: 0.4,
            saturation: 0.4,
            hue: 0.1,
        }),
        random_erasing: Some(RandomErasing::default()),
    }
}

/// Draws must never change while the version in the domain string is 1.
#[test]
fn a_draw_is_the_same_for_ever() {
    let spec = PixelSpec::imagenet(224, 224);
    let augmentation = Augmentation {
        rand_augment: None,
        ..everything()
    };
    let draw = Draw::new(&view(augmentation), "cat/1.jpg", (500, 375), &spec);
    assert_eq!(format!("{draw:?}"), DRAWN);
    for (seed, number, key) in [(4, 5, "cat/1.jpg"), (3, 6, "cat/1.jpg"), (3, 5, "cat/2.jpg")] {
        let view = View {
            augmentation,
            seed,
            number,
        };
        assert_ne!(
            Draw::new(&view, key, (500, 375), &spec),
            draw,
            "{seed} {number} {key}"
        );
    }
    // Each transform has a separate random stream, so removing one does not affect the draws of others.
    let less = Augmentation {
        hflip: 0.0,
        color_jitter: None,
        ..augmentation
    };
    let less = Draw::new(&view(less), "cat/1.jpg", (500, 375), &spec);
    assert_eq!((less.crop, less.erase), (draw.crop, draw.erase));
}

const DRAWN: &str = "Draw { crop: Some(Area { left: 161, top: 98, width: 186, height: 180 }), flip: true, \
     operations: [Contrast(0.7799723), Brightness(0.62349), Color(0.9818993), Hue(0.05144929606272153)], \
     erase: Some((Area { left: 56, top: 103, width: 121, height: 105 }, [124, 116, 104])) }";

#[test]
fn whatever_the_image_a_hostile_recipe_is_refused_and_no_other_panics() {
    let limits = DecodeLimits::default();
    let spec = PixelSpec::imagenet(24, 32);
    let mut extreme = everything();
    extreme.random_resized_crop = Some(RandomResizedCrop {
        scale: [0.0, 1e-6],
        ratio: [0.01, 100.0],
    });
    extreme.rand_augment = Some(RandAugment {
        num_ops: 8,
        magnitude: 30,
    });
    extreme.random_erasing = Some(RandomErasing {
        p: 1.0,
        scale: [0.0, 1.0],
        ratio: [0.01, 100.0],
        value: 1e6,
    });
    extreme.check().unwrap();
    for (name, bytes) in images() {
        for number in 0..8 {
            let view = View {
                number,
                ..view(if number % 2 == 0 { extreme } else { everything() })
            };
            let pixels = load_augmented(&bytes, &spec, &limits, Some(&view), &name).unwrap();
            assert_eq!(pixels.len(), 3 * 24 * 32);
        }
        let bad = view(Augmentation {
            hflip: f64::NAN,
            ..everything()
        });
        let error = load_augmented(&bytes, &spec, &limits, Some(&bad), &name).unwrap_err();
        assert!(error.to_string().contains("hflip"), "{error}");
        let plain = view(Augmentation::default());
        assert_eq!(
            load_augmented(&bytes, &spec, &limits, Some(&plain), &name).unwrap(),
            load(&bytes, &spec, &limits).unwrap(),
            "{name}: an empty augmentation is equal to none"
        );
    }
}

/// Each pixel of the test image contains its position. Pixels of the result must contain the mapped position.
#[test]
fn positions_in_the_image_are_those_of_the_pixels() {
    let width = 200;
    let height = 120;
    let color = |place: u32| [(place % width) as u8, (place / width) as u8, 255];
    let image = RgbImage::new(width, height, (0..width * height).flat_map(color).collect()).unwrap();
    let geometric = Augmentation {
        color_jitter: None,
        random_erasing: None,
        ..everything()
    };
    let check = |pixels: &[u8], matrix: [f64; 6], spec: &PixelSpec| {
        let [a, b, c, d, e, f] = matrix;
        let plane = pixels.len() / 3;
        let mut inside = 0;
        for place in 0..plane {
            let x = (place % spec.crop_width as usize) as f64 + 0.5;
            let y = (place / spec.crop_width as usize) as f64 + 0.5;
            let expected = [a * x + b * y + c - 0.5, d * x + e * y + f - 0.5];
            let is_in = |value: f64, side: u32| (1.0..=f64::from(side) - 2.0).contains(&value);
            // Filters blend colors at the border with the fill color.
            if pixels[2 * plane + place] == 255 && is_in(expected[0], width) && is_in(expected[1], height) {
                let found = [f64::from(pixels[place]), f64::from(pixels[plane + place])];
                let off = (found[0] - expected[0]).abs().max((found[1] - expected[1]).abs());
                assert!(off <= 2.5, "{found:?} instead of {expected:?} at {x} {y}");
                inside += 1;
            }
        }
        assert!(
            inside > plane / 8,
            "{inside} of {plane} pixels are inside of the image"
        );
    };
    for mode in [ResizeMode::Short, ResizeMode::Squash, ResizeMode::Pad] {
        let spec = PixelSpec {
            resize_mode: mode,
            ..PixelSpec::imagenet(96, 128)
        };
        let pixels = resize_and_crop(&image, &spec).unwrap();
        check(
            &pixels,
            position_in_image((width, height), &spec, None, "").unwrap(),
            &spec,
        );
        let mut drawn = 0;
        for key in (0..400).map(|number| number.to_string()) {
            let view = view(geometric);
            let draw = Draw::new(&view, &key, (width, height), &spec);
            if draw
                .operations
                .iter()
                .all(|operation| matches!(operation, Operation::Affine(_)))
            {
                let matrix = position_in_image((width, height), &spec, Some(&view), &key).unwrap();
                check(&draw.apply(&image, &spec).unwrap(), matrix, &spec);
                drawn += 1;
            }
        }
        assert!(drawn > 20, "{drawn}");
    }
}

/// Checks that the order and size of batches do not affect pixels.
#[tokio::test]
async fn a_samples_pixels_depend_on_its_key_alone() {
    let spec = PixelSpec::imagenet(16, 16);
    let options = LoaderOptions {
        view: Some(view(everything())),
        ..LoaderOptions::default()
    };
    let loader = BatchLoader::new(
        Arc::new(crate::batches::Fixtures::default()),
        DecodePool::start(2).unwrap(),
        options,
    );
    let names: Vec<String> = images().into_iter().map(|(name, _)| name).collect();
    let load = async |names: &[String]| {
        let samples = names.iter().map(SampleRef::new).collect();
        let loaded = loader.load(samples, spec, PixelFormat::U8).await.unwrap();
        assert!(loaded.failed.is_empty());
        let rows = loaded.pixels.as_u8().unwrap().chunks(3 * 16 * 16);
        rows.map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let together = load(&names).await;
    for (name, row) in names.iter().zip(&together) {
        assert_eq!(
            load(std::slice::from_ref(name)).await,
            std::slice::from_ref(row),
            "{name}"
        );
        let alone = load_augmented(
            &fixture(name),
            &spec,
            &DecodeLimits::default(),
            Some(&view(everything())),
            name,
        );
        assert_eq!(alone.unwrap(), *row, "{name}: equal to decoding without a loader");
    }
    let backwards: Vec<String> = names.iter().rev().cloned().collect();
    let mut again = load(&backwards).await;
    again.reverse();
    assert_eq!(again, together);
}
