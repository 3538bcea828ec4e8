//! A network whose first layers compute in int8, without a job.

use crate::compute::blocking;
use crate::event::notices;
use crate::int8::{Candidate, IMAGES};
use crate::measure::spread;
use crate::{Events, ProfileCache, TrainerError, notes};
use frostline_client::{HostClient, Hosts};
use frostline_graph::Model;
use frostline_job::{PixelFlags, PrefixPrecision};
use frostline_wire::Layout;

/// What is to compute in int8, and what it is calibrated on.
#[derive(Debug, Clone)]
pub struct QuantisationJob {
    /// The network.
    pub model: Model,
    /// The cut up to which it is to compute so.
    pub freeze: String,
    /// In any case, or where it is faster and exact enough.
    pub precision: PrefixPrecision,
    /// Whether it may be less exact than is safe.
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

/// The network with its layers up to the cut in int8; `None` where `auto` leaves it as it is.
///
/// # Errors
/// [`TrainerError`]; [`TrainerError::Imprecise`] where int8 is too coarse.
pub async fn quantise(
    job: QuantisationJob,
    hosts: impl Into<Hosts>,
    events: Events,
) -> Result<Option<Model>, TrainerError> {
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
