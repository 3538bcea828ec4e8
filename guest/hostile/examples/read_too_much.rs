//! Reads the first sample without end.

use frostline_guest::{Activations, Description, Failure, FrozenPrefix, Job, ModelView, Sample};

struct Hostile;

impl FrozenPrefix for Hostile {
    fn describe(model: ModelView, _: String) -> Result<Description, Failure> {
        frostline_hostile::describe("read_too_much", model)
    }

    fn extract(samples: Vec<Sample>, job: Job) -> Result<Activations, Failure> {
        let _ = job;
        let key = frostline_hostile::first_key(&samples);
        loop {
            frostline_guest::objects::read(&key, 0, u32::MAX)?;
        }
    }
}

frostline_guest::export!(Hostile);
