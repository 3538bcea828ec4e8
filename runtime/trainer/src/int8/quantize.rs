//! Quantizes a network outside of a job.

use super::{IMAGES, Int8Candidate};
use crate::event::notices;
use crate::measure::spread;
use crate::{Events, ProfileFolder, TrainerError, blocking, model_metadata};
use frostline_client::Hosts;
use frostline_features::folder_of_user;
use frostline_graph::Model;
use frostline_job::{PixelFlags, PrefixPrecision};
use frostline_wire::Layout;

/// Input of `frostline model quantize`, with a network and calibration images.
#[derive(Debug, Clone)]
pub struct QuantizationJob {
    /// The network.
    pub model: Model,
    /// Name of the cut. Layers before this cut are quantized.
    pub freeze: String,
    /// If int8 is too imprecise, `Int8` fails and `Auto` leaves the network in f32. `Auto` also does so if
    /// int8 is less than 10 % faster. With `F32` nothing is done.
    pub precision: PrefixPrecision,
    /// Whether to accept a cosine similarity to f32 below 0.99.
    pub allow_imprecise: bool,
    /// The data root, as opened by the host.
    pub root: String,
    /// Layout of the images. Labels are not needed.
    pub layout: Layout,
    /// Preprocessing settings that override the model's metadata and the ImageNet defaults.
    pub pixels: PixelFlags,
    /// Number of engine threads on the trainer; 0 uses all cores.
    pub threads: usize,
}

/// Returns the network with layers before the cut in int8, or `None` if it stays in f32 (see
/// [`QuantizationJob::precision`]).
///
/// # Errors
/// Returns [`TrainerError::Imprecise`] if int8 is required but too imprecise. Returns another
/// [`TrainerError`] if images cannot be read or the network cannot be quantized.
pub async fn quantize(
    job: QuantizationJob,
    hosts: impl Into<Hosts>,
    events: Events,
) -> Result<Option<Model>, TrainerError> {
    if job.precision == PrefixPrecision::F32 {
        return Ok(None);
    }
    let hosts = hosts.into().for_job(notices(&events));
    let root = &job.root;
    let layout = job.layout;
    let objects = hosts
        .first(|client| async move { client.objects(root, layout).await })
        .await?;
    let model = job.model.clone();
    let flags = job.pixels.clone();
    let pixels = blocking(move || Ok(model_metadata::input_pixels(&model, &flags)?.0)).await?;
    let cache = folder_of_user().map(ProfileFolder::new);
    let candidate = Int8Candidate {
        model: &job.model,
        freeze: &job.freeze,
        precision: job.precision,
        allow_imprecise: job.allow_imprecise,
        pixels: Some(pixels),
        root,
        images: spread(&objects, IMAGES),
        hosts: &hosts,
        threads: job.threads,
        cache: cache.as_ref(),
        run: None,
    };
    Ok(candidate.decide(&events).await?.map(|rounded| rounded.model))
}
