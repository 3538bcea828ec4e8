//! Backups of a state.
//!
//! A backup uses the same layout as a state with a single snapshot. The same code can therefore read and
//! verify both, and another backup to the same location only writes new data.

use crate::documents::Replica;
use crate::error::StateError;
use crate::folder::remove;
use crate::journal::{DocumentKind, Journal};
use crate::log::{self, Change, EPOCH, Position};
use crate::record::unique_id;
use crate::record::{FORMAT, Unknown};
use crate::snapshot::{self, Document};
use crate::{audit, usage};
use bytes::Bytes;
use frostline_objects::Store;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::to_raw_value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Attempts to copy a state if versions are replaced during the copy.
const TRIES: usize = 4;

/// Name of the configured tenant. The tokens in this record are revoked tokens of hosts' token files, so they
/// do not admit anyone.
const CONFIGURED: &str = "default";

/// The kind of documents that contain tokens.
const TENANTS: &str = "tenants";

/// Contents of a state or a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StateReport {
    /// Number of the last change.
    pub change: u64,
    /// Number of documents by kind (`guests`, `models`, `tenants`).
    pub documents: BTreeMap<String, usize>,
    /// Number of guest and model versions with intact bytes.
    pub versions: usize,
    /// Size of the intact versions in bytes.
    pub bytes: u64,
    /// Versions with missing or corrupt bytes, which must be uploaded again.
    pub lost: Vec<LostVersion>,
}

/// A guest or model version with missing or corrupt bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LostVersion {
    /// `guests` or `models`.
    pub kind: String,
    /// `TENANT/NAME`.
    pub name: String,
    /// SHA-256 of the uploaded bytes.
    pub sha256: String,
    /// True if the stored bytes are corrupt, false if they are missing.
    pub corrupt: bool,
}

/// Result of a restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RestoreReport {
    /// Contents of the restored state.
    pub state: StateReport,
    /// Tenants without a valid token after the restore.
    pub without_tokens: Vec<String>,
    /// Documents of the previous state (`KIND NAME`) not contained in the backup.
    pub dropped: Vec<String>,
}

/// Which tokens are valid after a restore if the previous state cannot tell which tokens were revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoredTokens {
    /// The tokens in the backup, even if they were revoked since.
    Keep,
    /// No tokens. Every tenant must get a new token.
    Revoke,
}

/// The fields of guest and model documents used here.
#[derive(Default, Deserialize)]
struct Blobs {
    versions: Vec<Blob>,
}

#[derive(Deserialize)]
struct Blob {
    blob: String,
    sha256: String,
    bytes: u64,
}

/// The fields of tenant documents used here.
#[derive(Serialize, Deserialize)]
struct TenantDocument {
    disabled: bool,
    tokens: Vec<Value>,
    #[serde(flatten)]
    rest: Unknown,
}

/// A consistent copy of all documents in the state.
struct Contents {
    position: Position,
    documents: Vec<Document>,
}

/// Reads the documents and blobs of the state in `store` and verifies all checksums.
///
/// # Errors
/// Returns [`StateError::Empty`] if `store` contains no state, and other errors if it cannot be read.
pub async fn verify(store: &Arc<Store>) -> Result<StateReport, StateError> {
    let contents = Contents::read(store).await?;
    let mut report = contents.report();
    for (document, blob) in contents.blobs() {
        let checked = blob.read(store).await?;
        report.count(document, &blob, checked.map(drop));
    }
    Ok(report)
}

/// Copies a state with its usage and audit to another store, which is empty or contains an earlier backup. Hosts can
/// continue to change the state during the copy.
///
/// # Errors
/// Returns [`StateError::OtherState`] if `to` contains a newer state, and other errors if `from` cannot be read or `to`
/// cannot be written.
pub async fn back_up(from: &Arc<Store>, to: &Arc<Store>) -> Result<StateReport, StateError> {
    if let Some(newest) = snapshot::newest(to, None).await?
        && newest > Contents::read(from).await?.position.number
    {
        return Err(StateError::OtherState {
            root: to.root().to_owned(),
        });
    }
    let mut contents = Contents::read(from).await?;
    let mut report = contents.copy_blobs(from, to).await?;
    for _ in 1..TRIES {
        if report.lost.is_empty() {
            break;
        }
        // Missing bytes may belong to versions that were replaced during the copy, so try again with the
        // current documents.
        contents = Contents::read(from).await?;
        report = contents.copy_blobs(from, to).await?;
    }
    write(to, contents.position, contents.documents).await?;
    snapshot::sweep(to).await?;
    copy_records(from, to).await?;
    Ok(report)
}

/// Copies the usage and the audit that `to` does not have.
async fn copy_records(from: &Store, to: &Store) -> Result<(), StateError> {
    usage::copy(from, to).await?;
    audit::copy(from, to).await
}

/// Writes a snapshot, and an empty change with the same number that the next change can follow. Older changes
/// are removed.
async fn write(to: &Store, position: Position, documents: Vec<Document>) -> Result<(), StateError> {
    let change = Change {
        format: FORMAT,
        mark: position.mark.clone(),
        ..Change::default()
    };
    if !log::create(to, position.number, &change).await? {
        return Err(StateError::OtherState {
            root: to.root().to_owned(),
        });
    }
    snapshot::write(to, &position, documents).await?;
    // A host that adds a change to the previous log will notice that the preceding change is missing, and
    // reload.
    log::sweep(to, position.number.saturating_sub(1)).await
}

/// Replaces a state by a backup, and adds the usage and audit of the backup. Running hosts reload the state within a
/// minute.
///
/// If `tokens` is `None`, the tokens of the existing state are used instead of those in the backup, so that
/// revoked tokens stay revoked. If the existing state cannot be read, the caller must choose with `tokens`.
///
/// # Errors
/// Returns [`StateError::UnknownTokens`] if `tokens` is `None` and the existing state cannot be read, and other errors
/// if `backup` cannot be read or `to` cannot be written.
pub async fn restore(
    backup: &Arc<Store>,
    to: &Arc<Store>,
    tokens: Option<RestoredTokens>,
) -> Result<RestoreReport, StateError> {
    let mut contents = Contents::read(backup).await?;
    let present = match (Contents::read(to).await, tokens) {
        (Ok(present), _) => Some(present),
        (Err(StateError::Empty { .. } | StateError::Record { .. }), Some(_)) => None,
        (Err(StateError::Empty { .. } | StateError::Record { .. }), None) => {
            let root = to.root().to_owned();
            return Err(StateError::UnknownTokens { root });
        }
        (Err(error), _) => return Err(error),
    };
    let without_tokens = contents.set_tokens(present.as_ref(), tokens)?;
    let mut report = contents.copy_blobs(backup, to).await?;
    let last = snapshot::last(to).await?.max(log::last(to).await?);
    let number = (last.max(contents.position.number) / EPOCH + 1) * EPOCH;
    report.change = number;
    let dropped = present.map_or_else(Vec::new, |present| present.missing_in(&contents));
    let position = Position {
        number,
        mark: unique_id()?,
    };
    write(to, position, contents.documents).await?;
    snapshot::remove_before(to, number).await?;
    copy_records(backup, to).await?;
    Ok(RestoreReport {
        state: report,
        without_tokens,
        dropped,
    })
}

impl Contents {
    /// Reads all documents without modifying the state.
    async fn read(store: &Arc<Store>) -> Result<Self, StateError> {
        if snapshot::newest(store, None).await?.is_none() {
            return Err(StateError::Empty {
                root: store.root().to_owned(),
            });
        }
        let kinds = ["guests", "models", TENANTS, "jobs", "drains"]
            .map(|kind| Arc::new(Replica::<Value>::new(kind)) as Arc<dyn DocumentKind>);
        let journal = Journal::open(Arc::clone(store), kinds.to_vec()).await?;
        let (position, documents) = journal.documents().await?;
        Ok(Self { position, documents })
    }

    /// Returns every referenced blob exactly once, together with a document that references the blob.
    fn blobs(&self) -> impl Iterator<Item = (&Document, Blob)> {
        let mut seen = BTreeSet::new();
        let all = self.documents.iter().flat_map(Document::blobs);
        all.filter(move |(_, blob)| seen.insert(blob.blob.clone()))
    }

    /// Creates a report of the documents. Blobs are added later.
    fn report(&self) -> StateReport {
        let mut documents = BTreeMap::new();
        for document in &self.documents {
            *documents.entry(document.kind.clone()).or_default() += 1;
        }
        StateReport {
            change: self.position.number,
            documents,
            versions: 0,
            bytes: 0,
            lost: Vec::new(),
        }
    }

    /// Copies the blobs that are missing or corrupt in `to`.
    async fn copy_blobs(&self, from: &Store, to: &Store) -> Result<StateReport, StateError> {
        let mut report = self.report();
        for (document, blob) in self.blobs() {
            let copied = match blob.read(to).await? {
                Ok(_) => Ok(()),
                Err(_) => blob.copy(from, to).await?,
            };
            report.count(document, &blob, copied);
        }
        Ok(report)
    }

    fn tenant(&self, name: &str) -> Option<&Document> {
        self.documents
            .iter()
            .find(|document| document.kind == TENANTS && document.name == name)
    }

    /// Sets the tokens of all tenants to those in `present` or as selected by `tokens`. Returns the names of
    /// tenants without tokens.
    fn set_tokens(
        &mut self,
        present: Option<&Self>,
        tokens: Option<RestoredTokens>,
    ) -> Result<Vec<String>, StateError> {
        if self.tenant(CONFIGURED).is_none() {
            let configured = present.and_then(|present| present.tenant(CONFIGURED));
            self.documents.extend(configured.cloned());
        }
        let mut without_tokens = Vec::new();
        for document in self
            .documents
            .iter_mut()
            .filter(|document| document.kind == TENANTS)
        {
            let mut entry = document.entry()?;
            let configured = document.name == CONFIGURED;
            match (tokens, present) {
                (None, Some(present)) => {
                    let now = present.tenant(&document.name);
                    let now = now.map(Document::entry).transpose()?;
                    let now = now.filter(|now| !now.rest.contains_key("kept_until"));
                    entry.disabled |= now.as_ref().is_some_and(|now| now.disabled);
                    entry.tokens = now.map_or_else(Vec::new, |now| now.tokens);
                }
                (Some(RestoredTokens::Keep), _) => {}
                _ if configured => {}
                _ => entry.tokens.clear(),
            }
            if entry.tokens.is_empty() && !configured {
                without_tokens.push(document.name.clone());
            }
            let content = to_raw_value(&entry);
            document.content = content.map_err(|error| StateError::broken(&document.name, error))?;
        }
        Ok(without_tokens)
    }

    /// Returns the documents (`KIND NAME`) that `other` does not contain.
    fn missing_in(&self, other: &Self) -> Vec<String> {
        let there: BTreeSet<String> = other.documents.iter().map(named).collect();
        let ours = self.documents.iter().map(named);
        ours.filter(|name| !there.contains(name)).collect()
    }
}

impl Document {
    /// Returns the blobs that the document references, or none if a newer version uses another layout.
    fn blobs(&self) -> impl Iterator<Item = (&Self, Blob)> {
        let Blobs { versions } = serde_json::from_str(self.content.get()).unwrap_or_default();
        versions.into_iter().map(move |blob| (self, blob))
    }

    /// Parses a tenant document.
    fn entry(&self) -> Result<TenantDocument, StateError> {
        if self.format > FORMAT {
            return Err(StateError::Newer {
                kind: TENANTS,
                name: self.name.clone(),
            });
        }
        serde_json::from_str(self.content.get()).map_err(|error| StateError::broken(&self.name, error))
    }
}

impl Blob {
    /// Reads the blob from `store`. Returns [`Lost`] if the bytes are missing or corrupt.
    #[expect(clippy::disallowed_methods, reason = "internal work, bounded by the host")]
    async fn read(&self, store: &Store) -> Result<Result<Bytes, Lost>, StateError> {
        let bytes = match store.read(&self.blob).await {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => return Ok(Err(Lost { corrupt: false })),
            Err(error) => return Err(error.into()),
        };
        let sha256 = self.sha256.clone();
        Ok(
            spawn_blocking(move || match hex::encode(Sha256::digest(&bytes)) == sha256 {
                true => Ok(bytes),
                false => Err(Lost { corrupt: true }),
            })
            .await?,
        )
    }

    /// Copies the blob, replacing corrupt bytes in `to`.
    async fn copy(&self, from: &Store, to: &Store) -> Result<Result<(), Lost>, StateError> {
        let bytes = match self.read(from).await? {
            Ok(bytes) => bytes,
            Err(lost) => return Ok(Err(lost)),
        };
        remove(to, &self.blob).await?;
        to.put_new(&self.blob, bytes).await?;
        Ok(Ok(()))
    }
}

/// Missing or corrupt bytes.
struct Lost {
    corrupt: bool,
}

impl StateReport {
    fn count(&mut self, document: &Document, blob: &Blob, found: Result<(), Lost>) {
        match found {
            Ok(()) => {
                self.versions += 1;
                self.bytes += blob.bytes;
            }
            Err(Lost { corrupt }) => self.lost.push(LostVersion {
                kind: document.kind.clone(),
                name: document.name.clone(),
                sha256: blob.sha256.clone(),
                corrupt,
            }),
        }
    }
}

fn named(document: &Document) -> String {
    format!("{} {}", document.kind, document.name)
}
