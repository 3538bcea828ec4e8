//! Temporary folders of embedded hosts. They contain a token and the uploaded network.

use std::env;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Prefix of the names of these folders, also in the Python package.
const PREFIX: &str = "frostline-";
/// File that is locked while the folder is in use, also in the Python package.
const LOCK: &str = "lock";
/// Folder with the state of the host.
const STATE: &str = "state";

/// Temporary folder of an embedded host, removed on drop.
pub(crate) struct HostFolder {
    // Removed before the lock is released.
    folder: TempDir,
    _lock: File,
}

impl HostFolder {
    /// Creates a folder that only the current user can access. Also removes the folders of processes that
    /// were killed.
    pub(crate) fn create() -> io::Result<Self> {
        let parent = env::temp_dir();
        remove_abandoned(&parent);
        Self::create_in(&parent)
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        let private = 0o700;
        loop {
            let folder = tempfile::Builder::new()
                .prefix(PREFIX)
                .permissions(Permissions::from_mode(private))
                .tempdir_in(parent)?;
            let lock = File::create_new(folder.path().join(LOCK))?;
            // Another process may have removed the folder before it was locked.
            if lock.try_lock().is_ok() && lock.metadata()?.nlink() > 0 {
                DirBuilder::new()
                    .mode(private)
                    .create(folder.path().join(STATE))?;
                return Ok(Self { folder, _lock: lock });
            }
        }
    }

    /// Returns the path for the state of the host.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join(STATE)
    }
}

/// Removes the unlocked folders of the current user from `parent`, on a best-effort basis. Folders without a
/// lock file belong to something else.
fn remove_abandoned(parent: &Path) {
    let user = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // Does not follow links.
        if !is_named
            || !entry
                .metadata()
                .is_ok_and(|about| about.is_dir() && about.uid() == user)
        {
            continue;
        }
        let path = entry.path();
        let Ok(lock) = File::options().write(true).open(path.join(LOCK)) else {
            continue;
        };
        if lock.try_lock().is_ok() {
            // The lock file is removed last. If this process is killed meanwhile, a later one continues.
            let _ = fs::remove_dir_all(path.join(STATE));
            let _ = fs::remove_dir_all(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::os::unix::fs::symlink;

    fn names(parent: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(parent).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[test]
    fn folders_of_killed_processes_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let used = HostFolder::create_in(parent.path()).unwrap();
        let HostFolder { folder, _lock: lock } = HostFolder::create_in(parent.path()).unwrap();
        let abandoned = folder.keep();
        fs::write(abandoned.join(STATE).join("token"), "secret").unwrap();
        for other in ["frostline-notes", "photos"] {
            fs::create_dir(parent.path().join(other)).unwrap();
        }
        fs::write(parent.path().join("photos").join(LOCK), "").unwrap();
        symlink(&abandoned, parent.path().join("frostline-link")).unwrap();
        let all = names(parent.path());
        // The process still runs.
        remove_abandoned(parent.path());
        assert_eq!(names(parent.path()), all);
        drop(lock);
        remove_abandoned(parent.path());
        let left: BTreeSet<String> = names(parent.path());
        let removed: Vec<&String> = all.difference(&left).collect();
        assert_eq!(removed, [abandoned.file_name().unwrap().to_str().unwrap()]);
        assert!(used.state().is_dir());
        let mode = fs::metadata(used.state()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let path = used.folder.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }

    #[test]
    fn a_partially_removed_folder_is_removed_later() {
        let parent = tempfile::tempdir().unwrap();
        let HostFolder { folder, _lock: lock } = HostFolder::create_in(parent.path()).unwrap();
        fs::remove_dir(folder.keep().join(STATE)).unwrap();
        drop(lock);
        remove_abandoned(parent.path());
        assert!(names(parent.path()).is_empty());
    }
}
