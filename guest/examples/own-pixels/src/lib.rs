//! Example: reads, decodes and preprocesses objects in Wasm, and creates the network's input.
//!
//! Objects are images in the binary PPM format (`P6`). Replace [`ppm`] with a decoder for your format. You
//! can use any crate that compiles for `wasm32-unknown-unknown`.

mod ppm;
mod scale;

use frostline_guest::{
    Activation, Activations, Description, ErrorCode, FailedSample, Failure, FrozenPrefix, Job, ModelView,
    Pixels, Sample, ServedCut, Tensor, TensorType, objects, stage,
};

/// Maximum size of an object in bytes. The decoded image needs as much memory again, and both must fit into
/// the guest's memory.
const LARGEST: u64 = 16 << 20;

struct OwnPixels;

impl FrozenPrefix for OwnPixels {
    fn describe(model: ModelView, _: String) -> Result<Description, Failure> {
        input_size(&model.input_shape)?;
        let cuts = model.cuts.into_iter();
        Ok(Description {
            name: "own-pixels".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pixels: Pixels::Own,
            cuts: cuts
                .map(|cut| ServedCut {
                    name: cut.name,
                    activation: Activation::Faithful,
                })
                .collect(),
        })
    }

    fn extract(samples: Vec<Sample>, job: Job) -> Result<Activations, Failure> {
        let (height, width) = input_size(&job.input_shape)?;
        let (mut values, mut failed, mut rows) = (Vec::new(), Vec::new(), 0);
        for (index, sample) in (0..).zip(&samples) {
            match network_input(&sample.key, height, width) {
                Ok(pixels) => {
                    values.extend(pixels.into_iter().flat_map(f32::to_le_bytes));
                    rows += 1;
                }
                Err(Failure { code, message }) => failed.push(FailedSample { index, code, message }),
            }
        }
        let batch = Tensor::new(&[rows, 3, height, width], TensorType::Fp32, &values);
        let tensor = stage::run(&job.stage, &job.input, batch)?;
        Ok(Activations { tensor, failed })
    }
}

/// Loads an object and returns three planes of values between -1 and 1.
fn network_input(key: &str, height: u32, width: u32) -> Result<Vec<f32>, Failure> {
    let size = objects::size(key)?;
    if size > LARGEST {
        return Err(Failure::new(
            ErrorCode::TooLarge,
            format!("the object has {size} bytes, the limit is {LARGEST}"),
        ));
    }
    let bytes = objects::read(key, 0, size as u32)?;
    let picture = ppm::decode(&bytes)
        .map_err(|what| Failure::new(ErrorCode::InvalidEncoding, format!("invalid PPM image: {what}")))?;
    Ok(scale::to_planes(&picture, height, width))
}

fn input_size(input: &[u32]) -> Result<(u32, u32), Failure> {
    match input {
        &[3, height, width] => Ok((height, width)),
        other => Err(Failure::invalid(format!(
            "this guest serves models of RGB images, [3, height, width] per sample, not {other:?}"
        ))),
    }
}

frostline_guest::export!(OwnPixels);
