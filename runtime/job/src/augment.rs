//! Parsers of flags for augmentation. Each flag corresponds to a transform of torchvision.
#![cfg(feature = "flags")]

use frostline_tensor::{ColorJitter, RandAugment, RandomErasing, RandomResizedCrop};
use std::str::FromStr;

pub(crate) fn random_resized_crop(words: &str) -> Result<RandomResizedCrop, String> {
    let scale = numbers(words)?;
    let scale =
        <[f64; 2]>::try_from(scale).map_err(|_| "expected two fractions of the area (example: 0.08,1)")?;
    Ok(RandomResizedCrop {
        scale,
        ..RandomResizedCrop::default()
    })
}

pub(crate) fn rand_augment(words: &str) -> Result<RandAugment, String> {
    match numbers(words)?.as_slice() {
        &[num_ops, magnitude] => Ok(RandAugment { num_ops, magnitude }),
        _ => Err("expected a number of operations and a magnitude (example: 2,9)".to_owned()),
    }
}

pub(crate) fn color_jitter(words: &str) -> Result<ColorJitter, String> {
    let (brightness, contrast, saturation, hue) = match *numbers(words)?.as_slice() {
        [all] => (all, all, all, 0.0),
        [brightness, contrast, saturation] => (brightness, contrast, saturation, 0.0),
        [brightness, contrast, saturation, hue] => (brightness, contrast, saturation, hue),
        _ => {
            return Err("expected one, three or four numbers (examples: 0.4 and 0.4,0.4,0.4,0.1)".to_owned());
        }
    };
    Ok(ColorJitter {
        brightness,
        contrast,
        saturation,
        hue,
    })
}

pub(crate) fn random_erasing(word: &str) -> Result<RandomErasing, String> {
    let p = word.parse().map_err(|_| format!("invalid number '{word}'"))?;
    Ok(RandomErasing {
        p,
        ..RandomErasing::default()
    })
}

fn numbers<T: FromStr>(words: &str) -> Result<Vec<T>, String> {
    words
        .split(',')
        .map(|word| {
            word.trim()
                .parse()
                .map_err(|_| format!("invalid number '{word}'"))
        })
        .collect()
}
