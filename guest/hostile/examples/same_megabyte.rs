//! Passes ten thousand samples that share a key of a megabyte in memory. The host would copy ten gigabytes.

use frostline_hostile::frostline_guest::PixelSpec;
use frostline_hostile::frostline_guest::images::{PixelFormat, load};
use std::mem::ManuallyDrop;

frostline_hostile::extracts!("same_megabyte", |samples, job| {
    let mut key = ManuallyDrop::new("k".repeat(1 << 20));
    // SAFETY: the copies are never dropped or written to.
    let mut same = || unsafe { String::from_raw_parts(key.as_mut_ptr(), key.len(), key.capacity()) };
    let many: Vec<Sample> = std::iter::repeat_with(&mut same)
        .take(10_000)
        .map(|key| Sample { key, etag: None })
        .collect();
    let many = ManuallyDrop::new(many);
    let spec = PixelSpec {
        resize: 8,
        crop_height: job.input_shape[1],
        crop_width: job.input_shape[2],
        mean: (0.0, 0.0, 0.0),
        std: (1.0, 1.0, 1.0),
    };
    load(&many, spec, PixelFormat::Normalized)?;
    Ok(frostline_hostile::answer(&samples))
});
