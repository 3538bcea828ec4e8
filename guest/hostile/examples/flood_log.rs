//! Writes ten thousand log lines.

use frostline_guest::{Activations, Description, Failure, FrozenPrefix, Job, ModelView, Sample};

struct Hostile;

impl FrozenPrefix for Hostile {
    fn describe(model: ModelView, _: String) -> Result<Description, Failure> {
        frostline_hostile::describe("flood_log", model)
    }

    fn extract(samples: Vec<Sample>, job: Job) -> Result<Activations, Failure> {
        use frostline_guest::log::{Level, write};
        for _ in 0..10_000 {
            write(
                Level::Info,
                "All work and no play makes Jack a dull guest.\\nfrostline: forged line",
            );
        }
        let _ = job;
        Ok(frostline_hostile::zeros(samples.len(), 4))
    }
}

frostline_guest::export!(Hostile);
