//! Checks that draws depend only on seed, view and key, and that no combination of image and recipe panics.

use crate::{fixture, images};
use frostline_images::{BatchLoader, DecodeLimits, DecodePool, Draw, LoaderOptions, load, load_augmented};
use frostline_tensor::{
    Augmentation, ColorJitter, PixelFormat, PixelSpec, RandAugment, RandomErasing, RandomResizedCrop,
    SampleLoader, SampleRef, View,
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
