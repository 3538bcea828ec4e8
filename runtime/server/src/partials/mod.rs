//! Uploads in progress, and interrupted ones that can be resumed.
//!
//! Each upload is stored in the file `partials/<sha256>.<tenant>`, named by the SHA-256 of the complete
//! upload. Only one request at a time writes a file. Interrupted uploads are limited by number, size and age.

mod leftovers;

pub(crate) use leftovers::PartialLimits;

use crate::refusal::Refusal;
use frostline_batching::{Charge, run_blocking};
use frostline_state::Clock;
use leftovers::{Leftover, file_name, owner, surplus};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio_util::sync::CancellationToken;

/// An upload without progress for this time is superseded by another request for the same bytes, which most
/// likely comes from the same client after a lost connection. At 1 Mbit/s, a working upload should receive a
/// chunk every 125 ms.
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// Time limit for a superseded upload to write the received bytes to disk.
const SUPERSEDE_TIMEOUT: Duration = Duration::from_secs(5);

/// Deadline for a disk that does not answer.
const DISK_DEADLINE: Duration = Duration::from_secs(60);

/// Reason an upload cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    /// The client wants to resume at an offset that differs from the size on the host.
    #[error("the host has {has} bytes of this upload; resume at that offset")]
    Offset {
        /// The offset to resume at.
        has: u64,
    },
    /// Another request is uploading the same bytes.
    #[error("another client is uploading the same bytes; retry later")]
    InProgress,
    /// The upload made no progress and was superseded by another request for the same bytes.
    #[error("another request has superseded this upload")]
    Superseded,
    /// The disk failed.
    #[error("cannot use the host's folder for uploads: {0}")]
    Disk(#[from] io::Error),
}

/// When to retry if another request is uploading the same bytes.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl From<ClaimError> for Refusal {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::Offset { has } => Self::Offset { has },
            ClaimError::InProgress | ClaimError::Superseded => Self::busy(error.to_string(), RETRY_AFTER),
            ClaimError::Disk(_) => Self::host(error),
        }
    }
}

/// All uploads in progress or interrupted on this host.
#[derive(Clone)]
pub(crate) struct Partials(Arc<PartialsFolder>);

struct PartialsFolder {
    folder: PathBuf,
    limits: PartialLimits,
    /// Nothing is removed because of its age while the clock differs from others.
    clock: Arc<Clock>,
    active: Mutex<HashMap<String, ActiveUpload>>,
}

/// An upload in progress.
struct ActiveUpload {
    /// Size of the complete upload.
    bytes: u64,
    /// When the last bytes arrived.
    last_progress: Instant,
    /// Cancelled to stop the upload.
    stop: CancellationToken,
    /// Cancelled when the upload has stopped.
    ended: CancellationToken,
}

/// The exclusive right to write the file of an upload, released on drop. Dropping this does not remove the
/// file; use [`discard`](Self::discard) for that.
pub(crate) struct Claim {
    shared: Arc<PartialsFolder>,
    /// Name of the file.
    name: String,
    sha256: String,
    stop: CancellationToken,
}

impl Partials {
    /// Opens `folder`, which is created if necessary, and removes files that exceed the limits.
    ///
    /// # Errors
    /// Returns the error of the operating system if the folder cannot be used.
    pub(crate) fn open(folder: PathBuf, limits: PartialLimits, clock: Arc<Clock>) -> io::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let partials = Self(Arc::new(PartialsFolder {
            folder,
            limits,
            clock,
            active: Mutex::default(),
        }));
        partials.0.sweep()?;
        Ok(partials)
    }

    /// Returns the number of stored bytes for a tenant's upload.
    pub(crate) async fn offset(&self, tenant: &str, sha256: &str) -> Result<u64, ClaimError> {
        let path = self.0.path(&file_name(tenant, sha256));
        Ok(blocking(move || length(&path)).await?)
    }

    /// Starts or resumes a tenant's upload at `offset`. An offset of 0 truncates the file. `bytes` is the
    /// size of the complete upload. The returned file is positioned at the end.
    ///
    /// # Errors
    /// Returns [`ClaimError::Offset`] if the stored size differs from `offset`, [`ClaimError::InProgress`] if
    /// another request is uploading the same bytes, or [`ClaimError::Disk`].
    pub(crate) async fn claim(
        &self,
        tenant: &str,
        sha256: &str,
        offset: u64,
        bytes: u64,
    ) -> Result<(Claim, File), ClaimError> {
        let name = file_name(tenant, sha256);
        let shared = Arc::clone(&self.0);
        let path = self.0.path(&name);
        let claim = self.wait_for_claim(name, sha256, bytes).await?;
        let file = blocking(move || {
            shared.sweep()?;
            let mut options = OpenOptions::new();
            let mut file = options
                .create(true)
                .read(true)
                .write(true)
                .truncate(offset == 0)
                .open(path)?;
            let has = file.seek(SeekFrom::End(0))?;
            Ok((file, has))
        });
        let (file, has) = file.await?;
        if has == offset {
            return Ok((claim, file));
        }
        if has == 0 {
            claim.discard();
        }
        Err(ClaimError::Offset { has })
    }

    /// Creates a file for an upload without a declared SHA-256. The file is deleted when it is closed.
    pub(crate) async fn temporary_file(&self) -> Result<File, ClaimError> {
        let folder = self.0.folder.clone();
        Ok(blocking(move || tempfile::tempfile_in(folder)).await?)
    }

    /// Removes files that exceed the limits. Failures are only logged, because the files use disk space but
    /// do no other harm.
    pub(crate) async fn sweep(&self) {
        let shared = Arc::clone(&self.0);
        if let Err(error) = blocking(move || shared.sweep()).await {
            tracing::warn!(%error, "cannot remove interrupted uploads");
        }
    }

    /// Stops and removes all uploads of tenants for which `keep` returns false.
    pub(crate) async fn retain_tenants(&self, keep: impl Fn(&str) -> bool + Send + 'static) {
        let shared = Arc::clone(&self.0);
        if let Err(error) = blocking(move || shared.retain_tenants(keep)).await {
            tracing::warn!(%error, "cannot remove the partial uploads of removed tenants");
        }
    }

    async fn wait_for_claim(&self, name: String, sha256: &str, bytes: u64) -> Result<Claim, ClaimError> {
        let until = tokio::time::Instant::now() + SUPERSEDE_TIMEOUT;
        loop {
            let ended = match self.0.try_claim(&name, bytes) {
                Ok(stop) => {
                    return Ok(Claim {
                        shared: Arc::clone(&self.0),
                        name,
                        sha256: sha256.to_owned(),
                        stop,
                    });
                }
                Err(ended) => ended.ok_or(ClaimError::InProgress)?,
            };
            let gone = tokio::time::timeout_at(until, ended.cancelled()).await;
            gone.map_err(|_| ClaimError::InProgress)?;
        }
    }
}

impl PartialsFolder {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Claims an upload. If another request holds it and makes progress, returns `Err(None)`. If that request
    /// made no progress for a while, it is stopped, and the returned token is cancelled once it has stopped.
    fn try_claim(&self, name: &str, bytes: u64) -> Result<CancellationToken, Option<CancellationToken>> {
        let mut held = self.active.lock();
        if let Some(other) = held.get(name) {
            if other.last_progress.elapsed() < STALLED_AFTER {
                return Err(None);
            }
            other.stop.cancel();
            return Err(Some(other.ended.clone()));
        }
        let stop = CancellationToken::new();
        held.insert(
            name.to_owned(),
            ActiveUpload {
                bytes,
                last_progress: Instant::now(),
                stop: stop.clone(),
                ended: CancellationToken::new(),
            },
        );
        Ok(stop)
    }

    fn sweep(&self) -> io::Result<()> {
        let files = self.files()?;
        let mut limits = self.limits;
        if !self.clock.may_expire() {
            limits.age = Duration::MAX;
        }
        for name in surplus(files, &limits) {
            let held = self.active.lock();
            if !held.contains_key(&name) {
                tracing::info!(file = name, "discarding an interrupted upload");
                remove(&self.path(&name));
            }
        }
        Ok(())
    }

    fn retain_tenants(&self, keep: impl Fn(&str) -> bool) -> io::Result<()> {
        for Leftover { name, .. } in self.files()? {
            if !keep(owner(&name)) {
                if let Some(held) = self.active.lock().get(&name) {
                    held.stop.cancel();
                }
                remove(&self.path(&name));
            }
        }
        Ok(())
    }

    fn files(&self) -> io::Result<Vec<Leftover>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            // The file was removed in the meantime or has an unexpected name.
            let (Ok(meta), Ok(name)) = (entry.metadata(), entry.file_name().into_string()) else {
                continue;
            };
            let held = self.active.lock().get(&name).map(|held| held.bytes);
            let age = meta
                .modified()
                .ok()
                .and_then(|modified| SystemTime::now().duration_since(modified).ok());
            files.push(Leftover {
                name,
                bytes: held.unwrap_or(meta.len()),
                age: age.unwrap_or_default(),
                held: held.is_some(),
            });
        }
        Ok(files)
    }
}

impl Claim {
    /// Records the arrival of bytes.
    pub(crate) fn record_progress(&self) {
        if let Some(held) = self.shared.active.lock().get_mut(&self.name) {
            held.last_progress = Instant::now();
        }
    }

    /// Returns the token that is cancelled if another request supersedes this upload.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Returns the expected SHA-256 of the complete upload.
    pub(crate) fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Removes the file, so that the upload cannot be resumed.
    pub(crate) fn discard(self) {
        remove(&self.shared.path(&self.name));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(held) = self.shared.active.lock().remove(&self.name) {
            held.ended.cancel();
        }
    }
}

fn length(path: &Path) -> io::Result<u64> {
    match std::fs::metadata(path) {
        Ok(meta) => Ok(meta.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "cannot remove an interrupted upload");
    }
}

/// Runs system calls on files of the host, which need microseconds.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    run_blocking((), DISK_DEADLINE, Charge::default(), |_| work()).await?
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_objects::Store;
    use frostline_state::LocalClock;
    use std::io::Write;

    const SHA: &str = "aa";

    const LIMITS: PartialLimits = PartialLimits {
        number: 2,
        bytes: 100,
        age: Duration::from_secs(10 * 3600),
    };

    fn partials(limits: PartialLimits) -> (Partials, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("partials");
        let store = Store::open(folder.path().to_str().unwrap()).unwrap();
        let clock = Clock::new(LocalClock::default(), Arc::new(store));
        (Partials::open(path, limits, Arc::new(clock)).unwrap(), folder)
    }

    #[tokio::test]
    async fn a_removed_tenants_uploads_end_and_go() {
        let (partials, _folder) = partials(LIMITS);
        let (claim, _file) = partials.claim("acme", SHA, 0, 6).await.unwrap();
        let (other, _other_file) = partials.claim("b.acme", SHA, 0, 6).await.unwrap();
        partials.retain_tenants(|tenant| tenant != "acme").await;
        assert!(claim.stop().is_cancelled() && !claim.shared.path(&claim.name).exists());
        assert!(!other.stop().is_cancelled() && other.shared.path(&other.name).exists());
    }

    #[tokio::test]
    async fn an_upload_goes_on_where_it_broke_off() {
        let (partials, _folder) = partials(LIMITS);
        let (claim, mut file) = partials.claim("acme", SHA, 0, 6).await.unwrap();
        file.write_all(b"abc").unwrap();
        drop((claim, file));
        assert_eq!(partials.offset("acme", SHA).await.unwrap(), 3);
        for wrong in [1, 4] {
            let refused = partials.claim("acme", SHA, wrong, 6).await.map(drop);
            assert!(
                matches!(refused, Err(ClaimError::Offset { has: 3 })),
                "{refused:?}"
            );
        }
        let (claim, mut file) = partials.claim("acme", SHA, 3, 6).await.unwrap();
        file.write_all(b"def").unwrap();
        let path = claim.shared.path(&claim.name);
        assert_eq!(std::fs::read(&path).unwrap(), b"abcdef");
        claim.discard();
        assert!(!path.exists());
        assert_eq!(partials.offset("acme", SHA).await.unwrap(), 0);
        let refused = partials.claim("acme", SHA, 3, 6).await.map(drop);
        assert!(matches!(refused, Err(ClaimError::Offset { has: 0 })));
        assert!(!path.exists(), "asking leaves no file");
    }

    #[tokio::test]
    async fn one_writes_at_a_time_and_the_silent_give_way() {
        let (partials, _folder) = partials(LIMITS);
        let (first, file) = partials.claim("acme", SHA, 0, 6).await.unwrap();
        assert!(
            partials.claim("other", SHA, 0, 6).await.is_ok(),
            "tenants use separate files"
        );
        let refused = partials.claim("acme", SHA, 0, 6).await.map(drop);
        assert!(matches!(refused, Err(ClaimError::InProgress)));
        partials
            .0
            .active
            .lock()
            .get_mut(&first.name)
            .unwrap()
            .last_progress = Instant::now().checked_sub(STALLED_AFTER).unwrap();
        let holder = tokio::spawn(async move {
            first.stop().cancelled().await;
            drop((first, file));
        });
        assert!(partials.claim("acme", SHA, 0, 6).await.is_ok());
        holder.await.unwrap();
    }

    #[tokio::test]
    async fn what_is_being_received_is_not_swept() {
        let (partials, _folder) = partials(PartialLimits { number: 0, ..LIMITS });
        let (claim, _file) = partials.claim("acme", SHA, 0, 6).await.unwrap();
        partials.sweep().await;
        assert!(claim.shared.path(&claim.name).exists());
        let path = claim.shared.path(&claim.name);
        drop(claim);
        partials.sweep().await;
        assert!(!path.exists());
    }
}
