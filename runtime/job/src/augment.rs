//! How training images are varied, as flags say it: each is a transform of torchvision's.
#![cfg(feature = "flags")]

use frostline_tensor::{ColorJitter, RandAugment, RandomErasing, RandomResizedCrop};
use std::str::FromStr;

pub(crate) fn random_resized_crop(words: &str) -> Result<RandomResizedCrop, String> {
    let scale = numbers(words)?;
    let scale =
        <[f64; 2]>::try_from(scale).map_err(|_| "two shares of the area are expected, as in 0.08,1")?;
    Ok(RandomResizedCrop {
        scale,
        ..RandomResizedCrop::default()
    })
}

pub(crate) fn rand_augment(words: &str) -> Result<RandAugment, String> {
    match numbers(words)?.as_slice() {
        &[num_ops, magnitude] => Ok(RandAugment { num_ops, magnitude }),
        _ => Err("a number of operations and their magnitude are expected, as in 2,9".to_owned()),
    }
}

pub(crate) fn color_jitter(words: &str) -> Result<ColorJitter, String> {
    let (brightness, contrast, saturation, hue) = match *numbers(words)?.as_slice() {
        [all] => (all, all, all, 0.0),
        [brightness, contrast, saturation] => (brightness, contrast, saturation, 0.0),
        [brightness, contrast, saturation, hue] => (brightness, contrast, saturation, hue),
        _ => return Err("one, three or four numbers are expected, as in 0.4 or 0.4,0.4,0.4,0.1".to_owned()),
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
    let number = |word: &str| {
        word.trim()
            .parse()
            .map_err(|_| format!("invalid number '{word}'"))
    };
    words.split(',').map(number).collect()
}
