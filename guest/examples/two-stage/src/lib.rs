//! Example: runs the prefix in two stages, up to a first cut and from there to the split. The activations
//! between the stages stay on the host. A guest can read or replace them. [`strongest`] shows how to read
//! activations.

use frostline_guest::images::{self, PixelFormat};
use frostline_guest::log::{self, Level};
use frostline_guest::{
    Activation, Activations, Description, Failure, FrozenPrefix, Job, ModelView, PixelSpec, Pixels, Sample,
    ServedCut, Tensor, stage,
};

struct TwoStage;

impl FrozenPrefix for TwoStage {
    /// Serves all cuts after the first one, which is named by the parameters.
    fn describe(model: ModelView, first: String) -> Result<Description, Failure> {
        let spec = pixel_spec(&model.input_shape)?;
        let mut cuts = model.cuts.into_iter();
        if !cuts.any(|cut| cut.name == first) {
            return Err(Failure::invalid(format!(
                "the parameters must be the name of a cut of the model, not {first:?}"
            )));
        }
        Ok(Description {
            name: "two-stage".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pixels: Pixels::Spec(spec),
            cuts: cuts
                .map(|cut| ServedCut {
                    name: cut.name,
                    activation: Activation::Faithful,
                })
                .collect(),
        })
    }

    fn extract(samples: Vec<Sample>, job: Job) -> Result<Activations, Failure> {
        let first = &job.parameters;
        let loaded =
            images::load_augmented(&samples, pixel_spec(&job.input_shape)?, PixelFormat::Normalized)?;
        let between = stage::run(&stage::up_to(first), &job.input, loaded.pixels)?;
        log::write(
            Level::Debug,
            &format!("strongest activation at {first}: {}", strongest(&between)),
        );
        let tensor = stage::run(&stage::between(first, &job.split), first, between)?;
        Ok(Activations {
            tensor,
            failed: loaded.failed,
        })
    }
}

/// Returns the maximum element of a tensor. This is expensive, because it copies the elements into the
/// guest's memory.
fn strongest(tensor: &Tensor) -> f32 {
    let bytes = tensor.data();
    let (elements, _) = bytes.as_chunks::<4>();
    elements
        .iter()
        .map(|element| f32::from_le_bytes(*element))
        .fold(0.0, f32::max)
}

fn pixel_spec(input: &[u32]) -> Result<PixelSpec, Failure> {
    let &[3, height, width] = input else {
        return Err(Failure::invalid(format!(
            "this guest serves models of RGB images, [3, height, width] per sample, not {input:?}"
        )));
    };
    Ok(PixelSpec {
        resize: height.max(width),
        crop_height: height,
        crop_width: width,
        mean: (0.5, 0.5, 0.5),
        std: (0.5, 0.5, 0.5),
    })
}

frostline_guest::export!(TwoStage);
