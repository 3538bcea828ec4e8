//! Per-layer study on a host.

use crate::measure::{mean_size, spread};
use crate::upload::Upload;
use crate::{Guest, TrainerError, blocking, model_metadata};
use frostline_client::HostClient;
use frostline_graph::{Cut, Model};
use frostline_job::PixelFlags;
use frostline_profile::candidates;
use frostline_tensor::{PixelSpec, Precision};
use frostline_wire::{Layout, Profile, ProfileRequest, RequestedSample, UploadRef};
use serde::Serialize;

/// Number of samples for the measurement, which is a host's usual grant.
const SAMPLES: usize = 16;

/// Inputs of a study.
#[derive(Debug, Clone)]
pub struct StudyJob {
    /// The network.
    pub model: Model,
    /// Name of the model on the host.
    pub model_name: String,
    /// The last cut to measure.
    pub freeze: String,
    /// URL of the data root as seen by the host.
    pub root: String,
    /// Layout of the samples in the data root.
    pub layout: Layout,
    /// The guest, which must describe its pixels with a recipe.
    pub guest: Guest,
    /// Overrides for the preprocessing recipe of the model or of ImageNet.
    pub pixels: PixelFlags,
}

/// Host profile and reference values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostStudy {
    /// The last cut.
    pub freeze: String,
    /// Sample shapes at the cuts in the profile.
    pub shapes: Vec<Vec<usize>>,
    /// Mean size of a sample in bytes, as stored.
    pub object_bytes: u64,
    /// Number of samples in the data root.
    pub objects: usize,
    /// Bytes of decoded pixels per sample, as sent with the split `input`, or 0 if the network takes no images.
    pub input_bytes: u64,
    /// Measurements of the host.
    pub profile: Profile,
}

/// Uploads missing files to the host and measures the network at the candidate cuts.
///
/// # Errors
/// Returns [`TrainerError::Client`] if the host refuses a request, [`TrainerError::Graph`] if the network or
/// the freeze cut is invalid, and another error if there is no valid preprocessing
/// recipe.
pub async fn study(job: StudyJob, client: &HostClient) -> Result<HostStudy, TrainerError> {
    let objects = client.objects(&job.root, job.layout).await?;
    let object_bytes = mean_size(objects.iter().map(|object| object.size));
    let model = job.model.clone();
    let freeze = job.freeze.clone();
    let wanted = job.pixels.clone();
    let custom = job.guest.clone();
    let (cuts, pixels) = blocking(move || prepare(&model, &freeze, &wanted, &custom)).await?;
    let input_bytes = pixels
        .as_ref()
        .map_or(0, |pixels| pixels.sample_shape().iter().product::<usize>() as u64);
    let layers = Upload::layers(&job.model_name, job.model, &job.freeze).await?;
    let guest = Upload::guest(&job.guest).await?;
    let pushed = client.push_guest(&guest.name, guest.bytes).await?;
    let guest = UploadRef {
        name: guest.name,
        sha256: pushed.sha256,
    };
    let pushed = client.push_model(&layers.name, layers.bytes).await?;
    let request = ProfileRequest {
        root: job.root,
        guest,
        model: UploadRef {
            name: layers.name,
            sha256: pushed.sha256,
        },
        parameters: model_metadata::parameters(&job.guest, pixels.as_ref())?,
        cuts: cuts.iter().map(|cut| cut.name.clone()).collect(),
        samples: RequestedSample::in_order(&spread(&objects, SAMPLES)),
        view: None,
        precision: Precision::Full,
        wait_seconds: None,
    };
    let profile = client.profile(&request).await?;
    Ok(HostStudy {
        freeze: job.freeze,
        shapes: cuts.iter().map(|cut| cut.shape.dims().to_vec()).collect(),
        object_bytes,
        objects: objects.len(),
        input_bytes,
        profile,
    })
}

/// Returns the candidate cuts and the preprocessing recipe for images.
fn prepare(
    model: &Model,
    freeze: &str,
    wanted: &PixelFlags,
    guest: &Guest,
) -> Result<(Vec<Cut>, Option<PixelSpec>), TrainerError> {
    let network = model.network()?;
    let cuts = candidates(model, &network, freeze)?;
    let pixels = model_metadata::pixels_of_job(model, &network, wanted, guest)?;
    Ok((cuts, pixels.map(|(recipe, _)| recipe)))
}
