//! Returns a row more than requested.

use frostline_guest::{Activations, Description, Failure, FrozenPrefix, Job, ModelView, Sample};

struct Hostile;

impl FrozenPrefix for Hostile {
    fn describe(model: ModelView, _: String) -> Result<Description, Failure> {
        frostline_hostile::describe("too_many_rows", model)
    }

    fn extract(samples: Vec<Sample>, job: Job) -> Result<Activations, Failure> {
        let _ = job;
        Ok(frostline_hostile::zeros(samples.len() + 1, 4))
    }
}

frostline_guest::export!(Hostile);
