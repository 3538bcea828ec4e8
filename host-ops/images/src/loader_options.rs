use crate::{BatchLimits, DecodeLimits, DecodeRoom};
use frostline_tensor::View;
use std::sync::Arc;
use std::time::Duration;

/// Options of a [`BatchLoader`](crate::BatchLoader).
#[derive(Clone)]
pub struct LoaderOptions {
    /// Number of samples per batch that may be read, queued or decoded concurrently.
    pub reads_in_flight: usize,
    /// Limits of an image.
    pub decode: DecodeLimits,
    /// Limits of a batch.
    pub batch: BatchLimits,
    /// Reserves memory for images that need [`LoaderOptions::RESERVATION_THRESHOLD`] bytes or more. `None`
    /// disables reservations.
    pub room: Option<Arc<dyn DecodeRoom>>,
    /// Augmentation of the samples. `None` disables it.
    pub view: Option<View>,
    /// Called after each image with the time spent on decoding, resizing and augmenting it, including
    /// failures. Waiting for memory is excluded.
    pub on_decoded: Option<Arc<dyn Fn(Duration) + Send + Sync>>,
}

impl LoaderOptions {
    /// An object store responds in about 30 ms and a core decodes a photo in about 2 ms, so 16 reads keep a
    /// core busy, and several batches load concurrently. Fewer reads would starve the decoders, and more
    /// would only buffer bytes.
    const DEFAULT_READS_IN_FLIGHT: usize = 16;

    /// 16 MiB, enough for a photo of 4 megapixels. Hosts must keep this much memory free per decoding thread,
    /// so that small images, the majority in most data sets, need no reservation.
    pub const RESERVATION_THRESHOLD: u64 = 16 << 20;
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            reads_in_flight: Self::DEFAULT_READS_IN_FLIGHT,
            decode: DecodeLimits::default(),
            batch: BatchLimits::default(),
            room: None,
            view: None,
            on_decoded: None,
        }
    }
}
