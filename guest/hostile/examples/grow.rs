//! Allocates memory until the limit is exceeded.

use frostline_guest::{Activations, Description, Failure, FrozenPrefix, Job, ModelView, Sample};

struct Hostile;

impl FrozenPrefix for Hostile {
    fn describe(model: ModelView, _: String) -> Result<Description, Failure> {
        frostline_hostile::describe("grow", model)
    }

    fn extract(samples: Vec<Sample>, job: Job) -> Result<Activations, Failure> {
        let mut hoard = Vec::new();
        loop {
            hoard.push(vec![job.split.len() as u8; 1 << 20]);
            if std::hint::black_box(&hoard).len() > 1 << 20 {
                return Ok(frostline_hostile::zeros(samples.len(), 1));
            }
        }
    }
}

frostline_guest::export!(Hostile);
