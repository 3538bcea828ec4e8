use crate::{EngineError, SessionOptions, library};
use frostline_tensor::Stage;
use sha2::{Digest, Sha256};
use std::fs;

/// Counts up when what lies in a folder changes otherwise.
const FORMAT: &str = "3";

/// What separates them; no SHA-256 has it.
const BETWEEN: char = '-';

/// The model that a stage of this name is of.
pub(super) fn model(name: &str) -> &str {
    name.split_once(BETWEEN).map_or("", |(model, _)| model)
}

/// Names stages by all that their prepared form depends on: the stage, the engine, the processor that its weights are laid out for, and
/// the session's options.
pub(super) struct Naming(Sha256);

impl Naming {
    pub(super) fn new(options: &SessionOptions) -> Result<Self, EngineError> {
        let engine = crate::library_version()?;
        // Builds of one version differ.
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

    /// The stage's model and a hash.
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

/// Model and features of the first processor, where the system tells.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let first = text.split("\n\n").next().unwrap_or_default();
    let told = ["vendor_id", "model name", "flags", "Features", "CPU part"];
    let lines = first
        .lines()
        .filter(|line| told.iter().any(|name| line.starts_with(name)));
    lines.fold(std::env::consts::ARCH.to_owned(), |all, line| all + "\n" + line)
}
