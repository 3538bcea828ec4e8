//! Recorded job settings, `config.json`.

use crate::{Job, JobSpec, TrainerError};
use frostline_graph::{Model, ONE_FILE};
use frostline_job::folder::CONFIG;
use frostline_primitives::now;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::path::Path;

impl Job {
    /// Returns the settings of a checked job with all defaults, and hashes of the model and the guest, to
    /// compare them with a job that resumes this one. Hashes the network.
    ///
    /// # Errors
    /// Returns [`TrainerError::Graph`] if the network cannot be serialized.
    pub fn recorded(&self) -> Result<JobSpec, TrainerError> {
        Ok(JobSpec {
            model_sha256: Some(sha256(&self.model)?),
            guest_sha256: Some(hex::encode(Sha256::digest(&self.guest.bytes))),
            freeze: Some(self.freeze.clone()),
            frostline: Some(env!("CARGO_PKG_VERSION").to_owned()),
            created: Some(now()),
            ..self.spec.recorded()
        })
    }
}

/// Hash of the settings that identify a recorded job, except the number of epochs.
pub(super) fn digest(spec: &JobSpec) -> String {
    let settings = spec.identity().into_iter();
    let settings: Map<String, Value> = settings
        .filter(|setting| setting.name != "epochs")
        .map(|setting| (setting.name, setting.value))
        .collect();
    hex::encode(Sha256::digest(Value::Object(settings).to_string()))
}

/// Reads the recorded job of the run in this folder.
///
/// # Errors
/// Returns [`TrainerError::Resume`] if the folder has no `config.json`, or if it cannot be read.
pub fn recorded_job(run: &Path) -> Result<JobSpec, TrainerError> {
    let file = run.join(CONFIG);
    if !file.is_file() {
        let why = format!("not a run folder: {CONFIG} is missing");
        return Err(TrainerError::resume(run, why));
    }
    JobSpec::read(&file).map_err(|error| TrainerError::resume(run, error.to_string()))
}

/// SHA-256 of the model file, including external weights if the model exceeds one file.
fn sha256(model: &Model) -> Result<String, TrainerError> {
    let parts = model.to_parts(ONE_FILE)?;
    let mut hash = Sha256::new();
    hash.update(&parts.model);
    if let Some(weights) = &parts.weights {
        hash.update(weights);
    }
    Ok(hex::encode(hash.finalize()))
}
