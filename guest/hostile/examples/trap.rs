//! Panics in `extract`.

use frostline_guest::{Activations, Description, Failure, FrozenPrefix, Job, ModelView, Sample};

struct Hostile;

impl FrozenPrefix for Hostile {
    fn describe(model: ModelView, _: String) -> Result<Description, Failure> {
        frostline_hostile::describe("trap", model)
    }

    fn extract(samples: Vec<Sample>, job: Job) -> Result<Activations, Failure> {
        panic!("no activations for {} samples at {}", samples.len(), job.split)
    }
}

frostline_guest::export!(Hostile);
