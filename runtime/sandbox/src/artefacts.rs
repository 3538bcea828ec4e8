//! Compiled guests on disk, so that a host that starts again does not compile again.
//!
//! A file is named by the SHA-256 of the guest's bytes and by the engine that compiled them, and is loaded only when its
//! keyed hash is right. Whatever is wrong with a file, the guest is compiled anew.

use crate::artefact_load::{Compiled, Key};
use crate::error::SandboxError;
use frostline_tensor::Cause;
use sha2::{Digest, Sha256};
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use wasmtime::Engine;
use wasmtime::component::Component;

pub(crate) struct Artefacts {
    directory: PathBuf,
    key: Key,
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
        make_private(directory).map_err(trouble)?;
        let key = read_or_make_key(&directory.join("key")).map_err(trouble)?;
        Ok(Self {
            directory: directory.to_owned(),
            key,
            engine: engine_hash(engine),
            most_bytes,
        })
    }

    /// The compiled guest of this SHA-256, if it lies here and is what this host put there.
    pub(crate) fn load(&self, engine: &Engine, sha256: &str) -> Option<Component> {
        let name = self.name(sha256);
        let path = self.directory.join(&name);
        let sealed = fs::read(&path).ok()?;
        let Some(compiled) = Compiled::unseal(sealed, &self.key, &name) else {
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
    pub(crate) fn store(&self, sha256: &str, compiled: &Compiled) {
        if let Err(error) = self.try_store(sha256, compiled) {
            tracing::warn!(directory = %self.directory.display(), %error, "cannot keep a compiled guest");
        }
    }

    fn try_store(&self, sha256: &str, compiled: &Compiled) -> io::Result<()> {
        let name = self.name(sha256);
        let sealed = compiled
            .seal(&self.key, &name)
            .ok_or_else(|| io::Error::other("it cannot be sealed"))?;
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        file.write_all(&sealed)?;
        file.persist(self.directory.join(name))?;
        self.make_room()
    }

    /// Removes the artefacts used longest ago until the rest fits.
    fn make_room(&self) -> io::Result<()> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
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

    fn name(&self, sha256: &str) -> String {
        format!("{sha256}-{}.cwasm", self.engine)
    }
}

/// Marks an artefact as used now, for [`Artefacts::make_room`].
fn touch(path: &Path) {
    let touched = fs::File::options()
        .append(true)
        .open(path)
        .and_then(|file| file.set_modified(SystemTime::now()));
    if let Err(error) = touched {
        tracing::debug!(artefact = %path.display(), %error, "cannot mark a compiled guest as used");
    }
}

fn make_private(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let mode = fs::metadata(directory)?.permissions().mode();
    if mode & 0o022 != 0 {
        return Err(io::Error::other(
            "other users may write there; make it this user's own (chmod go-w), or name another directory",
        ));
    }
    Ok(())
}

fn read_or_make_key(path: &Path) -> io::Result<Key> {
    match read_key(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => make_key(path),
        read => read,
    }
}

fn read_key(path: &Path) -> io::Result<Key> {
    use std::os::unix::fs::PermissionsExt;
    let mut file = fs::File::open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        return Err(io::Error::other(
            "other users may read its file `key`; remove the directory",
        ));
    }
    let mut key = Key::default();
    file.read_exact(&mut key)
        .map_err(|_| io::Error::other("its file `key` is cut short; remove the directory"))?;
    Ok(key)
}

/// Makes the key; of several hosts that start at once, one wins and the others read its key.
fn make_key(path: &Path) -> io::Result<Key> {
    let mut key = Key::default();
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(&key)?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok(key),
        Err(lost) if lost.error.kind() == io::ErrorKind::AlreadyExists => read_key(path),
        Err(lost) => Err(lost.error),
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
