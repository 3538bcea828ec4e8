//! Loads the requested images a million times.

use frostline_hostile::frostline_guest::images::load;
use frostline_hostile::frostline_guest::{PixelFormat, Recipe, image_size};

frostline_hostile::extracts!("load_again", |job| {
    let (height, width) = image_size(&job.inputs)?;
    for _ in 0..1_000_000 {
        load(
            &job.samples,
            Recipe::imagenet(height, width),
            PixelFormat::Normalized,
        )?;
    }
    frostline_hostile::answer(&job)
});
