use crate::{EngineError, SessionOptions, library};
use frostline_tensor::Stage;
use sha2::{Digest, Sha256};
use std::fs;

/// Version of the folder's contents. Increase this number for changes that the rest of the hash does not
/// cover.
const FORMAT: &str = "3";

/// Separates the model from the hash. It does not occur in a SHA-256.
const BETWEEN: char = '-';

/// Returns the model of the stage with this name.
pub(super) fn model(name: &str) -> &str {
    name.split_once(BETWEEN).map_or("", |(model, _)| model)
}

/// Creates the names of prepared stages. A name depends on the stage, the engine, the processor for which the
/// weights are laid out, and the session's options.
pub(super) struct Naming(Sha256);

impl Naming {
    pub(super) fn new(options: &SessionOptions) -> Result<Self, EngineError> {
        let engine = crate::library_version()?;
        // The size distinguishes builds of the same version.
        let bytes = fs::metadata(library::library_path()?).map_or(0, |file| file.len());
        Ok(Self::from_parts(&engine, bytes, &processor(), options))
    }

    pub(super) fn from_parts(engine: &str, bytes: u64, processor: &str, options: &SessionOptions) -> Self {
        let mut hash = Sha256::new();
        let version = env!("CARGO_PKG_VERSION");
        for part in [
            FORMAT,
            version,
            engine,
            &bytes.to_string(),
            processor,
            &format!("{options:?}"),
        ] {
            add_part(&mut hash, part);
        }
        Self(hash)
    }

    /// Returns the stage's model followed by a hash.
    pub(super) fn name(&self, stage: &Stage) -> String {
        let mut hash = self.0.clone();
        let precision = format!("{:?}", stage.precision);
        for part in [&stage.model, &stage.from, &stage.to, &precision] {
            add_part(&mut hash, part);
        }
        format!("{}{BETWEEN}{}", stage.model, hex::encode(hash.finalize()))
    }
}

fn add_part(hash: &mut Sha256, part: &str) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

/// Returns the model and the features of the first processor if the system reports them.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let first = text.split("\n\n").next().unwrap_or_default();
    let told = ["vendor_id", "model name", "flags", "Features", "CPU part"];
    let lines = first
        .lines()
        .filter(|line| told.iter().any(|name| line.starts_with(name)));
    lines.fold(std::env::consts::ARCH.to_owned(), |all, line| all + "\n" + line)
}
