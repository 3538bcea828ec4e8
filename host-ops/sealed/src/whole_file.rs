//! Atomic writes: a file is either complete or does not exist.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Extension of incomplete files.
const PARTIAL: &str = ".part";
/// Size of the write buffer in bytes. It collects the small writes of headers and tables; tensors are written
/// in large pieces.
const BUFFER: usize = 1 << 18;

/// Checks that `path` is writable, before hours are spent on the content.
///
/// # Errors
/// Returns an error if `path` is a directory or a file cannot be created next to it.
pub fn check(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            "the path is a directory",
        ));
    }
    temporary(path, |path| File::create_new(path)).map(drop)
}

/// Function that opens a new file for writing. Tests replace this function to simulate a full disk.
pub type Create = fn(&Path) -> io::Result<File>;

/// Writes the output of `fill` to `path`. An existing file remains unchanged until replaced by the complete
/// new file.
///
/// # Errors
/// Returns an error of the operating system, for example because the disk is full, or the error of `fill`. No
/// partial file remains.
pub fn write(path: &Path, fill: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>) -> io::Result<()> {
    write_to(path, |path| File::create_new(path), fill).map(drop)
}

/// Same as [`write()`], into a file that `create` opens. Returns the size in bytes.
pub fn write_to(
    path: &Path,
    create: Create,
    fill: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> io::Result<u64> {
    let file = Unfinished(temporary(path, create)?);
    let mut writer = BufWriter::with_capacity(BUFFER, file.file());
    fill(&mut writer)?;
    writer.flush()?;
    drop(writer);
    file.finish(path)
}

/// A temporary file for incremental writes. Dropping this value removes the file.
pub struct Unfinished(NamedTempFile);

impl Unfinished {
    /// Creates a temporary file for `path`.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn create(path: &Path) -> io::Result<Self> {
        temporary(path, |path| File::create_new(path)).map(Self)
    }

    /// Returns the file to write to.
    pub fn file(&self) -> &File {
        self.0.as_file()
    }

    /// Moves the file to `path`, which must be the path passed to [`Self::create`]. Returns the size in
    /// bytes.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn finish(self, path: &Path) -> io::Result<u64> {
        self.file().sync_all()?;
        let bytes = self.file().metadata()?.len();
        self.0.persist(path)?;
        File::open(folder(path))?.sync_all()?;
        Ok(bytes)
    }
}

/// Writes `bytes` to a new file that only the current user can read. Returns false if `path` exists,
/// including if it was created concurrently.
///
/// # Errors
/// Returns the operating system's error.
pub fn write_new_private(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let mut file = NamedTempFile::new_in(folder(path))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok(true),
        Err(lost) if lost.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(lost) => Err(lost.error),
    }
}

/// Removes incomplete files of killed processes from `folder`.
pub fn sweep(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') && name.ends_with(PARTIAL) {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Creates a temporary file in the folder of `path`, so that it can be renamed. The permissions follow the
/// user's umask.
fn temporary(path: &Path, create: Create) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".frostline-").suffix(PARTIAL);
    builder.make_in(folder(path), create)
}

fn folder(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_whole_or_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figures.csv");
        check(&path).unwrap();
        write(&path, |file| file.write_all(b"first")).unwrap();
        let failed = write(&path, |file| {
            file.write_all(b"half of the sec")?;
            Err(io::Error::other("on purpose"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "on purpose");
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        std::fs::write(folder.path().join(".frostline-x.part"), "half").unwrap();
        sweep(folder.path()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(check(folder.path()).is_err());
        assert!(check(&folder.path().join("no/such/folder.csv")).is_err());
    }
}
