use frostline_primitives::now;
use frostline_sealed::{lru, whole_file};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of files. A file has about 10 KB and contains the profile of a model for a set of cuts. If
/// more are needed, the oldest profiles are measured again.
const MOST_FILES: u64 = 256;

/// Validity of a profile in seconds. All known dependencies are part of the key. The expiration covers
/// unknown dependencies such as kernel updates.
const SECONDS: u64 = 30 * 24 * 60 * 60;

/// A profile could not be stored. The next job repeats the measurement.
#[derive(Debug, thiserror::Error)]
#[error("cannot store a profile in {}: {source}", folder.display())]
pub struct FolderError {
    /// Path of the folder.
    pub folder: PathBuf,
    /// Error of the system.
    pub source: io::Error,
}

/// Folder of stored profiles. Keys contain all known dependencies of a measurement. The folder contains up to
/// 256 files. Files are written atomically, and unreadable files are ignored.
#[derive(Debug, Clone)]
pub struct ProfileFolder {
    path: PathBuf,
}

/// File content.
#[derive(Serialize, Deserialize)]
struct StoredProfile {
    /// SHA-256 of the model.
    subject: String,
    key: serde_json::Value,
    stored_at: u64,
    value: serde_json::Value,
}

impl ProfileFolder {
    /// Returns the folder at `path`. It is created when the first profile is stored.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the profile of `subject` with `key`, or `None` if it is missing or expired.
    pub fn get<T: DeserializeOwned>(&self, subject: &str, key: &impl Serialize) -> Option<T> {
        self.get_at(subject, key, now())
    }

    pub(crate) fn get_at<T: DeserializeOwned>(
        &self,
        subject: &str,
        key: &impl Serialize,
        now: u64,
    ) -> Option<T> {
        let key = serde_json::to_value(key).ok()?;
        let entry = read(&self.file(subject, &key))?;
        let fits = entry.subject == subject && entry.key == key && entry.is_fresh(now);
        fits.then(|| serde_json::from_value(entry.value).ok()).flatten()
    }

    /// Returns the most recent profile of `subject`, regardless of the key, or `None` if it is missing or
    /// expired.
    pub fn newest<T: DeserializeOwned>(&self, subject: &str) -> Option<T> {
        let now = now();
        let entries = self.files().into_iter().filter_map(|file| read(&file.path));
        let newest = entries
            .filter(|entry| entry.subject == subject && entry.is_fresh(now))
            .max_by_key(|entry| entry.stored_at)?;
        serde_json::from_value(newest.value).ok()
    }

    /// Stores `value` as the profile of `subject` with `key`, and replaces a previous one.
    ///
    /// # Errors
    /// Returns [`FolderError`] if the file cannot be written.
    pub fn put(
        &self,
        subject: &str,
        key: &impl Serialize,
        value: &impl Serialize,
    ) -> Result<(), FolderError> {
        let stored = self.write(subject, key, value);
        stored.map_err(|source| FolderError {
            folder: self.path.clone(),
            source,
        })
    }

    fn write(&self, subject: &str, key: &impl Serialize, value: &impl Serialize) -> io::Result<()> {
        let entry = StoredProfile {
            subject: subject.to_owned(),
            key: serde_json::to_value(key)?,
            stored_at: now(),
            value: serde_json::to_value(value)?,
        };
        std::fs::create_dir_all(&self.path)?;
        let file = self.file(subject, &entry.key);
        whole_file::write(&file, |to| Ok(serde_json::to_writer(to, &entry)?))?;
        self.remove_oldest();
        Ok(())
    }

    /// Removes the oldest files above the limit. Failures are ignored, because remaining files only use
    /// space.
    fn remove_oldest(&self) {
        let files = self
            .files()
            .into_iter()
            .map(|file| lru::Entry { size: 1, ..file });
        let _ = lru::evict(files.collect(), MOST_FILES, |path| {
            let _ = std::fs::remove_file(path);
            Ok(true)
        });
    }

    fn files(&self) -> Vec<lru::Entry> {
        lru::files(&self.path, "json").unwrap_or_default()
    }

    fn file(&self, subject: &str, key: &serde_json::Value) -> PathBuf {
        let name = hex::encode(Sha256::digest(format!("{subject}\n{key}").as_bytes()));
        self.path.join(format!("{name}.json"))
    }
}

impl StoredProfile {
    fn is_fresh(&self, now: u64) -> bool {
        now.saturating_sub(self.stored_at) < SECONDS
    }
}

fn read(path: &Path) -> Option<StoredProfile> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, ProfileFolder) {
        let parent = tempfile::tempdir().unwrap();
        let folder = ProfileFolder::new(parent.path().join("profiles"));
        (parent, folder)
    }

    #[test]
    fn what_was_stored_is_found_under_its_key_and_no_other() {
        let (_parent, folder) = folder();
        assert_eq!(folder.get::<u32>("model", &("cut", 1)), None);
        folder.put("model", &("cut", 1), &7).unwrap();
        folder.put("model", &("cut", 2), &8).unwrap();
        assert_eq!(folder.get("model", &("cut", 1)), Some(7));
        assert_eq!(folder.get("model", &("cut", 2)), Some(8));
        assert_eq!(folder.get::<u32>("other", &("cut", 1)), None);
        folder.put("model", &("cut", 1), &9).unwrap();
        assert_eq!(folder.get("model", &("cut", 1)), Some(9));
    }

    #[test]
    fn the_newest_of_a_model_is_found_without_its_key() {
        let (_parent, folder) = folder();
        assert_eq!(folder.newest::<u32>("model"), None);
        folder.put("model", &1, &7).unwrap();
        folder.put("other", &1, &8).unwrap();
        assert_eq!(folder.newest("model"), Some(7));
    }

    #[test]
    fn what_is_older_than_a_month_is_stale() {
        let (_parent, folder) = folder();
        folder.put("model", &1, &7).unwrap();
        assert_eq!(folder.get_at("model", &1, now() + SECONDS - 60), Some(7));
        assert_eq!(folder.get_at::<u32>("model", &1, now() + SECONDS + 60), None);
    }

    #[test]
    fn a_broken_file_is_as_good_as_none() {
        let (_parent, folder) = folder();
        folder.put("model", &1, &7).unwrap();
        let [file] = folder.files().try_into().unwrap();
        std::fs::write(&file.path, "{\"subject\":").unwrap();
        assert_eq!(folder.get::<u32>("model", &1), None);
        assert_eq!(folder.newest::<u32>("model"), None);
        folder.put("model", &1, &8).unwrap();
        assert_eq!(folder.get("model", &1), Some(8));
    }

    #[test]
    fn profiles_in_an_older_format_are_ignored() {
        let (_parent, folder) = folder();
        folder
            .put("model", &1, &serde_json::json!({"place": {}}))
            .unwrap();
        assert_eq!(folder.get::<frostline_wire::Profile>("model", &1), None);
        assert_eq!(folder.newest::<frostline_wire::Profile>("model"), None);
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let (_parent, folder) = folder();
        for key in 0..MOST_FILES + 5 {
            folder.put("model", &key, &key).unwrap();
        }
        assert_eq!(folder.files().len() as u64, MOST_FILES);
        assert_eq!(folder.get("model", &(MOST_FILES + 4)), Some(MOST_FILES + 4));
    }

    #[test]
    fn a_folder_that_cannot_be_is_named() {
        let (parent, _) = folder();
        std::fs::write(parent.path().join("file"), "x").unwrap();
        let error = ProfileFolder::new(parent.path().join("file/profiles")).put("model", &1, &1);
        assert!(error.unwrap_err().to_string().contains("file/profiles"));
    }
}
