//! Omits a row and reports a failure for a sample outside of the request.

use frostline_guest::{Activations, Description, Failure, FrozenPrefix, Job, ModelView, Sample};

struct Hostile;

impl FrozenPrefix for Hostile {
    fn describe(model: ModelView, _: String) -> Result<Description, Failure> {
        frostline_hostile::describe("lie_about_failures", model)
    }

    fn extract(samples: Vec<Sample>, job: Job) -> Result<Activations, Failure> {
        let _ = job;
        let mut answer = frostline_hostile::zeros(samples.len() - 1, 4);
        answer.failed.push(frostline_guest::FailedSample {
            index: 1_000_000,
            code: frostline_guest::ErrorCode::Unknown,
            message: "x".repeat(1 << 20),
        });
        Ok(answer)
    }
}

frostline_guest::export!(Hostile);
