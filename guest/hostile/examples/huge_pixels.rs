//! Requests images of four billion by four billion pixels.

use frostline_hostile::frostline_guest::images::load;
use frostline_hostile::frostline_guest::{PixelFormat, Recipe};

frostline_hostile::extracts!("huge_pixels", |job| {
    let recipe = Recipe::imagenet(u32::MAX, u32::MAX);
    load(&job.samples, recipe, PixelFormat::Normalized)?;
    frostline_hostile::answer(&job)
});
