//! Files that a host wrote for itself and trusts when it reads them again: they lie in a folder that nobody else may write to, each beside
//! a keyed hash, whose key lies there too.
//!
//! And files that appear at their place when they are whole, or not at all: [`whole_file`].
//!
//! Whoever can forge a hash can read the key, which only this host's user can; he needs no forgery.

pub mod whole_file;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Bytes of a keyed hash.
pub const TAG: usize = 32;

type Key = [u8; 32];

/// A folder of sealed files, with its key.
pub struct PrivateFolder {
    path: PathBuf,
    key: Key,
}

impl PrivateFolder {
    /// Opens the folder, or makes it with a fresh key.
    ///
    /// # Errors
    /// When it cannot be made, or others may write there or read its key.
    pub fn open(path: &Path) -> io::Result<Self> {
        make_private(path)?;
        let key = read_or_make_key(&path.join("key"))?;
        let path = path.to_owned();
        Ok(Self { path, key })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The keyed hash of what is called `name`, to be fed its bytes.
    ///
    /// # Errors
    /// None that is known: the hash takes keys of any length.
    pub fn hash(&self, name: &str) -> io::Result<KeyedHash> {
        let hash = Hmac::<Sha256>::new_from_slice(&self.key).map_err(io::Error::other)?;
        let mut hash = KeyedHash(hash);
        hash.update(&(name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
        Ok(hash)
    }
}

/// A keyed hash under way.
pub struct KeyedHash(Hmac<Sha256>);

impl KeyedHash {
    /// Takes in `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Whether it is `tag`.
    pub fn is(self, tag: &[u8]) -> bool {
        self.0.verify_slice(tag).is_ok()
    }

    /// What it is.
    pub fn tag(self) -> [u8; TAG] {
        self.0.finalize().into_bytes().into()
    }
}

/// Marks a file as used now, for whoever removes those that were used longest ago.
///
/// # Errors
/// The system's.
pub fn touch(path: &Path) -> io::Result<()> {
    let file = File::options().append(true).open(path)?;
    file.set_modified(SystemTime::now())
}

fn make_private(directory: &Path) -> io::Result<()> {
    if make_folder(directory)? & 0o022 != 0 {
        return Err(io::Error::other(
            "other users may write there; make it this user's own (chmod go-w), or name another directory",
        ));
    }
    Ok(())
}

/// Makes a folder for this user alone, and those above it, where they are missing. Returns its mode.
///
/// # Errors
/// The system's.
pub fn make_folder(path: &Path) -> io::Result<u32> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    Ok(fs::metadata(path)?.permissions().mode())
}

fn read_or_make_key(path: &Path) -> io::Result<Key> {
    match read_key(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => make_key(path),
        read => read,
    }
}

fn read_key(path: &Path) -> io::Result<Key> {
    use std::os::unix::fs::PermissionsExt;
    let mut file = File::open(path)?;
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
    match whole_file::write_new_private(path, &key)? {
        true => Ok(key),
        false => read_key(path),
    }
}
