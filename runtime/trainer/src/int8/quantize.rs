//! Quantizes a network without a job.

use super::{Candidate, IMAGES};
use crate::compute::blocking;
use crate::event::notices;
use crate::measure::spread;
use crate::{Events, ProfileCache, TrainerError, notes};
use frostline_client::{HostClient, Hosts};
use frostline_graph::Model;
use frostline_job::{PixelFlags, PrefixPrecision};
use frostline_wire::Layout;

/// A network to quantize, and images to calibrate on: the input of `frostline model quantize`.
#[derive(Debug, Clone)]
pub struct QuantizationJob {
    /// The network.
    pub model: Model,
    /// The cut up to which it is quantized.
    pub freeze: String,
    /// `Int8` fails if that is too imprecise, `Auto` leaves the network in f32 then.
    pub precision: PrefixPrecision,
    /// Whether to accept a cosine similarity to f32 below 0.99.
    pub allow_imprecise: bool,
    /// The data root, as the host is to open it.
    pub root: String,
    /// How images lie there; labels are not needed.
    pub layout: Layout,
    /// The recipe, where it is not the model's own or ImageNet's.
    pub pixels: PixelFlags,
    /// Threads of the trainer's engine; 0 takes all cores.
    pub threads: usize,
}

/// The network with its layers up to the cut in int8; `None` if it stays in f32.
///
/// # Errors
/// [`TrainerError`]; [`TrainerError::Imprecise`] if int8 is too imprecise.
pub async fn quantize(
    job: QuantizationJob,
    hosts: impl Into<Hosts>,
    events: Events,
) -> Result<Option<Model>, TrainerError> {
    if job.precision == PrefixPrecision::F32 {
        return Ok(None);
    }
    let hosts = hosts.into().for_job(notices(&events));
    let (root, layout) = (&job.root, job.layout);
    let list = |client: HostClient| async move { client.objects(root, layout).await };
    let objects = hosts.first(list).await?;
    let (model, flags) = (job.model.clone(), job.pixels.clone());
    let pixels = blocking(move || Ok(notes::input_pixels(&model, &flags)?.0)).await?;
    let cache = ProfileCache::of_user();
    let candidate = Candidate {
        model: &job.model,
        freeze: &job.freeze,
        precision: job.precision,
        allow_imprecise: job.allow_imprecise,
        pixels,
        root,
        images: spread(&objects, IMAGES),
        hosts: &hosts,
        threads: job.threads,
        cache: cache.as_ref(),
        run: None,
    };
    Ok(candidate.decide(&events).await?.map(|rounded| rounded.model))
}
