//! Example: runs the prefix in two stages, up to a first cut and from there to the split. The activations
//! between the stages stay on the host. A guest can read or replace them. [`strongest`] shows how to read
//! activations.

use frostline_guest::log::{self, Level};
use frostline_guest::{
    Description, Error, Extracted, FrozenPrefix, Job, Model, PixelFormat, Recipe, Tensor, TensorInfo,
    image_size, images, stage,
};

/// Bytes of a tensor that [`strongest`] reads at once.
const CHUNK: u64 = 1 << 20;

struct TwoStage;

impl FrozenPrefix for TwoStage {
    /// Serves all cuts after the first one, which is named by the parameters.
    fn describe(model: Model, first: String, description: &Description) -> Result<(), Error> {
        let mut cuts = model.cuts.iter();
        if !cuts.any(|cut| cut.name == first) {
            return Err(Error::invalid(format!(
                "the parameters must be the name of a cut of the model, not {first:?}"
            )));
        }
        description.set_name("two-stage", env!("CARGO_PKG_VERSION"));
        description.set_recipe(recipe(&model.inputs)?)?;
        cuts.try_for_each(|cut| description.serve(&cut.name))
    }

    fn extract(job: Job) -> Result<Extracted, Error> {
        let first = &job.parameters;
        let loaded = images::load(&job.samples, recipe(&job.inputs)?, PixelFormat::Normalized)?;
        let input = job.inputs[0].name.clone();
        let between = stage::run(&stage::up_to(first), vec![(input, loaded.pixels)])?;
        for (name, tensor) in &between {
            let strongest = strongest(tensor)?;
            log::write(
                Level::Debug,
                &format!("strongest activation at {name}: {strongest}"),
            );
        }
        Ok(Extracted {
            tensors: stage::run(&stage::between(first, &job.cut), between)?,
            failed: loaded.failed,
        })
    }
}

/// Returns the maximum element of a tensor. This is expensive, because it copies the elements into the
/// guest's memory, in parts.
fn strongest(tensor: &Tensor) -> Result<f32, Error> {
    let elements: u64 = tensor.shape().into_iter().map(u64::from).product();
    let bytes = elements * 4;
    let mut strongest = 0.0;
    for start in (0..bytes).step_by(CHUNK as usize) {
        let part = tensor.read(start, CHUNK.min(bytes - start))?;
        let (elements, _) = part.as_chunks::<4>();
        strongest = elements
            .iter()
            .map(|element| f32::from_le_bytes(*element))
            .fold(strongest, f32::max);
    }
    Ok(strongest)
}

fn recipe(inputs: &[TensorInfo]) -> Result<Recipe, Error> {
    let (height, width) = image_size(inputs)?;
    Ok(Recipe {
        resize: height.max(width),
        mean: (0.5, 0.5, 0.5),
        std: (0.5, 0.5, 0.5),
        ..Recipe::imagenet(height, width)
    })
}

frostline_guest::export!(TwoStage);
