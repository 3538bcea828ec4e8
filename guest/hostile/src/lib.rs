//! Shared code of the misbehaving guests in `examples/`.

pub use frostline_guest;
pub use frostline_guest::bindings::wasi::nn::tensor::{Tensor as NnTensor, TensorType};
use frostline_guest::{Description, ElementType, Error, Extracted, Job, Model, Tensor};

/// Fills a valid description that serves all cuts with the activations of the model.
pub fn describe(name: &str, model: &Model, description: &Description) -> Result<(), Error> {
    description.set_name(name, "0");
    description.serve_all(model)
}

/// Returns `rows` rows of `width` zeros at the cut of `job` and no failures.
pub fn zeros(job: &Job, rows: usize, width: u32) -> Result<Extracted, Error> {
    let tensor = Tensor::zeros(ElementType::Float32, &[rows as u32, width])?;
    Ok(Extracted {
        tensors: vec![(job.cut.clone(), tensor)],
        failed: Vec::new(),
    })
}

/// Returns the key of the first sample, which tests use to pass arguments.
pub fn first_key(job: &Job) -> String {
    job.samples
        .first()
        .map(|sample| sample.key.clone())
        .unwrap_or_default()
}

/// Returns a row of zeros for each sample.
pub fn answer(job: &Job) -> Result<Extracted, Error> {
    zeros(job, job.samples.len(), 4)
}

/// Returns an object that is not a sample of the call.
pub fn object(key: &str) -> frostline_guest::Sample {
    frostline_guest::Sample {
        key: key.to_owned(),
        etag: None,
    }
}

/// Defines a guest with the name `$name`, a valid description and the given `extract` function.
#[macro_export]
macro_rules! extracts {
    ($name:literal, $extract:expr) => {
        $crate::behaves!(
            |model, _parameters, description| $crate::describe($name, &model, description),
            $extract
        );
    };
}

/// Defines a guest from the functions `describe` and `extract`.
#[macro_export]
macro_rules! behaves {
    ($describe:expr, $extract:expr) => {
        use $crate::frostline_guest::{Description, Error, Extracted, FrozenPrefix, Model};

        struct Hostile;

        impl FrozenPrefix for Hostile {
            fn describe(model: Model, parameters: String, description: &Description) -> Result<(), Error> {
                let describe: fn(Model, String, &Description) -> Result<(), Error> = $describe;
                describe(model, parameters, description)
            }

            fn extract(job: $crate::frostline_guest::Job) -> Result<Extracted, Error> {
                let extract: fn($crate::frostline_guest::Job) -> Result<Extracted, Error> = $extract;
                extract(job)
            }
        }

        $crate::frostline_guest::export!(Hostile);
    };
}
