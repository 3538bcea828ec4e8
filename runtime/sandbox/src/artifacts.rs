//! Caches compiled guests on disk. A restarted host does not need to recompile them.
//!
//! The name of a file is the SHA-256 of the guest's SHA-256 and the tenant's name, followed by a hash of the
//! engine. A file is loaded only if its keyed hash is valid; otherwise the guest is recompiled. Tenants share
//! no entries, so the duration of an upload does not reveal whether another tenant has the same guest.

use crate::error::SandboxError;
use crate::unchecked::Compiled;
use frostline_sealed::{PrivateFolder, lru, whole_file};
use frostline_tensor::Cause;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::path::Path;
use wasmtime::Engine;
use wasmtime::component::Component;

/// Extension of artifacts.
const EXTENSION: &str = "cwasm";

pub(crate) struct Artifacts {
    folder: PrivateFolder,
    /// Hash of the engine's version and settings.
    engine: String,
    max_bytes: u64,
}

impl Artifacts {
    /// Opens the directory, which only this user may read. Creates it with a new key if it does not exist.
    pub(crate) fn open(directory: &Path, engine: &Engine, max_bytes: u64) -> Result<Self, SandboxError> {
        Ok(Self {
            folder: PrivateFolder::open(directory).map_err(|error| {
                let text = format!("cannot cache compiled guests in {}", directory.display());
                SandboxError::host(Cause::with_message(text, error))
            })?,
            engine: engine_hash(engine),
            max_bytes,
        })
    }

    /// Returns the compiled guest of this tenant and SHA-256 if it is cached and its hash is valid.
    pub(crate) fn load(&self, engine: &Engine, tenant: &str, sha256: &str) -> Option<Component> {
        let name = self.name(tenant, sha256);
        let path = self.folder.path().join(&name);
        let sealed = fs::read(&path).ok()?;
        let Some(compiled) = Compiled::unseal(sealed, &self.folder, &name) else {
            tracing::warn!(artifact = %path.display(), "recompiling a guest because the cached artifact is corrupt or from another host");
            return None;
        };
        match compiled.load(engine) {
            Ok(component) => {
                if let Err(error) = frostline_sealed::touch(&path) {
                    tracing::debug!(artifact = %path.display(), %error, "failed to update the access time of a cached guest");
                }
                Some(component)
            }
            Err(error) => {
                tracing::warn!(artifact = %path.display(), %error, "recompiling a guest because its cached artifact failed to load");
                None
            }
        }
    }

    /// Caches a compiled guest. Logs a failure instead of returning it.
    pub(crate) fn store(&self, tenant: &str, sha256: &str, compiled: &Compiled) {
        if let Err(error) = self.try_store(tenant, sha256, compiled) {
            tracing::warn!(directory = %self.folder.path().display(), %error, "cannot cache a compiled guest");
        }
    }

    fn try_store(&self, tenant: &str, sha256: &str, compiled: &Compiled) -> io::Result<()> {
        let name = self.name(tenant, sha256);
        let sealed = compiled
            .seal(&self.folder, &name)
            .ok_or_else(|| io::Error::other("cannot compute the keyed hash"))?;
        whole_file::write(&self.folder.path().join(name), |file| file.write_all(&sealed))?;
        let cached = lru::files(self.folder.path(), EXTENSION)?;
        lru::evict(cached, self.max_bytes, |path| {
            fs::remove_file(path)?;
            Ok(true)
        })?;
        Ok(())
    }

    /// Removes all artifacts except those of `guests`, pairs of tenant and SHA-256.
    pub(crate) fn retain<'a>(&self, guests: impl IntoIterator<Item = (&'a str, &'a str)>) -> io::Result<()> {
        let guests = guests.into_iter();
        let kept: HashSet<String> = guests.map(|(tenant, sha256)| self.name(tenant, sha256)).collect();
        for cached in lru::files(self.folder.path(), EXTENSION)? {
            let name = cached.path.file_name().map(|name| name.to_string_lossy());
            if name.is_none_or(|name| !kept.contains(&*name)) {
                fs::remove_file(cached.path)?;
            }
        }
        Ok(())
    }

    fn name(&self, tenant: &str, sha256: &str) -> String {
        let of_tenant = Sha256::digest(format!("{sha256} {tenant}"));
        format!("{}-{}.{EXTENSION}", hex::encode(of_tenant), self.engine)
    }
}

/// Returns the SHA-256 of wasmtime's version and all settings that affect compiled code.
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
