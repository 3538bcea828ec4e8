//! Compiled guests on disk, so that a host that starts again does not compile again.
//!
//! A file is named by the SHA-256 of the guest's bytes and of the tenant's name, and by the engine that compiled them, and is loaded only
//! when its keyed hash is right. A tenant finds what it had compiled itself: how long an upload takes tells nothing of others' guests. Whatever is wrong with a file, the guest is compiled anew.

use crate::artefact_load::Compiled;
use crate::error::SandboxError;
use frostline_sealed::{Folder, whole_file};
use frostline_tensor::Cause;
use sha2::{Digest, Sha256};
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::path::Path;
use wasmtime::Engine;
use wasmtime::component::Component;

pub(crate) struct Artefacts {
    folder: Folder,
    /// Tells engines of other versions or settings apart.
    engine: String,
    most_bytes: u64,
}

impl Artefacts {
    /// Opens the directory, or makes it with a fresh key; nobody but this user may read it.
    pub(crate) fn open(directory: &Path, engine: &Engine, most_bytes: u64) -> Result<Self, SandboxError> {
        let trouble = |error: io::Error| {
            let text = format!("cannot keep compiled guests in {}", directory.display());
            SandboxError::host(Cause::explained(text, error))
        };
        Ok(Self {
            folder: Folder::open(directory).map_err(trouble)?,
            engine: engine_hash(engine),
            most_bytes,
        })
    }

    /// The compiled guest of this tenant and SHA-256, if it lies here and is what this host put there.
    pub(crate) fn load(&self, engine: &Engine, tenant: &str, sha256: &str) -> Option<Component> {
        let name = self.name(tenant, sha256);
        let path = self.folder.path().join(&name);
        let sealed = fs::read(&path).ok()?;
        let Some(compiled) = Compiled::unseal(sealed, &self.folder, &name) else {
            tracing::warn!(artefact = %path.display(), "a compiled guest is not what this host wrote; compiling again");
            return None;
        };
        match compiled.load(engine) {
            Ok(component) => {
                touch(&path);
                Some(component)
            }
            Err(error) => {
                tracing::warn!(artefact = %path.display(), %error, "a compiled guest cannot be loaded; compiling again");
                None
            }
        }
    }

    /// Keeps a compiled guest; when that fails the next start compiles again.
    pub(crate) fn store(&self, tenant: &str, sha256: &str, compiled: &Compiled) {
        if let Err(error) = self.try_store(tenant, sha256, compiled) {
            tracing::warn!(directory = %self.folder.path().display(), %error, "cannot keep a compiled guest");
        }
    }

    fn try_store(&self, tenant: &str, sha256: &str, compiled: &Compiled) -> io::Result<()> {
        let name = self.name(tenant, sha256);
        let sealed = compiled
            .seal(&self.folder, &name)
            .ok_or_else(|| io::Error::other("it cannot be sealed"))?;
        whole_file::write(&self.folder.path().join(name), |file| file.write_all(&sealed))?;
        self.make_room()
    }

    /// Removes the artefacts used longest ago until the rest fits.
    fn make_room(&self) -> io::Result<()> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(self.folder.path())? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().ends_with(".cwasm") {
                let metadata = entry.metadata()?;
                kept.push((metadata.modified()?, metadata.len(), entry.path()));
            }
        }
        kept.sort();
        let mut bytes: u64 = kept.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, size, path) in kept {
            if bytes <= self.most_bytes {
                break;
            }
            fs::remove_file(path)?;
            bytes = bytes.saturating_sub(size);
        }
        Ok(())
    }

    fn name(&self, tenant: &str, sha256: &str) -> String {
        let of_tenant = Sha256::digest(format!("{sha256} {tenant}"));
        format!("{}-{}.cwasm", hex::encode(of_tenant), self.engine)
    }
}

/// Marks an artefact as used now, for [`Artefacts::make_room`].
fn touch(path: &Path) {
    if let Err(error) = frostline_sealed::touch(path) {
        tracing::debug!(artefact = %path.display(), %error, "cannot mark a compiled guest as used");
    }
}

/// SHA-256 of everything in wasmtime's version and settings that compiled code depends on.
fn engine_hash(engine: &Engine) -> String {
    struct Sink(Sha256);
    impl Hasher for Sink {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            0
        }
    }
    let mut sink = Sink(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut sink);
    hex::encode(sink.0.finalize())
}
