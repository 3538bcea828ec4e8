//! Storage of guests or models.
//!
//! A name has a document that lists the recent versions. The bytes of a version are written to a separate
//! object, `blobs/<kind>/<tenant>/<sha256>-<random>`, before the document is updated. Uploads never share an
//! object, so it can be removed without checking for other references.

mod versions;

#[cfg(test)]
mod tests;

pub(crate) use versions::Versions;
pub use versions::{Facts, FindResult, NamedUpload, StoredVersion};

use crate::documents::Documents;
use crate::error::StateError;
use crate::record::Unknown;
use crate::record::unique_id;
use bytes::Bytes;
use frostline_batching::{Charge, run_blocking};
use frostline_objects::Store;
use frostline_tensor::SampleRef;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// Owner of the uploads that all tenants can use. Names of tenants cannot start with an underscore.
pub const SHARED: &str = "_shared";

/// Deadline for hashing a version. A gigabyte needs a few seconds.
const HASH_DEADLINE: Duration = Duration::from_secs(60);

/// Bytes that are hashed between two checks, within a few milliseconds.
const PIECE: usize = 1 << 20;

/// Store of the uploads of all owners.
#[derive(Clone)]
pub(crate) struct ChargedStore {
    pub(crate) store: Arc<Store>,
    /// Returns the account of an owner for the CPU time of reading, hashing and writing its uploads.
    pub(crate) charges: Arc<dyn Fn(&str) -> Charge + Send + Sync>,
}

impl ChargedStore {
    /// Returns the account of the owner of an object.
    fn charge_of(&self, blob: &str) -> Charge {
        let owner = blob.split('/').nth(2).unwrap_or_default();
        (self.charges)(owner)
    }

    /// Returns the store for an object, which charges its owner.
    fn charging(&self, blob: &str) -> Store {
        self.store.charging(self.charge_of(blob))
    }
}

/// Limits for guests, and the same limits for models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadLimits {
    /// Number of names per owner.
    pub names: usize,
    /// Number of versions per name, at least one.
    pub versions: usize,
}

/// All guests or all models. `F` is their metadata.
pub struct UploadStore<F> {
    kind: &'static str,
    store: ChargedStore,
    limits: UploadLimits,
    documents: Documents<Versions<F>>,
}

/// A validated upload.
pub struct CheckedUpload<F> {
    /// SHA-256 of the bytes in hexadecimal digits.
    pub sha256: String,
    /// The guest or model.
    pub bytes: Bytes,
    /// Metadata that is available without reading the bytes.
    pub facts: F,
}

/// Result of adding a version to a name.
struct VersionUpdate<F> {
    newest: Arc<StoredVersion<F>>,
    /// Versions to delete.
    surplus: Vec<Arc<StoredVersion<F>>>,
}

/// All uploads with the same owner, which is a tenant or [`SHARED`]. Code that serves a tenant should only
/// use this type.
pub struct OwnedUploads<'a, F> {
    shelf: &'a UploadStore<F>,
    owner: &'a str,
}

impl<F: Facts> UploadStore<F> {
    /// Creates a store of uploads that are listed in `documents`.
    pub(crate) fn new(
        kind: &'static str,
        store: ChargedStore,
        documents: Documents<Versions<F>>,
        limits: UploadLimits,
    ) -> Self {
        Self {
            kind,
            store,
            limits,
            documents,
        }
    }

    /// Returns the uploads of `owner`, which can be [`SHARED`].
    pub fn owned_by<'a>(&'a self, owner: &'a str) -> OwnedUploads<'a, F> {
        OwnedUploads { shelf: self, owner }
    }

    /// Lists the names of all owners.
    pub fn all_names(&self) -> Vec<NamedUpload<F>> {
        self.names("")
    }

    fn names(&self, prefix: &str) -> Vec<NamedUpload<F>> {
        let all = self.documents.list(prefix);
        all.into_iter()
            .filter_map(|(key, versions)| {
                let (owner, name) = key.split_once('/')?;
                Some(NamedUpload {
                    owner: owner.to_owned(),
                    name: name.to_owned(),
                    versions: versions.versions.clone(),
                    disabled: versions.disabled,
                })
            })
            .collect()
    }

    /// Returns a version with this SHA-256, regardless of the owner.
    pub fn find_by_hash(&self, sha256: &str) -> Option<Arc<StoredVersion<F>>> {
        self.with_hash(sha256).pop()
    }

    fn with_hash(&self, sha256: &str) -> Vec<Arc<StoredVersion<F>>> {
        self.documents.pick(|versions| {
            let mut versions = versions.versions.iter();
            versions.rfind(|version| version.sha256 == sha256).cloned()
        })
    }

    /// Returns the bytes with this SHA-256, regardless of the owner. If several owners have a version with
    /// it, the first one with intact bytes is used.
    ///
    /// # Errors
    /// Returns [`StateError::Gone`] if no version has it, [`StateError::Damaged`] if all stored bytes are corrupt, and
    /// other errors if the store fails.
    pub async fn bytes_of(&self, sha256: &str) -> Result<Bytes, StateError> {
        let versions = self.with_hash(sha256);
        let mut failed = StateError::Gone {
            kind: self.kind,
            sha256: sha256.to_owned(),
        };
        for version in versions {
            match self.read(&version).await {
                Err(error @ (StateError::Gone { .. } | StateError::Damaged { .. })) => failed = error,
                read => return read,
            }
        }
        Err(failed)
    }

    /// Reads the bytes of a version and verifies the SHA-256.
    ///
    /// # Errors
    /// Returns [`StateError::Gone`] if they were removed, [`StateError::Damaged`] if they are corrupt, and other errors if
    /// the store fails.
    pub async fn read(&self, version: &StoredVersion<F>) -> Result<Bytes, StateError> {
        let kind = self.kind;
        let sha256 = version.sha256.clone();
        let charge = self.store.charge_of(&version.blob);
        let bytes = match self.store.charging(&version.blob).read(&version.blob).await {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => return Err(StateError::Gone { kind, sha256 }),
            Err(error) => return Err(error.into()),
        };
        run_blocking((), HASH_DEADLINE, charge, move |stop| {
            let mut hash = Sha256::new();
            for piece in bytes.chunks(PIECE) {
                stop.check()?;
                hash.update(piece);
            }
            let found = hex::encode(hash.finalize());
            if found == sha256 {
                return Ok(bytes);
            }
            Err(StateError::Damaged { kind, sha256, found })
        })
        .await?
    }

    /// Writes bytes to a new object.
    async fn write(&self, blob: &str, bytes: Bytes) -> Result<(), StateError> {
        let length = bytes.len() as u64;
        match self.store.charging(blob).put_new(blob, bytes).await {
            // No other upload uses this key, so the client retried after a lost response.
            Err(error)
                if error.is_already_there()
                    && self.store.store.size(&SampleRef::new(blob)).await? == length =>
            {
                Ok(())
            }
            written => Ok(written?),
        }
    }

    /// Deletes an object. Failures are only logged, because an unused object costs space but does no other
    /// harm.
    async fn discard(&self, key: &str) {
        if let Err(error) = self.store.store.delete(key).await
            && !error.is_not_found()
        {
            tracing::warn!(key, %error, "cannot remove an old version");
        }
    }
}

impl<F: Facts> OwnedUploads<'_, F> {
    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.owner)
    }

    /// Returns the newest version of a name, or the version with the given SHA-256.
    pub fn find(&self, name: &str, sha256: Option<&str>) -> FindResult<F> {
        let Some(versions) = self.shelf.documents.get(&self.key(name)) else {
            return FindResult::Missing;
        };
        let Some(newest) = versions.versions.last() else {
            return FindResult::Missing;
        };
        let Some(sha256) = sha256 else {
            return FindResult::Version(Arc::clone(newest));
        };
        let version = versions.versions.iter().rfind(|version| version.sha256 == sha256);
        version.map_or_else(
            || FindResult::OtherVersion(Arc::clone(newest)),
            |version| FindResult::Version(Arc::clone(version)),
        )
    }

    /// Lists the newest version of each name.
    pub fn list(&self) -> Vec<(String, Arc<StoredVersion<F>>)> {
        self.names()
            .into_iter()
            .filter_map(|named| Some((named.name, named.versions.last().cloned()?)))
            .collect()
    }

    /// Lists all names with all versions.
    pub fn names(&self) -> Vec<NamedUpload<F>> {
        self.shelf.names(&self.key(""))
    }

    /// True if the name exists and is disabled.
    pub fn disabled(&self, name: &str) -> bool {
        let versions = self.shelf.documents.get(&self.key(name));
        versions.is_some_and(|versions| versions.disabled)
    }

    /// Disables or enables a name, including versions uploaded later. Returns false if the name does not
    /// exist.
    ///
    /// # Errors
    /// Returns [`StateError`] if the state cannot be changed.
    pub async fn disable(&self, name: &str, disabled: bool) -> Result<bool, StateError> {
        let key = self.key(name);
        Ok(self
            .shelf
            .documents
            .update(&key, |now| {
                let now = now.cloned();
                Ok::<_, StateError>(now.map(|versions| Versions { disabled, ..versions }))
            })
            .await?
            .is_some())
    }

    /// Returns the total size of all versions in bytes.
    pub fn bytes(&self) -> u64 {
        let all = self.shelf.documents.list(&self.key(""));
        let versions = all.iter().flat_map(|(_, versions)| &versions.versions);
        versions.map(|version| version.bytes).sum()
    }

    /// Makes an upload the newest version of `name`, and returns the version; the flag is false if it already
    /// was the newest.
    ///
    /// Equal bytes are stored once per name, even if several hosts receive them. If the stored bytes are
    /// missing or corrupt, they are written again. `fits` checks whether the owner may store additional
    /// bytes. It is called before writing the bytes, and again when the version is added, because other hosts
    /// might have added uploads in the meantime.
    ///
    /// # Errors
    /// Returns the error of `fits`, [`StateError::TooMany`] or [`StateError::LogFull`] if the owner reached another limit,
    /// and other errors if the state cannot be changed. After [`StateError::OutcomeUnknown`] the version may exist.
    pub async fn put(
        &self,
        name: &str,
        content: CheckedUpload<F>,
        fits: impl Fn(u64) -> Result<(), StateError>,
    ) -> Result<(Arc<StoredVersion<F>>, bool), StateError> {
        let CheckedUpload { sha256, bytes, facts } = content;
        let length = bytes.len() as u64;
        self.shelf.documents.journal.catch_up().await?;
        self.check_log()?;
        let mut lost = None;
        match self.find(name, Some(&sha256)) {
            FindResult::Version(version) => match self.shelf.read(&version).await {
                Err(StateError::Gone { .. } | StateError::Damaged { .. }) => lost = Some(version),
                Err(error) => return Err(error),
                Ok(_) if self.is_newest(name, &version) => return Ok((version, false)),
                Ok(_) => {}
            },
            _ => fits(length)?,
        }
        let kind = self.shelf.kind;
        let owner = self.owner;
        let stored = Arc::new(StoredVersion {
            blob: format!("blobs/{kind}/{owner}/{sha256}-{}", unique_id()?),
            sha256,
            bytes: length,
            uploaded_at: frostline_primitives::now(),
            facts,
            unknown: Unknown::new(),
        });
        self.shelf.write(&stored.blob, bytes).await?;
        let updated = self.make_newest(name, &stored, lost.as_deref(), fits).await;
        // If the outcome of the change is unknown, the version may exist, so its bytes must be kept.
        if let Err(error) = &updated
            && !matches!(error, StateError::OutcomeUnknown { .. })
        {
            self.shelf.discard(&stored.blob).await;
        }
        let VersionUpdate { newest, surplus } = updated?;
        for version in surplus {
            self.shelf.discard(&version.blob).await;
        }
        Ok((newest, true))
    }

    fn is_newest(&self, name: &str, version: &StoredVersion<F>) -> bool {
        matches!(self.find(name, None), FindResult::Version(newest) if *newest == *version)
    }

    /// Adds `stored` as the newest version. If another host has added the same bytes in the meantime, that
    /// version becomes the newest instead, unless it is `lost`.
    async fn make_newest(
        &self,
        name: &str,
        stored: &Arc<StoredVersion<F>>,
        lost: Option<&StoredVersion<F>>,
        fits: impl Fn(u64) -> Result<(), StateError>,
    ) -> Result<VersionUpdate<F>, StateError> {
        let mut newest = Arc::clone(stored);
        let mut surplus = Vec::new();
        let key = self.key(name);
        let pushed = self.shelf.documents.update(&key, |now| {
            if now.is_none() {
                self.check_name_limit()?;
            }
            let versions = now.map_or_else(Vec::new, |now| now.versions.clone());
            let (mut gone, mut versions): (Vec<_>, Vec<_>) = versions
                .into_iter()
                .partition(|version| version.sha256 == stored.sha256);
            if gone.is_empty() {
                fits(stored.bytes)?;
            }
            // If another host was first, keep its bytes.
            let kept = gone
                .iter()
                .rposition(|version| lost.is_none_or(|lost| lost.blob != version.blob));
            gone.push(Arc::clone(stored));
            newest = gone.remove(kept.unwrap_or(gone.len() - 1));
            versions.push(Arc::clone(&newest));
            gone.extend(versions.drain(..versions.len().saturating_sub(self.shelf.limits.versions.max(1))));
            surplus = gone;
            Ok::<_, StateError>(Some(Versions {
                versions,
                disabled: now.is_some_and(|now| now.disabled),
                unknown: now.map_or_else(Unknown::new, |now| now.unknown.clone()),
            }))
        });
        pushed.await?;
        Ok(VersionUpdate { newest, surplus })
    }

    /// Checks that the owner may append to the log. Admins, who own shared uploads, always may.
    fn check_log(&self) -> Result<(), StateError> {
        match self.owner {
            SHARED => Ok(()),
            tenant => self.shelf.documents.journal.check_log(tenant),
        }
    }

    /// Checks that another name can be added.
    fn check_name_limit(&self) -> Result<(), StateError> {
        let kind = self.shelf.kind;
        let limit = self.shelf.limits.names;
        match self.shelf.documents.list(&self.key("")).len() < limit {
            true => Ok(()),
            false => Err(StateError::TooMany { kind, limit }),
        }
    }

    /// Deletes all versions of a name; returns false if the name does not exist.
    ///
    /// # Errors
    /// Returns [`StateError`] if the state cannot be changed.
    pub async fn delete(&self, name: &str) -> Result<bool, StateError> {
        self.delete_checked(name, |_| Ok(())).await
    }

    /// Deletes all versions of a name on behalf of the owner, who must not remove a name that an admin
    /// disabled.
    ///
    /// # Errors
    /// Returns [`StateError::Disabled`] if the name is disabled, and [`StateError::LogFull`] if the owner changed too
    /// much.
    pub async fn delete_as_owner(&self, name: &str) -> Result<bool, StateError> {
        self.check_log()?;
        let kind = self.shelf.kind;
        self.delete_checked(name, |versions| match versions.disabled {
            true => Err(StateError::Disabled {
                kind,
                name: name.to_owned(),
            }),
            false => Ok(()),
        })
        .await
    }

    async fn delete_checked(
        &self,
        name: &str,
        check: impl Fn(&Versions<F>) -> Result<(), StateError>,
    ) -> Result<bool, StateError> {
        let mut deleted = Vec::new();
        self.shelf
            .documents
            .update(&self.key(name), |now| {
                now.map_or(Ok(()), &check)?;
                deleted = now.map_or_else(Vec::new, |versions| versions.versions.clone());
                Ok::<_, StateError>(None)
            })
            .await?;
        for version in &deleted {
            self.shelf.discard(&version.blob).await;
        }
        Ok(!deleted.is_empty())
    }
}
