//! Loads the requested images a million times.

use frostline_hostile::frostline_guest::PixelSpec;
use frostline_hostile::frostline_guest::images::{PixelFormat, load};

frostline_hostile::extracts!("load_again", |samples, job| {
    let spec = PixelSpec {
        resize: 8,
        crop_height: job.input_shape[1],
        crop_width: job.input_shape[2],
        mean: (0.0, 0.0, 0.0),
        std: (1.0, 1.0, 1.0),
    };
    for _ in 0..1_000_000 {
        load(&samples, spec, PixelFormat::Normalized)?;
    }
    Ok(frostline_hostile::answer(&samples))
});
