//! Files that appear at their place when they are whole, or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// What files are called that are not whole yet.
const PARTIAL: &str = ".part";
/// Tensors are written in pieces of their own size, headers and tables in small ones.
const BUFFER: usize = 1 << 18;

/// Refuses a place that cannot be written to, before hours are spent on what should go there.
///
/// # Errors
/// The system's own.
pub fn check(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
    }
    temporary(path, |path| File::create_new(path)).map(drop)
}

/// Opens a new file to be written; tests open one that is full.
pub type Create = fn(&Path) -> io::Result<File>;

/// Writes what `fill` writes to `path`. A file that was there stays as it is until the new one takes its place.
///
/// # Errors
/// The system's own, such as a full disk, or what `fill` ends with; nothing is left behind.
pub fn write(path: &Path, fill: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>) -> io::Result<()> {
    write_to(path, |path| File::create_new(path), fill).map(drop)
}

/// [`write`], into a file that `create` opens. Returns its bytes.
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

/// A file that is written little by little. Dropping it leaves nothing.
pub struct Unfinished(NamedTempFile);

impl Unfinished {
    /// Begins a file that is to be at `path`.
    ///
    /// # Errors
    /// The system's own.
    pub fn create(path: &Path) -> io::Result<Self> {
        temporary(path, |path| File::create_new(path)).map(Self)
    }

    /// What is to be written to.
    pub fn file(&self) -> &File {
        self.0.as_file()
    }

    /// Puts it at the `path` it was begun for. Returns its bytes.
    ///
    /// # Errors
    /// The system's own.
    pub fn finish(self, path: &Path) -> io::Result<u64> {
        self.file().sync_all()?;
        let bytes = self.file().metadata()?.len();
        self.0.persist(path)?;
        File::open(folder(path))?.sync_all()?;
        Ok(bytes)
    }
}

/// Writes `bytes` that nobody else may read to `path`, unless there is a file: `false` then, also where somebody made one meanwhile.
///
/// # Errors
/// The system's own.
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

/// Removes what somebody who was killed left half written in `folder`.
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

/// A file beside `path`, so that it can be renamed to it. As any new file the user's mask applies to it.
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
