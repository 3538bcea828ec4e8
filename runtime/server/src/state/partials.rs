//! Uploads on their way, and what came of those that broke off: a file each, `partials/<sha256>.<tenant>`, named by what the whole
//! hashes to and whose it is. One upload at a time writes such a file; what is left over is bounded by number, bytes and age.

use super::leftovers::{Leftover, PartialLimits, file_name, owner, surplus};
use crate::refusal::Refusal;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

/// An upload that was silent this long gives way to another of the same bytes: its client is most likely the one that comes back. A
/// link of 1 Mbit/s brings a piece every eighth of a second.
const SILENT: Duration = Duration::from_secs(2);

/// How long an upload that is to give way may take to write down what it has.
const GIVING_WAY: Duration = Duration::from_secs(5);

/// Why an upload cannot begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    /// The host has another number of bytes than the client goes on from.
    #[error("the host has {has} bytes of this upload; resume at that offset")]
    Offset {
        /// Where to go on.
        has: u64,
    },
    /// The same bytes are being received from somebody else.
    #[error("another client is uploading the same bytes; retry later")]
    InProgress,
    /// It was silent, and another upload of the same bytes came.
    #[error("superseded by another upload of the same bytes")]
    Superseded,
    /// The disk failed.
    #[error("cannot use the host's folder for uploads: {0}")]
    Disk(#[from] io::Error),
}

/// When to come back to a host that receives the same bytes from somebody else.
const SOON: Duration = Duration::from_secs(1);

impl From<ClaimError> for Refusal {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::Offset { has } => Self::Offset { has },
            ClaimError::InProgress | ClaimError::Superseded => Self::busy(error.to_string(), SOON),
            ClaimError::Disk(_) => Self::host(error),
        }
    }
}

/// All uploads on their way to one host.
#[derive(Clone)]
pub(crate) struct Partials(Arc<Shared>);

struct Shared {
    folder: PathBuf,
    limits: PartialLimits,
    active: Mutex<HashMap<String, ActiveUpload>>,
}

/// An upload being received.
struct ActiveUpload {
    /// What it will come to.
    bytes: u64,
    /// When something of it came last.
    moved: Instant,
    /// Ends it.
    stop: CancellationToken,
    /// It has ended.
    ended: CancellationToken,
}

/// The right to write one upload's file; ends when dropped. The file stays unless [`discard`](Self::discard) removes it.
pub(crate) struct Claim {
    shared: Arc<Shared>,
    /// Its file's name.
    name: String,
    sha256: String,
    stop: CancellationToken,
}

impl Partials {
    /// Uses `folder`, making it where it is missing, and removes what is too old or too much in it.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(folder: PathBuf, limits: PartialLimits) -> io::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let partials = Self(Arc::new(Shared {
            folder,
            limits,
            active: Mutex::default(),
        }));
        partials.0.sweep()?;
        Ok(partials)
    }

    /// How many bytes of a tenant's upload are here.
    pub(crate) async fn offset(&self, tenant: &str, sha256: &str) -> Result<u64, ClaimError> {
        let path = self.0.path(&file_name(tenant, sha256));
        Ok(blocking(move || length(&path)).await?)
    }

    /// Begins to receive a tenant's upload of `bytes` bytes from its `offset` on; from 0 it begins anew. The file is open at its end.
    ///
    /// # Errors
    /// [`ClaimError`]; `InProgress` while another upload of the same bytes moves.
    pub(crate) async fn claim(
        &self,
        tenant: &str,
        sha256: &str,
        offset: u64,
        bytes: u64,
    ) -> Result<(Claim, File), ClaimError> {
        let name = file_name(tenant, sha256);
        let (shared, path) = (Arc::clone(&self.0), self.0.path(&name));
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

    /// A file for an upload that does not say what it hashes to; it is gone when it is closed.
    pub(crate) async fn temporary_file(&self) -> Result<File, ClaimError> {
        let folder = self.0.folder.clone();
        Ok(blocking(move || tempfile::tempfile_in(folder)).await?)
    }

    /// Removes what is too old or too much. A failure is logged: leftovers cost space, not correctness.
    pub(crate) async fn sweep(&self) {
        let shared = Arc::clone(&self.0);
        if let Err(error) = blocking(move || shared.sweep()).await {
            tracing::warn!(%error, "cannot remove interrupted uploads");
        }
    }

    /// Ends and removes all uploads of tenants that `keep` does not.
    pub(crate) async fn retain_tenants(&self, keep: impl Fn(&str) -> bool + Send + 'static) {
        let shared = Arc::clone(&self.0);
        if let Err(error) = blocking(move || shared.retain_tenants(keep)).await {
            tracing::warn!(%error, "cannot remove the uploads of a removed tenant");
        }
    }

    async fn wait_for_claim(&self, name: String, sha256: &str, bytes: u64) -> Result<Claim, ClaimError> {
        let until = tokio::time::Instant::now() + GIVING_WAY;
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

impl Shared {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Takes the upload, or says what to wait for: nothing while its holder moves, its end when it was silent and is told to stop.
    fn try_claim(&self, name: &str, bytes: u64) -> Result<CancellationToken, Option<CancellationToken>> {
        let mut held = self.active.lock();
        if let Some(other) = held.get(name) {
            if other.moved.elapsed() < SILENT {
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
                moved: Instant::now(),
                stop: stop.clone(),
                ended: CancellationToken::new(),
            },
        );
        Ok(stop)
    }

    fn sweep(&self) -> io::Result<()> {
        let files = self.files()?;
        for name in surplus(files, &self.limits) {
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
            // Gone since, or of a name that is none of ours: nothing to do with it.
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
    /// Something of the upload came.
    pub(crate) fn record_progress(&self) {
        if let Some(held) = self.shared.active.lock().get_mut(&self.name) {
            held.moved = Instant::now();
        }
    }

    /// Cancelled when this upload is to give way to another of the same bytes.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// What the whole is to hash to.
    pub(crate) fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Removes the file: there is nothing to go on from any more.
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

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    spawn_blocking(work).await?
}

#[cfg(test)]
mod tests {
    use super::*;
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
        (Partials::open(path, limits).unwrap(), folder)
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
            "another tenant's is another file"
        );
        let refused = partials.claim("acme", SHA, 0, 6).await.map(drop);
        assert!(matches!(refused, Err(ClaimError::InProgress)));
        partials.0.active.lock().get_mut(&first.name).unwrap().moved =
            Instant::now().checked_sub(SILENT).unwrap();
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
