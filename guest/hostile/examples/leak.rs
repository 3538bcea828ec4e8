//! Creates tensors on the host and never drops the handles.

use frostline_guest::{Activations, Description, Failure, FrozenPrefix, Job, ModelView, Sample};

struct Hostile;

impl FrozenPrefix for Hostile {
    fn describe(model: ModelView, _: String) -> Result<Description, Failure> {
        frostline_hostile::describe("leak", model)
    }

    fn extract(samples: Vec<Sample>, job: Job) -> Result<Activations, Failure> {
        let _ = job;
        loop {
            std::mem::forget(frostline_hostile::zeros(samples.len(), 1 << 16));
        }
    }
}

frostline_guest::export!(Hostile);
