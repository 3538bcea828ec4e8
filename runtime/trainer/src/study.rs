//! The per-layer study of a network on a host.

use crate::compute::blocking;
use crate::measure::{mean_size, spread};
use crate::upload::Upload;
use crate::{Guest, TrainerError, notes};
use frostline_client::HostClient;
use frostline_graph::{Cut, Model};
use frostline_job::PixelFlags;
use frostline_profile::candidates;
use frostline_tensor::{PixelSpec, Precision};
use frostline_wire::{Layout, Pin, Profile, ProfileRequest, RequestedSample};
use serde::Serialize;

/// Samples a study measures with: a host's usual grant.
const SAMPLES: usize = 16;

/// What is studied.
#[derive(Debug, Clone)]
pub struct StudyJob {
    /// The network.
    pub model: Model,
    /// What to call it on the host.
    pub model_name: String,
    /// The last cut that is measured.
    pub freeze: String,
    /// The data root, as the host is to open it.
    pub root: String,
    /// How samples lie there.
    pub layout: Layout,
    /// The guest; it must describe its pixels by a recipe.
    pub guest: Guest,
    /// The recipe, where it is not the model's own or ImageNet's.
    pub pixels: PixelFlags,
}

/// A host's profile of a network, and what it is to be held against.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostStudy {
    /// The last cut.
    pub freeze: String,
    /// Shape of a sample at each cut of the profile.
    pub shapes: Vec<Vec<usize>>,
    /// Mean size of the objects.
    pub object_bytes: u64,
    /// Objects under the data root.
    pub objects: usize,
    /// Decoded pixels of one sample in bytes, as the split `input` sends them.
    pub input_bytes: u64,
    /// What the host measured.
    pub profile: Profile,
}

/// Uploads what the host lacks and has it measure the network at its candidate cuts.
///
/// # Errors
/// [`TrainerError`].
pub async fn study(job: StudyJob, client: &HostClient) -> Result<HostStudy, TrainerError> {
    let objects = client.objects(&job.root, job.layout).await?;
    let object_bytes = mean_size(objects.iter().map(|object| object.size));
    let (model, freeze, wanted) = (job.model.clone(), job.freeze.clone(), job.pixels.clone());
    let (cuts, pixels) = blocking(move || prepare(&model, &freeze, &wanted)).await?;
    let layers = Upload::layers(&job.model_name, job.model, &job.freeze).await?;
    let guest = Upload::guest(&job.guest).await?;
    let pushed = client.push_guest(&guest.name, guest.bytes).await?;
    let guest = Pin {
        name: guest.name,
        sha256: pushed.sha256,
    };
    let pushed = client.push_model(&layers.name, layers.bytes).await?;
    let request = ProfileRequest {
        root: job.root,
        guest,
        model: Pin {
            name: layers.name,
            sha256: pushed.sha256,
        },
        parameters: match job.guest.parameters {
            Some(own) => own,
            None => notes::recipe(&pixels)?,
        },
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
        input_bytes: pixels.sample_shape().iter().product::<usize>() as u64,
        profile,
    })
}

/// The candidates and the recipe.
fn prepare(model: &Model, freeze: &str, wanted: &PixelFlags) -> Result<(Vec<Cut>, PixelSpec), TrainerError> {
    let network = model.network()?;
    let cuts = candidates(model, &network, freeze)?;
    Ok((cuts, notes::pixels(model, &network, wanted, true)?.0))
}
