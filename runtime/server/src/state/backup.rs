//! Copies of a state. A backup is laid out as a state: one snapshot, and the bytes it names. So both are read and checked alike, and
//! another backup into the same place writes only what is new.

use super::documents::Replica;
use super::error::StateError;
use super::journal::{Journal, Kind};
use super::log::{Change, Log, Position};
use super::record::{FORMAT, Unknown};
use super::snapshot::{self, Document};
use crate::unique::unique_id;
use bytes::Bytes;
use frostline_objects::Store;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::to_raw_value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Changes of one epoch: a restored state goes on at the next multiple, which no host of the state before ever reaches.
const EPOCH: u64 = 1_000_000_000;

/// Tries to copy a state whose versions are replaced meanwhile.
const TRIES: usize = 4;

/// The tenant whose record lists tokens that do not let in: those of hosts' token files that were revoked.
const CONFIGURED: &str = "default";

/// The kind of document that holds tokens.
const TENANTS: &str = "tenants";

/// What a state or a backup holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StateReport {
    /// The change it ends with.
    pub change: u64,
    /// Documents by kind: `guests`, `models`, `tenants`.
    pub documents: BTreeMap<String, usize>,
    /// Versions of guests and models whose bytes are there.
    pub versions: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Versions whose bytes are not: they have to be uploaded again.
    pub lost: Vec<LostVersion>,
}

/// A version of a guest or model without its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LostVersion {
    /// `guests` or `models`.
    pub kind: String,
    /// `TENANT/NAME`.
    pub name: String,
    /// SHA-256 of what was uploaded.
    pub sha256: String,
    /// Whether other bytes are there.
    pub corrupt: bool,
}

/// What a restore made of a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RestoreReport {
    /// What the state holds now.
    pub state: StateReport,
    /// Tenants that no token lets in any more.
    pub without_tokens: Vec<String>,
    /// What the state held before and the backup does not, as `KIND NAME`.
    pub dropped: Vec<String>,
}

/// Which tokens let in after a restore, where the state before cannot be asked which were revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoredTokens {
    /// Those of the backup, also if they were revoked since.
    Keep,
    /// None: every tenant needs a new one.
    Revoke,
}

/// What is looked at of a document of guests or models.
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

/// What is looked at of a document of tenants.
#[derive(Serialize, Deserialize)]
struct Entry {
    disabled: bool,
    tokens: Vec<Value>,
    #[serde(flatten)]
    rest: Unknown,
}

/// All that a state holds at one moment.
struct Contents {
    position: Position,
    documents: Vec<Document>,
}

/// Reads all that is in `store` and checks every byte.
pub(crate) async fn verify(store: &Arc<Store>) -> Result<StateReport, StateError> {
    let contents = Contents::read(store).await?;
    let mut report = contents.report();
    for (document, blob) in contents.blobs() {
        let checked = blob.read(store).await?;
        report.count(document, &blob, checked.map(drop));
    }
    Ok(report)
}

/// Copies a state, which hosts may go on changing, into another store.
pub(crate) async fn back_up(from: &Arc<Store>, to: &Arc<Store>) -> Result<StateReport, StateError> {
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
        // What is lost may only have been replaced meanwhile.
        contents = Contents::read(from).await?;
        report = contents.copy_blobs(from, to).await?;
    }
    write(to, contents.position, contents.documents).await?;
    snapshot::sweep(to).await?;
    Ok(report)
}

/// Writes a snapshot, and the change that it ends with, for the next one to follow on: one that changes nothing. Removes those before.
async fn write(to: &Arc<Store>, position: Position, documents: Vec<Document>) -> Result<(), StateError> {
    let change = Change {
        format: FORMAT,
        mark: position.mark.clone(),
        ..Change::default()
    };
    let log = Log::new(Arc::clone(to));
    if !log.create(position.number, &change).await? {
        return Err(StateError::OtherState {
            root: to.root().to_owned(),
        });
    }
    snapshot::write(to, &position, documents).await?;
    // A host that adds a change to what was there before finds that it follows on nothing, and reloads.
    log.sweep(position.number.saturating_sub(1)).await
}

/// Makes a state what a backup holds. Hosts that run on it reload within a minute. Tokens are those that the state has now, so that what
/// was revoked stays revoked; where it cannot be read, `tokens` says which.
pub(crate) async fn restore(
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
    let last_change = Log::new(Arc::clone(to)).last().await?;
    let last = snapshot::last(to).await?.max(last_change);
    let number = (last.max(contents.position.number) / EPOCH + 1) * EPOCH;
    report.change = number;
    let dropped = present.map_or_else(Vec::new, |present| present.missing_in(&contents));
    let position = Position {
        number,
        mark: unique_id()?,
    };
    write(to, position, contents.documents).await?;
    snapshot::remove_before(to, number).await?;
    Ok(RestoreReport {
        state: report,
        without_tokens,
        dropped,
    })
}

impl Contents {
    /// What `store` holds, which stays as it is.
    async fn read(store: &Arc<Store>) -> Result<Self, StateError> {
        if snapshot::newest(store, None).await?.is_none() {
            return Err(StateError::Empty {
                root: store.root().to_owned(),
            });
        }
        let replica = |kind| Arc::new(Replica::<Value>::new(kind)) as Arc<dyn Kind>;
        let kinds = ["guests", "models", TENANTS].map(replica);
        let journal = Journal::open(Arc::clone(store), kinds.to_vec()).await?;
        let (position, documents) = journal.documents().await?;
        Ok(Self { position, documents })
    }

    /// Every object that the documents name, once, with one that names it.
    fn blobs(&self) -> impl Iterator<Item = (&Document, Blob)> {
        let mut seen = BTreeSet::new();
        let all = self.documents.iter().flat_map(Document::blobs);
        all.filter(move |(_, blob)| seen.insert(blob.blob.clone()))
    }

    /// What there is, but for bytes.
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

    /// Copies what `to` does not have.
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
        let named = |document: &&Document| document.kind == TENANTS && document.name == name;
        self.documents.iter().find(named)
    }

    /// Lets tenants in by the tokens that `present` has, or by those that `tokens` says; the names of those that have none.
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

    /// Documents that `other` does not have, as `KIND NAME`.
    fn missing_in(&self, other: &Self) -> Vec<String> {
        let named = |document: &Document| format!("{} {}", document.kind, document.name);
        let there: BTreeSet<String> = other.documents.iter().map(named).collect();
        let ours = self.documents.iter().map(named);
        ours.filter(|name| !there.contains(name)).collect()
    }
}

impl Document {
    /// The bytes that it names; none where a newer version wrote it otherwise.
    fn blobs(&self) -> impl Iterator<Item = (&Self, Blob)> {
        let Blobs { versions } = serde_json::from_str(self.content.get()).unwrap_or_default();
        versions.into_iter().map(move |blob| (self, blob))
    }

    /// What it says of a tenant.
    fn entry(&self) -> Result<Entry, StateError> {
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
    /// Its bytes in `store`; whether others are there where they are not those that were uploaded.
    async fn read(&self, store: &Store) -> Result<Result<Bytes, Lost>, StateError> {
        let bytes = match store.read(&self.blob).await {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => return Ok(Err(Lost { corrupt: false })),
            Err(error) => return Err(error.into()),
        };
        let sha256 = self.sha256.clone();
        let hash = move || match hex::encode(Sha256::digest(&bytes)) == sha256 {
            true => Ok(bytes),
            false => Err(Lost { corrupt: true }),
        };
        Ok(spawn_blocking(hash).await?)
    }

    /// Puts its bytes where they are not, or others are.
    async fn copy(&self, from: &Store, to: &Store) -> Result<Result<(), Lost>, StateError> {
        let bytes = match self.read(from).await? {
            Ok(bytes) => bytes,
            Err(lost) => return Ok(Err(lost)),
        };
        match to.delete(&self.blob).await {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
        to.put_new(&self.blob, bytes).await?;
        Ok(Ok(()))
    }
}

/// Bytes are not there, or are others.
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
