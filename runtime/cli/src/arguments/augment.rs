//! How training images are varied: flags, of which each is a transform of torchvision's.

use clap::Args;
use frostline_tensor::{ColorJitter, RandAugment, RandomErasing, RandomResizedCrop};
use frostline_trainer::FeatureAugment;
use serde::Serialize;
use std::str::FromStr;

/// All of them are left out by default. A recipe's file has the same names, with tables of all parameters.
#[derive(Debug, Args, Serialize)]
#[command(next_help_heading = "Recipe")]
pub(crate) struct AugmentFlags {
    /// Cut out and resize a random part of each training image, at least and at most so much of its area [default where it stands alone: 0.08,1]
    #[arg(long, value_name = "MIN,MAX", num_args = 0..=1, default_missing_value = "0.08,1", value_parser = random_resized_crop)]
    #[serde(skip_serializing_if = "Option::is_none")]
    random_resized_crop: Option<RandomResizedCrop>,
    /// Mirror training images, with this probability [default: 0; 0.5 where it stands alone]
    #[arg(long, value_name = "P", num_args = 0..=1, default_missing_value = "0.5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    hflip: Option<f64>,
    /// Do so many random operations of such a magnitude, 0 to 30, to each training image [default where it stands alone: 2,9]
    #[arg(long, value_name = "OPS,MAGNITUDE", num_args = 0..=1, default_missing_value = "2,9", value_parser = rand_augment)]
    #[serde(skip_serializing_if = "Option::is_none")]
    rand_augment: Option<RandAugment>,
    /// Change the colours of training images by so much: one number for brightness, contrast and saturation, or one each; a fourth is the hue's, to
    /// 0.5
    #[arg(long, value_name = "X[,X,X[,HUE]]", value_parser = color_jitter)]
    #[serde(skip_serializing_if = "Option::is_none")]
    color_jitter: Option<ColorJitter>,
    /// Paint over a random rectangle of training images, with this probability
    #[arg(long, value_name = "P", value_parser = random_erasing)]
    #[serde(skip_serializing_if = "Option::is_none")]
    random_erasing: Option<RandomErasing>,
    /// Vary training images in so many ways, which come again after as many epochs, instead of anew in each
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    #[serde(skip_serializing_if = "Option::is_none")]
    views: Option<u32>,
    /// Vary training rows at the freeze cut, so that no frozen layer runs again, as in brightness=0.1,contrast=0.2,posterize=4,noise=0.05; of maps
    /// also hflip=0.5,shift=1, which harm transformers
    #[arg(long, value_name = "NAME=X,..")]
    #[serde(skip_serializing_if = "Option::is_none")]
    feature_augment: Option<FeatureAugment>,
}

fn random_resized_crop(words: &str) -> Result<RandomResizedCrop, String> {
    let scale = numbers(words)?;
    let scale =
        <[f64; 2]>::try_from(scale).map_err(|_| "two shares of the area are expected, as in 0.08,1")?;
    Ok(RandomResizedCrop {
        scale,
        ..RandomResizedCrop::default()
    })
}

fn rand_augment(words: &str) -> Result<RandAugment, String> {
    match numbers(words)?.as_slice() {
        &[num_ops, magnitude] => Ok(RandAugment { num_ops, magnitude }),
        _ => Err("a number of operations and their magnitude are expected, as in 2,9".to_owned()),
    }
}

fn color_jitter(words: &str) -> Result<ColorJitter, String> {
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

fn random_erasing(word: &str) -> Result<RandomErasing, String> {
    let p = word.parse().map_err(|_| format!("'{word}' is no number"))?;
    Ok(RandomErasing {
        p,
        ..RandomErasing::default()
    })
}

fn numbers<T: FromStr>(words: &str) -> Result<Vec<T>, String> {
    let number = |word: &str| {
        word.trim()
            .parse()
            .map_err(|_| format!("'{word}' is no such number"))
    };
    words.split(',').map(number).collect()
}
