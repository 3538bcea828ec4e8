//! Shared code of the misbehaving guests in `examples/`.

pub use frostline_guest;
use frostline_guest::{
    Activation, Activations, Description, Failure, ModelView, Pixels, Sample, ServedCut, Tensor, TensorType,
};

/// Returns a valid description that serves all cuts with faithful activations.
pub fn describe(name: &str, model: ModelView) -> Result<Description, Failure> {
    let cuts = model.cuts.into_iter();
    Ok(Description {
        name: name.to_owned(),
        version: "0".to_owned(),
        pixels: Pixels::Own,
        cuts: cuts
            .map(|cut| ServedCut {
                name: cut.name,
                activation: Activation::Faithful,
            })
            .collect(),
    })
}

/// Returns `rows` rows of `width` zeros and no failures.
pub fn zeros(rows: usize, width: u32) -> Activations {
    let bytes = vec![0; rows * width as usize * 4];
    let tensor = Tensor::new(&[rows as u32, width], TensorType::Fp32, &bytes);
    Activations {
        tensor,
        failed: Vec::new(),
    }
}

/// Returns the key of the first sample, which tests use to pass arguments.
pub fn first_key(samples: &[Sample]) -> String {
    samples
        .first()
        .map(|sample| sample.key.clone())
        .unwrap_or_default()
}

/// Returns a row of zeros for each sample.
pub fn answer(samples: &[Sample]) -> Activations {
    zeros(samples.len(), 4)
}

/// Defines a guest with the name `$name`, a valid description and the given `extract` function.
#[macro_export]
macro_rules! extracts {
    ($name:literal, $extract:expr) => {
        $crate::behaves!(
            |model, _parameters| $crate::describe($name, model),
            $extract
        );
    };
}

/// Defines a guest from the functions `describe` and `extract`.
#[macro_export]
macro_rules! behaves {
    ($describe:expr, $extract:expr) => {
        use $crate::frostline_guest::{
            Activations, Description, Failure, FrozenPrefix, Job, ModelView, Sample,
        };

        struct Hostile;

        impl FrozenPrefix for Hostile {
            fn describe(model: ModelView, parameters: String) -> Result<Description, Failure> {
                let describe: fn(ModelView, String) -> Result<Description, Failure> = $describe;
                describe(model, parameters)
            }

            fn extract(samples: Vec<Sample>, job: Job) -> Result<Activations, Failure> {
                let extract: fn(Vec<Sample>, Job) -> Result<Activations, Failure> = $extract;
                extract(samples, job)
            }
        }

        $crate::frostline_guest::export!(Hostile);
    };
}
