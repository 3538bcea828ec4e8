//! Atomic writes: a regular file is either complete or does not exist. Links are followed, and pipes and
//! devices are written to instead of being replaced.

use rustix::fs::{Access, access};
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Extension of incomplete files.
const PARTIAL: &str = ".part";
/// Size of the write buffer in bytes. It collects the small writes of headers and tables; tensors are written
/// in large pieces.
const BUFFER: usize = 1 << 18;

/// Destination of a write, with links resolved.
enum Destination {
    /// A regular file to replace, or a path where no file exists.
    File(PathBuf),
    /// A pipe or device to write to. A path such as `/dev/stdout` may not have any other name.
    Stream(PathBuf),
}

impl Destination {
    /// Follows the links at `path`.
    ///
    /// # Errors
    /// Returns an error if `path` leads to a directory or a socket, or cannot be accessed.
    fn find(path: &Path) -> io::Result<Self> {
        match fs::metadata(path) {
            Ok(found) if found.is_file() => Ok(Self::File(fs::canonicalize(path)?)),
            Ok(found) if found.is_dir() => Err(refused(ErrorKind::IsADirectory, "directory")),
            Ok(found) if found.file_type().is_socket() => Err(refused(ErrorKind::InvalidInput, "socket")),
            Ok(_) => Ok(Self::Stream(path.to_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::File(follow_dangling(path))),
            Err(error) => Err(error),
        }
    }
}

fn refused(kind: ErrorKind, what: &str) -> io::Error {
    io::Error::new(kind, format!("the path is a {what}"))
}

/// Returns the path of the missing file that `path` leads to.
fn follow_dangling(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // The system has already refused cycles.
    while let Ok(target) = fs::read_link(&path) {
        path = folder(&path).join(target);
    }
    path
}

/// Checks that `path` is writable, before hours are spent on the content.
///
/// # Errors
/// Returns an error if `path` is a directory or a socket, if a file cannot be created next to it, or if the
/// user may not write to the pipe or device.
pub fn check(path: &Path) -> io::Result<()> {
    match Destination::find(path)? {
        Destination::File(path) => temporary(&path, |path| File::create_new(path)).map(drop),
        // Opening a pipe would wait for its reader, and closing it would end the reader.
        Destination::Stream(path) => Ok(access(&path, Access::WRITE_OK)?),
    }
}

/// Returns true if both paths lead to the same regular file, also through links or in another spelling.
pub fn is_same(left: &Path, right: &Path) -> bool {
    file_id(left).is_some_and(|left| file_id(right) == Some(left))
}

/// Returns the device and the inode of the regular file that `path` leads to.
fn file_id(path: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some((found.dev(), found.ino()))
}

/// Function that opens a new file for writing. Tests replace this function to simulate a full disk.
pub type Create = fn(&Path) -> io::Result<File>;

/// Writes the output of `fill` to `path`. An existing file remains unchanged until replaced by the complete
/// new file. Links are followed, and pipes and devices are written to.
///
/// # Errors
/// Returns an error of the operating system, for example because the disk is full, or the error of `fill`. No
/// partial file remains.
pub fn write(path: &Path, fill: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>) -> io::Result<()> {
    write_to(path, |path| File::create_new(path), fill).map(drop)
}

/// Same as [`write()`], into a file that `create` opens. Returns the size in bytes, or 0 for a pipe or device.
pub fn write_to(
    path: &Path,
    create: Create,
    fill: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> io::Result<u64> {
    let file = Unfinished::create_with(path, create)?;
    let mut writer = BufWriter::with_capacity(BUFFER, file.file());
    fill(&mut writer)?;
    writer.flush()?;
    drop(writer);
    file.finish()
}

/// Open output for incremental writes, which is a temporary file, a pipe or a device. Dropping this value
/// removes the temporary file.
#[derive(Debug)]
pub struct Unfinished(OutputFile);

#[derive(Debug)]
enum OutputFile {
    /// Temporary file with the path to move it to.
    File(NamedTempFile, PathBuf),
    Stream(File),
}

impl Unfinished {
    /// Creates a temporary file for `path`, or opens the pipe or device at `path`, which waits for the reader
    /// of a pipe.
    ///
    /// # Errors
    /// Returns an error if `path` is a directory or a socket, or the operating system's error.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::create_with(path, |path| File::create_new(path))
    }

    fn create_with(path: &Path, create: Create) -> io::Result<Self> {
        Ok(Self(match Destination::find(path)? {
            Destination::File(path) => OutputFile::File(temporary(&path, create)?, path),
            Destination::Stream(path) => OutputFile::Stream(File::options().write(true).open(path)?),
        }))
    }

    /// Returns the path of the complete file, which differs from the requested path if this is a link.
    /// Returns `None` for a pipe or device.
    pub fn path(&self) -> Option<&Path> {
        match &self.0 {
            OutputFile::File(_, path) => Some(path),
            OutputFile::Stream(_) => None,
        }
    }

    /// Returns the file to write to.
    pub fn file(&self) -> &File {
        match &self.0 {
            OutputFile::File(file, _) => file.as_file(),
            OutputFile::Stream(file) => file,
        }
    }

    /// Moves a complete file to its path. Returns the size in bytes, or 0 for a pipe or device.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn finish(self) -> io::Result<u64> {
        let OutputFile::File(file, path) = self.0 else {
            return Ok(0);
        };
        file.as_file().sync_all()?;
        let bytes = file.as_file().metadata()?.len();
        file.persist(&path)?;
        File::open(folder(&path))?.sync_all()?;
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
        Err(lost) if lost.error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(lost) => Err(lost.error),
    }
}

/// Removes incomplete files of killed processes from `folder`.
pub fn sweep(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') && name.ends_with(PARTIAL) {
            fs::remove_file(path)?;
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
    use rustix::fs::{Mode, OFlags, open};
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    /// Creates a node in `folder` with arguments of `mknod`.
    fn node(folder: &Path, kind: &[&str]) -> PathBuf {
        let path = folder.join("node");
        let made = Command::new("mknod").arg(&path).args(kind).status();
        assert!(made.unwrap().success());
        path
    }

    #[test]
    fn a_pipe_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = node(folder.path(), &["p"]);
        let link = folder.path().join("link");
        symlink("node", &link).unwrap();
        for path in [&pipe, &link] {
            check(path).unwrap();
            // With a reader that does not wait for a writer, nothing in this test waits.
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let mut reader = File::from(open(&pipe, flags, Mode::empty()).unwrap());
            let written = write_to(
                path,
                |path| File::create_new(path),
                |file| file.write_all(b"all of it"),
            );
            assert_eq!(written.unwrap(), 0);
            // One read instead of reading to the end: a process that another test is starting may still hold a
            // copy of the writer.
            let mut read = [0; 64];
            let count = reader.read(&mut read).unwrap();
            assert_eq!(&read[..count], b"all of it");
            assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    mod needs_root {
        use super::*;

        #[test]
        fn a_device_is_written_to() {
            let folder = tempfile::tempdir().unwrap();
            // The null device, in the folder of the test.
            let device = node(folder.path(), &["c", "1", "3"]);
            check(&device).unwrap();
            // Mounts can forbid the use of devices, but the node must not be replaced.
            let _ = write(&device, |file| file.write_all(b"nothing"));
            assert!(fs::metadata(&device).unwrap().file_type().is_char_device());
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn links_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("inner")).unwrap();
        fs::write(at("inner/there"), "before").unwrap();
        symlink("inner/there", at("link")).unwrap();
        symlink("link", at("second")).unwrap();
        symlink(at("inner/new"), at("dangling")).unwrap();
        symlink("cycle", at("cycle")).unwrap();
        for (link, target) in [("second", "inner/there"), ("dangling", "inner/new")] {
            check(&at(link)).unwrap();
            write(&at(link), |file| file.write_all(b"after")).unwrap();
            assert!(at(link).is_symlink());
            assert_eq!(fs::read(at(target)).unwrap(), b"after");
        }
        assert!(check(&at("cycle")).is_err());
        assert_eq!(fs::read_dir(at("inner")).unwrap().count(), 2);
    }

    #[test]
    fn directories_and_sockets_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        for (path, what) in [(folder.path(), "a directory"), (&socket, "a socket")] {
            let error = check(path).unwrap_err().to_string();
            assert!(error.ends_with(what), "{error}");
            assert!(write(path, |_| Ok(())).is_err());
        }
    }

    #[test]
    fn a_file_is_recognized_in_any_spelling() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("inner")).unwrap();
        for name in ["model", "other"] {
            fs::write(at(name), "same content").unwrap();
        }
        symlink("../model", at("inner/link")).unwrap();
        for same in ["model", "inner/../model", "inner/link"] {
            assert!(is_same(&at("model"), &at(same)), "{same}");
        }
        let pipe = node(folder.path(), &["p"]);
        for [left, right] in [
            [at("model"), at("other")],
            [at("model"), at("none")],
            [at("none"), at("none")],
            [at("inner"), at("inner")],
            [pipe.clone(), pipe],
        ] {
            assert!(!is_same(&left, &right), "{left:?} {right:?}");
        }
    }

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
