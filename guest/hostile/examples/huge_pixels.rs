//! Requests images of four billion by four billion pixels.

use frostline_hostile::frostline_guest::PixelSpec;
use frostline_hostile::frostline_guest::images::{PixelFormat, load};

frostline_hostile::extracts!("huge_pixels", |samples, _| {
    let spec = PixelSpec {
        resize: u32::MAX,
        crop_height: u32::MAX,
        crop_width: u32::MAX,
        mean: (0.0, 0.0, 0.0),
        std: (1.0, 1.0, 1.0),
    };
    load(&samples, spec, PixelFormat::Normalized)?;
    Ok(frostline_hostile::answer(&samples))
});
