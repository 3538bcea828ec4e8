//! Passes ten thousand samples that share a key of a megabyte in memory. The host would copy ten gigabytes.

use frostline_hostile::frostline_guest::images::load;
use frostline_hostile::frostline_guest::{PixelFormat, Recipe, Sample};
use std::mem::ManuallyDrop;

frostline_hostile::extracts!("same_megabyte", |job| {
    let mut key = ManuallyDrop::new("k".repeat(1 << 20));
    // SAFETY: the copies are never dropped or written to.
    let mut same = || unsafe { String::from_raw_parts(key.as_mut_ptr(), key.len(), key.capacity()) };
    let many: Vec<Sample> = std::iter::repeat_with(&mut same)
        .take(10_000)
        .map(|key| Sample { key, etag: None })
        .collect();
    let many = ManuallyDrop::new(many);
    load(&many, Recipe::imagenet(2, 2), PixelFormat::Normalized)?;
    frostline_hostile::answer(&job)
});
