//! Object store in a local folder. The kernel resolves every path below the root (`openat2` with
//! `RESOLVE_BENEATH`), so links cannot be swapped between a check and an open: there is no check, only the
//! open.

use crate::root::DEADLINE;
use async_trait::async_trait;
use bytes::Bytes;
use frostline_batching::{Charge, Stop, run_blocking};
use futures::stream::BoxStream;
use futures::{StreamExt, TryFutureExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, Extensions, GetOptions, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path as FilePath, PathBuf};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Maximum number of attempts to open a path while another process renames folders on it. After that, the
/// open fails.
const TRIES: usize = 8;

/// Maximum number of unfinished files per key, including files left by killed writers.
const WRITERS: usize = 1000;

/// Maximum number of threads that access a folder concurrently. On a file system that hangs, they never end, and
/// the process has 512 such threads for all folders.
const THREADS: usize = 32;

/// Bytes that are read from a file between two checks. A disk needs a few milliseconds.
const PIECE: usize = 1 << 20;

/// Flags that open a folder, to read its entries or to write into it.
pub(crate) const DIRECTORY: OFlags = OFlags::DIRECTORY;

/// Object store in a local folder; see the module.
#[derive(Debug, Clone)]
pub(crate) struct LocalFolder {
    /// Canonical path.
    root: PathBuf,
    /// Permits for threads, see [`THREADS`].
    threads: Arc<Semaphore>,
}

/// The folder of the root was removed or unmounted. Without this error, all of its objects would be missing.
#[derive(Debug, thiserror::Error)]
#[error("the folder of the data root does not exist")]
struct NoRoot;

/// True if a folder's root no longer exists.
pub(crate) fn is_without_root(error: &Error) -> bool {
    let Error::NotFound { source, .. } = error else {
        return false;
    };
    let inner = source.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    inner.is_some_and(|inner| inner.is::<NoRoot>())
}

impl LocalFolder {
    /// Creates a store. `root` must be canonical.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self {
            root,
            threads: Arc::new(Semaphore::new(THREADS)),
        }
    }

    /// Opens `path` below the root, following links. Fails with `EXDEV` if a link leads out of the root.
    pub(crate) fn open(&self, path: impl AsRef<FilePath>, flags: OFlags) -> io::Result<OwnedFd> {
        let path = path.as_ref();
        match self.open_beneath(path, flags, ResolveFlags::empty()) {
            // The kernel refuses absolute links. Resolve the link, and open the target's path without links.
            Err(Errno::XDEV) => {
                let real = self.root.join(path).canonicalize()?;
                let inside = real.strip_prefix(&self.root).map_err(|_| Errno::XDEV)?;
                Ok(self.open_beneath(inside, flags, ResolveFlags::NO_SYMLINKS)?)
            }
            Err(Errno::NOENT | Errno::NOTDIR) if !self.root.is_dir() => {
                Err(io::Error::new(io::ErrorKind::NotFound, NoRoot))
            }
            opened => Ok(opened?),
        }
    }

    /// Checks that there is a folder at `location`.
    pub(crate) async fn check_folder(&self, location: &Path) -> Result<()> {
        self.run(location, Charge::default(), |folder, at| {
            folder.open(at.as_ref(), DIRECTORY).map(drop)
        })
        .await
    }

    /// Returns the target of the link at `path` if it leads out of the root. The target is not accessed, so
    /// the result does not reveal whether it exists.
    pub(crate) fn outward_target(&self, path: impl AsRef<FilePath>) -> Option<String> {
        let path = path.as_ref();
        let out = self.open_beneath(path, OFlags::PATH, ResolveFlags::empty());
        if !matches!(out, Err(Errno::XDEV)) {
            return None;
        }
        let link = self.open_beneath(path, OFlags::PATH | OFlags::NOFOLLOW, ResolveFlags::empty());
        let target = rustix::fs::readlinkat(link.ok()?, "", Vec::new()).ok()?;
        let target = target.to_string_lossy().into_owned();
        // The kernel refuses absolute links, even to a target in the root.
        let inside = FilePath::new(&target).strip_prefix(&self.root);
        let nowhere = inside.is_ok_and(|below| {
            below
                .components()
                .all(|part| matches!(part, Component::Normal(_)))
        });
        (!nowhere).then_some(target)
    }

    fn open_beneath(
        &self,
        path: &FilePath,
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> rustix::io::Result<OwnedFd> {
        let root = rustix::fs::open(
            &self.root,
            OFlags::PATH | DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let path = if path.as_os_str().is_empty() {
            FilePath::new(".")
        } else {
            path
        };
        let resolve = resolve | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        let mut tries = (0..TRIES).map(|_| rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve));
        let settled = tries.find(|opened| !matches!(opened, Err(Errno::AGAIN | Errno::INTR)));
        settled.unwrap_or(Err(Errno::AGAIN))
    }

    /// Opens a regular file for reading. Pipes are refused without waiting for a writer.
    fn file(&self, location: &Path) -> io::Result<(File, Metadata)> {
        check_name(location)?;
        let file = File::from(self.open(location.as_ref(), OFlags::RDONLY | OFlags::NONBLOCK)?);
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(Errno::NOENT.into());
        }
        if !metadata.is_file() {
            return Err(io::Error::other(
                "it is a pipe, socket or device; only regular files can be read",
            ));
        }
        Ok((file, metadata))
    }

    /// Opens the folder at `path` and creates it if it is missing.
    fn folder(&self, path: &FilePath) -> io::Result<OwnedFd> {
        match (self.open(path, DIRECTORY), path.parent(), path.file_name()) {
            (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
                let parent = self.folder(parent)?;
                match rustix::fs::mkdirat(&parent, name, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
                    Err(error) if error != Errno::EXIST => return Err(error.into()),
                    _ => rustix::fs::fsync(&parent)?,
                }
                self.open(path, DIRECTORY)
            }
            (opened, _, _) => opened,
        }
    }

    /// Writes a file atomically and returns its etag.
    fn put(&self, location: &Path, payload: &PutPayload, mode: &PutMode) -> io::Result<String> {
        let (parent, name) = self.place(location)?;
        let folder = self.folder(parent)?;
        let (mut file, staged) = stage(&folder, name)?;
        let written = payload
            .iter()
            .try_for_each(|part| file.write_all(part))
            .and_then(|()| file.sync_all())
            .and_then(|()| publish(&folder, &staged, name, mode))
            .and_then(|()| file.metadata());
        if written.is_err() {
            // Report the error of the write, not of the cleanup.
            rustix::fs::unlinkat(&folder, &staged, AtFlags::empty()).ok();
        }
        Ok(etag(&written?))
    }

    fn delete(&self, location: &Path) -> io::Result<()> {
        let (parent, name) = self.place(location)?;
        let folder = self.open(parent, DIRECTORY)?;
        Ok(rustix::fs::unlinkat(&folder, name, AtFlags::empty())?)
    }

    /// Returns the folder and the file name to write to. Refuses a link that leads out of the root, although
    /// the write would replace the link itself.
    fn place<'a>(&self, location: &'a Path) -> io::Result<(&'a FilePath, &'a str)> {
        check_name(location)?;
        match self.open(location.as_ref(), OFlags::PATH) {
            Err(error) if leads_out(&error) || loops(&error) => return Err(error),
            _ => {}
        }
        let path = FilePath::new(location.as_ref());
        let name = path.file_name().and_then(|name| name.to_str());
        Ok((path.parent().unwrap_or(path), name.ok_or(Errno::INVAL)?))
    }

    /// Runs a few system calls on a thread, paid from `charge`.
    async fn run<T: Send + 'static>(
        &self,
        location: &Path,
        charge: Charge,
        work: impl FnOnce(&Self, &Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let permit = Arc::clone(&self.threads).acquire_owned().await;
        let folder = self.clone();
        let at = location.clone();
        let done = run_blocking(permit, DEADLINE, charge, move |_| work(&folder, &at)).await;
        let done = done.unwrap_or_else(|unfinished| Err(unfinished.into()));
        done.map_err(|error| explained(location, error))
    }
}

/// Reads a range of a file. Fails if the file is shorter.
pub(crate) fn read(mut file: File, range: Range<u64>, stop: &Stop) -> io::Result<Bytes> {
    file.seek(SeekFrom::Start(range.start))?;
    let size = usize::try_from(range.end.saturating_sub(range.start)).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(size);
    while bytes.len() < size {
        stop.check()?;
        let piece = PIECE.min(size - bytes.len());
        if (&mut file).take(piece as u64).read_to_end(&mut bytes)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(bytes.into())
}

/// Creates a file next to `name` and returns it with its temporary name.
fn stage(folder: &OwnedFd, name: &str) -> io::Result<(File, String)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o666);
    for number in 1..=WRITERS {
        let staged = format!("{name}#{number}");
        match rustix::fs::openat(folder, &staged, flags, mode) {
            Ok(file) => return Ok((file.into(), staged)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other(format!(
        "{WRITERS} unfinished files named {name}#<number> exist already; delete the unused ones"
    )))
}

fn publish(folder: &OwnedFd, staged: &str, name: &str, mode: &PutMode) -> io::Result<()> {
    if matches!(mode, PutMode::Create) {
        rustix::fs::linkat(folder, staged, folder, name, AtFlags::empty())?;
        rustix::fs::unlinkat(folder, staged, AtFlags::empty())?;
    } else {
        rustix::fs::renameat(folder, staged, folder, name)?;
    }
    Ok(rustix::fs::fsync(folder)?)
}

/// Returns true if the name marks a file that is being written, such as `photo.jpg#1`. Listings and reads
/// exclude these files.
pub(crate) fn is_being_written(name: &str) -> bool {
    name.split_once('#')
        .is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn check_name(location: &Path) -> io::Result<()> {
    match location.filename() {
        Some(name) if is_being_written(name) => Err(io::Error::other(
            "names with '#' and a number at the end are reserved for files being written; rename the file",
        )),
        _ => Ok(()),
    }
}

/// Returns true if a link leads out of the root.
pub(crate) fn leads_out(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::XDEV)
}

/// Returns true if a link leads to itself, or through more links than the kernel follows.
pub(crate) fn loops(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::LOOP)
}

pub(crate) fn explained(location: &Path, error: io::Error) -> Error {
    let path = location.to_string();
    let kind = error.kind();
    let source = error.into();
    match kind {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::NotFound { path, source },
        io::ErrorKind::AlreadyExists => Error::AlreadyExists { path, source },
        _ => Error::Generic {
            store: "folder",
            source,
        },
    }
}

fn meta(location: &Path, metadata: &Metadata) -> io::Result<ObjectMeta> {
    Ok(ObjectMeta {
        location: location.clone(),
        last_modified: metadata.modified()?.into(),
        size: metadata.len(),
        e_tag: Some(etag(metadata)),
        version: Some(nanoseconds(metadata.ctime(), metadata.ctime_nsec()).to_string()),
    })
}

/// Returns the version of a file: size and modification time, which copies of a file share.
fn etag(metadata: &Metadata) -> String {
    let modified = nanoseconds(metadata.mtime(), metadata.mtime_nsec());
    format!("\"{modified:x}-{:x}\"", metadata.len())
}

/// Returns the time in nanoseconds since 1970, or 0 if it is earlier.
fn nanoseconds(seconds: i64, nanoseconds: i64) -> u64 {
    let time = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    u64::try_from(time).unwrap_or_default()
}

/// Returns the time of the last change of a file that this store listed, in nanoseconds since the
/// Unix epoch. The store passes it as the version, because `object_store` does not report it.
pub(crate) fn changed(meta: &ObjectMeta) -> Option<u64> {
    meta.version.as_deref()?.parse().ok()
}

#[async_trait]
impl ObjectStore for LocalFolder {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        if let PutMode::Update(_) = options.mode {
            return Err(self.cannot("update"));
        }
        let charge = options.extensions.get::<Charge>().cloned();
        Ok(PutResult {
            e_tag: Some(
                self.run(location, charge.unwrap_or_default(), move |folder, at| {
                    folder.put(at, &payload, &options.mode)
                })
                .await?,
            ),
            version: None,
            extensions: Extensions::default(),
        })
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let charge = options.extensions.get::<Charge>().cloned();
        let opened = self.run(location, charge.unwrap_or_default(), |folder, at| {
            let (file, metadata) = folder.file(at)?;
            Ok((file, meta(at, &metadata)?))
        });
        let (file, meta) = opened.await?;
        options.check_preconditions(&meta)?;
        let range = options.range.map(|range| range.as_range(meta.size));
        let range = range.transpose().map_err(|error| Error::Generic {
            store: "folder",
            source: error.into(),
        })?;
        Ok(GetResult {
            payload: GetResultPayload::File(file, location.as_ref().into()),
            range: range.unwrap_or(0..meta.size),
            meta,
            attributes: Attributes::default(),
            extensions: Extensions::default(),
        })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let folder = self.clone();
        locations
            .then(move |location| {
                let folder = folder.clone();
                async move {
                    let location = location?;
                    folder
                        .run(&location, Charge::default(), Self::delete)
                        .map_ok(|()| location.clone())
                        .await
                }
            })
            .boxed()
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(self.cannot("put_multipart"))
    }

    // `folder::page` lists the folder in key order.
    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        futures::stream::iter([Err(self.cannot("list"))]).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(self.cannot("list_with_delimiter"))
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(self.cannot("copy"))
    }
}

impl LocalFolder {
    fn cannot(&self, operation: &str) -> Error {
        Error::NotImplemented {
            operation: operation.to_owned(),
            implementer: self.to_string(),
        }
    }
}

impl std::fmt::Display for LocalFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the folder {}", self.root.display())
    }
}
