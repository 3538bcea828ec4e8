use crate::arguments::Sweep;
use crate::output::write_file;
use anyhow::{Context, Result, bail};
use frostline_job::folder as layout;
use frostline_job::{JobSpec, sweep_refusal};
use frostline_trainer::Job;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// Definition of a sweep, written to the sweep's folder for later resumption.
#[derive(Serialize, Deserialize)]
pub(crate) struct SweepDefinition {
    pub(crate) sweep: Vec<Sweep>,
    pub(crate) job: JobSpec,
}

impl SweepDefinition {
    pub(crate) fn new(sweep: &[Sweep], job: &Job) -> Result<Self> {
        Ok(Self {
            sweep: sweep.to_vec(),
            job: JobSpec {
                // Use the given recipe without default rates, because these depend on the optimizer of a
                // variant.
                recipe: job.spec.recipe.clone(),
                freeze: job.spec.freeze.clone(),
                ..job.recorded()?
            },
        })
    }

    /// Checks that the checked `job` may resume this sweep in `folder`.
    ///
    /// # Errors
    /// Returns an error if a setting differs that affects the trained models. Finished variants would have
    /// the earlier value, and the best model would be selected among variants of different jobs.
    pub(crate) fn check(&self, job: &Job, folder: &Path) -> Result<()> {
        let mut now = Self::new(&self.sweep, job)?.job;
        if self.job.model_sha256.is_none() {
            // Frostline 0.2.0 did not record the hashes.
            (now.model_sha256, now.guest_sha256) = (None, None);
        }
        if let Some(why) = sweep_refusal(&self.job.recorded(), &now.recorded()) {
            bail!(
                "cannot resume {}: {why}; to train with other settings, start a new sweep",
                folder.display()
            );
        }
        Ok(())
    }

    /// Returns the sweep in `folder`, or the sweep that contains the run in `folder`.
    pub(crate) fn find(folder: &Path) -> Result<Option<(PathBuf, Self)>> {
        for folder in folder.ancestors().take(2) {
            if let Some(recorded) = Self::read(folder)? {
                return Ok(Some((folder.to_owned(), recorded)));
            }
        }
        Ok(None)
    }

    /// Reads the definition from `folder`. Returns `None` if the folder does not belong to a sweep.
    fn read(folder: &Path) -> Result<Option<Self>> {
        let file = folder.join(layout::SWEEP);
        if !file.is_file() {
            return Ok(None);
        }
        let read = fs::read_to_string(&file).map_err(anyhow::Error::from);
        let read = read.and_then(|text| Ok(Some(serde_json::from_str(&text)?)));
        read.with_context(|| format!("cannot read {}", file.display()))
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        write_file("", &folder.join(layout::SWEEP), text.as_bytes())
    }
}
