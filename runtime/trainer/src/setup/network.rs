use crate::compute::{KEPT_MIDDLES, SuffixParts, blocking, session_options};
use crate::{Job, TrainerError, notes};
use frostline_client::SampleFiles;
use frostline_graph::{Model, Network};
use frostline_tensor::PixelSpec;

/// A job's network, divided at the freeze cut.
pub(super) struct DividedNetwork {
    pub(super) network: Network,
    /// The whole under its fresh head.
    pub(super) headed: Model,
    suffix: Model,
    pub(super) pixels: PixelSpec,
    /// What the guest is told.
    pub(super) parameters: String,
}

impl DividedNetwork {
    /// Gives the network of a checked job a head for so many classes and divides it.
    pub(super) async fn of(job: &Job, classes: usize) -> Result<Self, TrainerError> {
        let job = job.clone();
        blocking(move || Self::divide(&job, classes)).await
    }

    fn divide(job: &Job, classes: usize) -> Result<Self, TrainerError> {
        let before = job.model.network()?;
        let own = job.guest.takes() == SampleFiles::All;
        let pixels = notes::pixels(&job.model, &before, job.pixels, own)?;
        let headed = job.model.replace_head(classes, job.seed)?;
        Ok(Self {
            network: headed.network()?,
            suffix: headed.slice(Some(&job.freeze), None)?,
            headed,
            pixels,
            parameters: match &job.guest.parameters {
                Some(own) => own.clone(),
                None => notes::recipe(&pixels)?,
            },
        })
    }

    /// The first cut.
    pub(super) fn first_cut(&self) -> Option<&String> {
        self.network.cuts.first().map(|cut| &cut.name)
    }

    /// Whether `freeze` is the network's input, so that all of it is trained.
    pub(super) fn nothing_is_frozen(&self, freeze: &str) -> bool {
        self.network.input.name == freeze
    }

    /// What is trained, in batches of so many samples.
    pub(super) fn suffix_parts(&self, job: &Job, batch: usize) -> SuffixParts {
        SuffixParts {
            whole: self.headed.clone(),
            suffix: self.suffix.clone(),
            freeze: job.freeze.clone(),
            settings: job.training(),
            learning_rate: job.learning_rate,
            batch,
            middles: KEPT_MIDDLES,
            options: session_options(job.device, job.threads),
        }
    }
}
