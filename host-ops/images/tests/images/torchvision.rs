//! Compares augmentation with recordings of torchvision made by `augment.py`. Equal draws must give equal
//! pixels, and draws must have the same distribution.

use crate::augmenting::view;
use crate::fixture;
use frostline_images::{Area, Draw, Operation, RgbImage};
use frostline_tensor::{Augmentation, ColorJitter, PixelSpec, RandAugment, RandomErasing, RandomResizedCrop};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Recorded {
    source: Source,
    spec: PixelSpec,
    cases: Vec<Case>,
    crops: Vec<Crops>,
    erasings: Vec<Erasings>,
    jitter: BTreeMap<String, Distribution>,
}

#[derive(Deserialize)]
struct Source {
    width: u32,
    height: u32,
    pixels: String,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    crop: Option<[u32; 4]>,
    flip: bool,
    operations: Vec<Recipe>,
    erase: Option<[u32; 4]>,
    value: f64,
    pixels: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Recipe {
    Jitter(Word, f64),
    RandAugment(u32, u32, bool),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Brightness,
    Contrast,
    Saturation,
    Hue,
}

#[derive(Deserialize)]
struct Crops {
    width: u32,
    height: u32,
    scale: [f64; 2],
    ratio: [f64; 2],
    boxes: Boxes,
}

#[derive(Deserialize)]
struct Erasings {
    scale: [f64; 2],
    ratio: [f64; 2],
    boxes: Boxes,
}

#[derive(Deserialize)]
struct Boxes {
    area: Distribution,
    ratio: Distribution,
    left: Distribution,
    top: Distribution,
}

/// Values, each with the fraction of torchvision's draws that are less than or equal to it.
type Distribution = Vec<(f64, f64)>;

/// Number of draws in both samples.
const COUNT: u32 = 20_000;
/// Maximum distance of the distributions, from the Kolmogorov-Smirnov bound for a false positive rate of one
/// in ten million. The draws are deterministic.
const APART: f64 = 0.029;

fn recorded() -> Recorded {
    serde_json::from_slice(&fixture("augment.json")).unwrap()
}

fn area([left, top, width, height]: [u32; 4]) -> Area {
    Area {
        left,
        top,
        width,
        height,
    }
}

fn operation(recipe: &Recipe, spec: &PixelSpec) -> Option<Operation> {
    match recipe {
        Recipe::RandAugment(which, magnitude, negative) => {
            Operation::of_rand_augment(*which, *magnitude, *negative, (spec.crop_width, spec.crop_height))
        }
        Recipe::Jitter(Word::Brightness, factor) => Some(Operation::Brightness(*factor as f32)),
        Recipe::Jitter(Word::Contrast, factor) => Some(Operation::Contrast(*factor as f32)),
        Recipe::Jitter(Word::Saturation, factor) => Some(Operation::Color(*factor as f32)),
        Recipe::Jitter(Word::Hue, factor) => Some(Operation::Hue(*factor)),
    }
}

#[test]
fn the_same_draw_gives_torchvisions_pixels_within_one_level() {
    let Recorded {
        source, spec, cases, ..
    } = recorded();
    let image = RgbImage::new(source.width, source.height, hex::decode(source.pixels).unwrap()).unwrap();
    let mut values = 0;
    let mut off = 0;
    for case in &cases {
        let color = [0, 1, 2].map(|channel| {
            let level = case.value * f64::from(spec.std[channel]) + f64::from(spec.mean[channel]);
            (level * 255.0).round() as u8
        });
        let draw = Draw {
            crop: case.crop.map(area),
            flip: case.flip,
            operations: case
                .operations
                .iter()
                .filter_map(|one| operation(one, &spec))
                .collect(),
            erase: case.erase.map(|erased| (area(erased), color)),
        };
        let ours = draw.apply(&image, &spec).unwrap();
        let theirs = hex::decode(&case.pixels).unwrap();
        assert_eq!(ours.len(), theirs.len());
        let furthest = ours
            .iter()
            .zip(&theirs)
            .map(|(a, b)| a.abs_diff(*b))
            .max()
            .unwrap();
        println!("{}: {furthest}", case.name);
        // Resizing rounds a few values differently. All color and geometric operations must match Pillow
        // exactly.
        let exact = !case.operations.is_empty() && case.erase.is_none();
        assert!(furthest <= u8::from(!exact), "{}: {furthest}", case.name);
        values += ours.len();
        off += ours.iter().zip(&theirs).filter(|(a, b)| a != b).count();
    }
    assert!(
        cases.len() > 80 && off * 200 < values,
        "{off} of {values} values differ"
    );
}

/// Checks that the fraction of values less than or equal to each recorded value matches torchvision's.
fn agrees(what: &str, mut values: Vec<f64>, recorded: &Distribution) {
    values.sort_by(f64::total_cmp);
    for (point, share) in recorded {
        let ours = values.partition_point(|value| *value <= point + 1e-9) as f64 / values.len() as f64;
        assert!(
            (ours - share).abs() < APART,
            "{what}: fraction of values up to {point} is {ours}, torchvision has {share}"
        );
    }
}

fn boxes_agree(what: &str, drawn: &[Area], (width, height): (u32, u32), recorded: &Boxes) {
    let of = |value: fn(&Area, f64, f64) -> f64| -> Vec<f64> {
        let value = |area| value(area, f64::from(width), f64::from(height));
        drawn.iter().map(value).collect()
    };
    let area = of(|area, width, height| f64::from(area.width) * f64::from(area.height) / (width * height));
    agrees(&format!("{what}, area"), area, &recorded.area);
    let ratio = of(|area, _, _| f64::from(area.width) / f64::from(area.height.max(1)));
    agrees(&format!("{what}, ratio"), ratio, &recorded.ratio);
    let share = |start: u32, free: f64| if free > 0.0 { f64::from(start) / free } else { 0.0 };
    let left = drawn
        .iter()
        .map(|area| share(area.left, f64::from(width - area.width)));
    agrees(&format!("{what}, left"), left.collect(), &recorded.left);
    let top = drawn
        .iter()
        .map(|area| share(area.top, f64::from(height - area.height)));
    agrees(&format!("{what}, top"), top.collect(), &recorded.top);
}

fn draws(augmentation: Augmentation, sides: (u32, u32), spec: &PixelSpec) -> impl Iterator<Item = Draw> {
    (0..COUNT).map(move |number| Draw::new(&view(augmentation), &format!("{number}.jpg"), sides, spec))
}

#[test]
fn crops_are_distributed_as_torchvisions() {
    let spec = PixelSpec::imagenet(224, 224);
    for recorded in recorded().crops {
        let Crops {
            width,
            height,
            scale,
            ratio,
            boxes,
        } = recorded;
        let augmentation = Augmentation {
            random_resized_crop: Some(RandomResizedCrop { scale, ratio }),
            ..Augmentation::default()
        };
        let drawn: Vec<Area> = draws(augmentation, (width, height), &spec)
            .map(|draw| draw.crop.unwrap())
            .collect();
        boxes_agree(&format!("{width}x{height}"), &drawn, (width, height), &boxes);
    }
}

#[test]
fn erasings_are_distributed_as_torchvisions() {
    let spec = PixelSpec::imagenet(224, 224);
    for Erasings { scale, ratio, boxes } in recorded().erasings {
        let erasing = RandomErasing {
            p: 1.0,
            scale,
            ratio,
            ..RandomErasing::default()
        };
        let augmentation = Augmentation {
            random_erasing: Some(erasing),
            ..Augmentation::default()
        };
        // If no rectangle fits, torchvision returns the whole image without changing it.
        let whole = Area {
            left: 0,
            top: 0,
            width: 224,
            height: 224,
        };
        let drawn: Vec<Area> = draws(augmentation, (300, 300), &spec)
            .map(|draw| draw.erase.map_or(whole, |(area, _)| area))
            .collect();
        boxes_agree("erasing", &drawn, (224, 224), &boxes);
    }
}

#[test]
fn colors_are_jittered_as_torchvisions() {
    let jitter = ColorJitter {
        brightness: 0.4,
        contrast: 1.5,
        saturation: 0.3,
        hue: 0.1,
    };
    let augmentation = Augmentation {
        color_jitter: Some(jitter),
        ..Augmentation::default()
    };
    let mut found: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for draw in draws(augmentation, (300, 300), &PixelSpec::imagenet(8, 8)) {
        assert_eq!(draw.operations.len(), 4);
        for (place, operation) in draw.operations.iter().enumerate() {
            let (word, value) = match operation {
                Operation::Brightness(factor) => ("brightness", f64::from(*factor)),
                Operation::Contrast(factor) => ("contrast", f64::from(*factor)),
                Operation::Color(factor) => ("saturation", f64::from(*factor)),
                Operation::Hue(turns) => ("hue", *turns),
                other => panic!("{other:?} is not a jitter operation"),
            };
            found.entry(word.to_owned()).or_default().push(value);
            found
                .entry(format!("{word}_place"))
                .or_default()
                .push(place as f64);
        }
    }
    let recorded = recorded().jitter;
    assert_eq!(found.len(), recorded.len());
    for (what, values) in found {
        agrees(&what, values, &recorded[&what]);
    }
}

/// RandAugment selects all operations and both signs with equal probability.
#[test]
fn operations_and_signs_are_chosen_alike() {
    let augmentation = Augmentation {
        rand_augment: Some(RandAugment {
            num_ops: 1,
            magnitude: 9,
        }),
        hflip: 0.25,
        ..Augmentation::default()
    };
    let spec = PixelSpec::imagenet(64, 64);
    let (mut counts, mut flips) = (BTreeMap::<String, u32>::new(), 0);
    for draw in draws(augmentation, (300, 300), &spec) {
        *counts.entry(format!("{:?}", draw.operations)).or_default() += 1;
        flips += u32::from(draw.flip);
    }
    // Identity, posterize, solarize, autocontrast and equalize occur once. The other nine operations have
    // both signs.
    assert_eq!(counts.len(), 5 + 2 * 9);
    for (what, count) in counts {
        let share = f64::from(count) / f64::from(COUNT);
        let near = |expected: f64| (share - expected).abs() < 6.0 * (expected / f64::from(COUNT)).sqrt();
        assert!(near(1.0 / 14.0) || near(1.0 / 28.0), "{what}: {share}");
    }
    let share = f64::from(flips) / f64::from(COUNT);
    assert!((share - 0.25).abs() < 0.02, "{share}");
}
