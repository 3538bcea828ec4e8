//! Reads and decodes real samples sequentially and measures both.

use crate::config::Limits;
use crate::refusal::Refusal;
use frostline_images::{DecodePool, DecodeRoom, LoaderOptions, normalize};
use frostline_objects::Store;
use frostline_tensor::{Data, PixelSpec, Shape, Tensor, View};
use frostline_wire::RequestedSample;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Samples as network input. The times are means per sample.
pub(super) struct Samples {
    /// Pixels before normalization, `u8[n, 3, h, w]`.
    pub(super) bytes: Tensor,
    /// Normalized pixels, `f32[n, 3, h, w]`.
    pub(super) pixels: Tensor,
    pub(super) read_seconds: f64,
    pub(super) decode_seconds: f64,
}

/// Source of the samples, and the settings for reading and decoding.
pub(super) struct SampleReader<'a> {
    pub(super) store: &'a Store,
    pub(super) decoders: &'a DecodePool,
    pub(super) spec: PixelSpec,
    pub(super) view: Option<View>,
    pub(super) limits: &'a Limits,
    pub(super) room: Arc<dyn DecodeRoom>,
}

impl SampleReader<'_> {
    /// Reads and decodes `samples`. Samples that fail are skipped. If all fail, the last error is returned.
    pub(super) async fn read(self, samples: &[RequestedSample]) -> Result<Samples, Refusal> {
        let mut crops = Vec::new();
        let mut reads = Vec::new();
        let mut decodes = Vec::new();
        let mut refusal = None;
        let took: Arc<Mutex<Duration>> = Arc::default();
        let last = Arc::clone(&took);
        let options = LoaderOptions {
            decode: self.limits.decode,
            room: Some(self.room),
            view: self.view,
            on_decoded: Some(Arc::new(move |took| *last.lock() = took)),
            ..LoaderOptions::default()
        };
        for RequestedSample { sample, .. } in samples {
            let started = Instant::now();
            let object = match self.store.read_sample(sample, self.limits.object_bytes).await {
                Ok(object) => object,
                Err(error) => {
                    refusal = Some(Refusal::from(error));
                    continue;
                }
            };
            reads.push(started.elapsed().as_secs_f64());
            let crop = self
                .decoders
                .load_as(object, self.spec, sample.key.clone(), &options);
            match crop.await {
                Ok(crop) => {
                    decodes.push(took.lock().as_secs_f64());
                    crops.extend(crop);
                }
                Err(error) if error.host_caused => return Err(error.into()),
                Err(error) => refusal = Some(Refusal::request(format!("{}: {error}", sample.key))),
            }
        }
        if crops.is_empty() {
            return Err(refusal.unwrap_or_else(|| Refusal::request("a profile requires at least one sample")));
        }
        let shape = Shape::new(self.spec.sample_shape()).batched(decodes.len());
        let bytes = Tensor::new(shape, Data::U8(crops)).map_err(Refusal::host)?;
        Ok(Samples {
            pixels: normalize(&bytes, &self.spec).map_err(decode_failed)?,
            bytes,
            read_seconds: mean_without_first(&reads),
            decode_seconds: mean_without_first(&decodes),
        })
    }
}

fn decode_failed(error: impl std::fmt::Display) -> Refusal {
    Refusal::host(format!("cannot decode a sample for the profile: {error}"))
}

/// Returns the mean. If there are more values, the first is excluded because of new connections and cold
/// caches.
fn mean_without_first(seconds: &[f64]) -> f64 {
    let counted = match seconds {
        [_, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    };
    counted.iter().sum::<f64>() / counted.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_excludes_the_first_of_several_values() {
        assert_eq!(mean_without_first(&[9.0, 1.0, 3.0]), 2.0);
        assert_eq!(mean_without_first(&[9.0]), 9.0);
        assert_eq!(mean_without_first(&[]), 0.0);
    }
}
