//! Loops in `extract` without end and without calling the host.

use frostline_guest::{Activations, Description, Failure, FrozenPrefix, Job, ModelView, Sample};

struct Hostile;

impl FrozenPrefix for Hostile {
    fn describe(model: ModelView, _: String) -> Result<Description, Failure> {
        frostline_hostile::describe("spin", model)
    }

    fn extract(samples: Vec<Sample>, job: Job) -> Result<Activations, Failure> {
        let mut turns = samples.len() as u64;
        while std::hint::black_box(turns) != u64::MAX {
            turns = turns.wrapping_add(2) & !1;
        }
        Ok(frostline_hostile::zeros(samples.len(), job.input_shape[0]))
    }
}

frostline_guest::export!(Hostile);
