//! Example: reads, decodes and preprocesses objects in Wasm, and creates the network's input.
//!
//! Objects are images in the binary PPM format (`P6`). Replace [`ppm`] with a decoder for your format. You
//! can use any crate that compiles for `wasm32-unknown-unknown`.

mod ppm;
mod scale;

use frostline_guest::{
    Description, ElementType, Error, ErrorCode, Extracted, FailedSample, FrozenPrefix, Job, Model, Sample,
    Tensor, image_size, objects,
};

/// Maximum size of an object in bytes. The decoded image needs as much memory again, and both must fit into
/// the guest's memory.
const LARGEST: u64 = 16 << 20;

struct OwnPixels;

impl FrozenPrefix for OwnPixels {
    fn describe(model: Model, _: String, description: &Description) -> Result<(), Error> {
        image_size(&model.inputs)?;
        description.set_name("own-pixels", env!("CARGO_PKG_VERSION"));
        // Without a recipe, the guest computes the network's input itself.
        description.set_media_types(&["image/x-portable-pixmap".to_owned()])?;
        description.serve_all(&model)
    }

    fn extract(job: Job) -> Result<Extracted, Error> {
        let (height, width) = image_size(&job.inputs)?;
        let mut images = Vec::new();
        let mut failed = Vec::new();
        for (index, sample) in (0..).zip(&job.samples) {
            match network_input(sample, height, width) {
                Ok(image) => images.push(image),
                Err(error) => failed.push(FailedSample { index, error }),
            }
        }
        if images.is_empty() {
            images.push(Tensor::zeros(ElementType::Float32, &[0, 3, height, width])?);
        }
        // The rows are joined on the host, so the guest's memory holds a single image at a time.
        let batch = Tensor::concat(&images.iter().collect::<Vec<_>>())?;
        job.run(vec![batch], failed)
    }
}

/// Loads an object into a batch of one image, with three planes of values between -1 and 1.
fn network_input(sample: &Sample, height: u32, width: u32) -> Result<Tensor, Error> {
    let size = objects::size(sample)?;
    if size > LARGEST {
        return Err(Error::new(
            ErrorCode::TooLarge,
            format!("the object has {size} bytes, the limit is {LARGEST}"),
        ));
    }
    let bytes = objects::read(sample, 0, size as u32)?;
    let picture = ppm::decode(&bytes)
        .map_err(|what| Error::new(ErrorCode::InvalidData, format!("invalid PPM image: {what}")))?;
    let planes = scale::to_planes(&picture, height, width);
    let elements: Vec<u8> = planes.into_iter().flat_map(f32::to_le_bytes).collect();
    Tensor::from_bytes(ElementType::Float32, &[1, 3, height, width], &elements)
}

frostline_guest::export!(OwnPixels);
