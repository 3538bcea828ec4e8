//! A folder of files to pack.

use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

pub(super) struct Tree(pub(super) PathBuf);

impl Tree {
    /// Copies a file and sets its permissions.
    pub(super) fn copy(&self, file: &Path, place: &str, mode: u32) -> Result<()> {
        let place = self.path(place)?;
        fs::copy(file, &place).with_context(|| format!("cannot copy {}", file.display()))?;
        set_mode(&place, mode)
    }

    /// Writes a file with mode 644.
    pub(super) fn write(&self, place: &str, text: &str) -> Result<()> {
        let place = self.path(place)?;
        fs::write(&place, text)?;
        set_mode(&place, 0o644)
    }

    /// Returns the path of a file and creates the folders above it with mode 755.
    pub(super) fn path(&self, place: &str) -> Result<PathBuf> {
        let mut path = self.0.clone();
        fs::create_dir_all(&path)?;
        set_mode(&path, 0o755)?;
        let mut parts = place.split('/').peekable();
        while let Some(part) = parts.next() {
            path.push(part);
            if parts.peek().is_some() && !path.is_dir() {
                fs::create_dir(&path)?;
                set_mode(&path, 0o755)?;
            }
        }
        Ok(path)
    }
}

pub(super) fn set_mode(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}
