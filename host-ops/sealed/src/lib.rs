//! Private files that the host trusts when reading them again.
//!
//! A [`PrivateFolder`] is writable only by the host's user and contains the key. Each file is stored with a
//! keyed hash. An attacker who can forge a hash can read the key, which only the host's user can, and that
//! user does not need a forgery.
//!
//! [`whole_file`] writes files atomically, and [`lru`] limits the size of a folder.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests start threads"))]

pub mod lru;
pub mod whole_file;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Length of a keyed hash in bytes.
pub const TAG: usize = 32;

type Key = [u8; 32];

/// A folder of sealed files with the key.
pub struct PrivateFolder {
    path: PathBuf,
    key: Key,
}

impl PrivateFolder {
    /// Opens the folder, or creates it with a new key.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be created or is writable by other users, or if the key is
    /// truncated or readable by other users.
    pub fn open(path: &Path) -> io::Result<Self> {
        make_private(path)?;
        let key = read_or_make_key(&path.join("key"))?;
        let path = path.to_owned();
        Ok(Self { path, key })
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts a keyed hash for the name `name`. Add the content with [`KeyedHash::update`].
    ///
    /// # Errors
    /// Returns an error if the hash rejects the key, which does not occur: keys of any length are valid.
    pub fn hash(&self, name: &str) -> io::Result<KeyedHash> {
        let hash = Hmac::<Sha256>::new_from_slice(&self.key).map_err(io::Error::other)?;
        let mut hash = KeyedHash(hash);
        hash.update(&(name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
        Ok(hash)
    }
}

/// A keyed hash in progress.
pub struct KeyedHash(Hmac<Sha256>);

impl KeyedHash {
    /// Adds `bytes` to the hash.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// True if the hash equals `tag`; compares in constant time.
    pub fn is(self, tag: &[u8]) -> bool {
        self.0.verify_slice(tag).is_ok()
    }

    /// Returns the hash.
    pub fn tag(self) -> [u8; TAG] {
        self.0.finalize().into_bytes().into()
    }
}

/// Sets the modification time of a file to the current time, which is the last use for [`lru`].
///
/// # Errors
/// Returns the operating system's error.
pub fn touch(path: &Path) -> io::Result<()> {
    let file = File::options().append(true).open(path)?;
    file.set_modified(SystemTime::now())
}

fn make_private(directory: &Path) -> io::Result<()> {
    if make_folder(directory)? & 0o022 != 0 {
        return Err(io::Error::other(
            "other users can write to the directory; make it private (chmod go-w) or choose another directory",
        ));
    }
    Ok(())
}

/// Creates a folder that only the current user can access, including missing parents. Returns the mode of the
/// folder.
///
/// # Errors
/// Returns the operating system's error.
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
            "other users can read the file `key` in the directory; remove the directory",
        ));
    }
    let mut key = Key::default();
    file.read_exact(&mut key).map_err(|_| {
        io::Error::other("the file `key` in the directory is truncated; remove the directory")
    })?;
    Ok(key)
}

/// Creates the key. If several hosts start at the same time, only the first key is stored, and all hosts use
/// this key.
fn make_key(path: &Path) -> io::Result<Key> {
    let mut key = Key::default();
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    match whole_file::write_new_private(path, &key)? {
        true => Ok(key),
        false => read_key(path),
    }
}
