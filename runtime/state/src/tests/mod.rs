//! Tests of hosts that share a state in a folder or on a store with injected faults.

mod backups;
mod documents;
mod log;
mod stores;
mod uploads;

use super::documents::{Documents, Replica};
use super::journal::{DocumentKind, Journal};
use super::{CheckedUpload, FindResult, SharedState, StateError, UploadLimits};
use bytes::Bytes;
use frostline_batching::Charge;
use frostline_objects::Store;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;

const LIMITS: UploadLimits = UploadLimits {
    names: 1000,
    versions: 8,
};

/// Account that ignores the CPU time.
fn uncharged(_owner: &str) -> Charge {
    Charge::default()
}

/// Test documents and the journal.
struct Things {
    documents: Documents<u32>,
    journal: Arc<Journal>,
}

impl Things {
    async fn open(store: Arc<Store>) -> Result<Self, StateError> {
        let known = Arc::new(Replica::new("things"));
        let kinds = vec![Arc::clone(&known) as Arc<dyn DocumentKind>];
        let journal = Arc::new(Journal::open(store, kinds).await?);
        Ok(Self {
            documents: Documents::new(known, Arc::clone(&journal)),
            journal,
        })
    }

    async fn at(folder: &Path) -> Self {
        Self::open(local(folder)).await.unwrap()
    }

    async fn set(&self, name: &str, value: impl Into<Option<u32>>) -> Result<Option<Arc<u32>>, StateError> {
        let value = value.into();
        self.documents.update(name, |_| Ok(value)).await
    }

    async fn add_one(&self, name: &str) -> Result<Option<Arc<u32>>, StateError> {
        let add = |now: Option<&u32>| Ok(Some(now.copied().unwrap_or(0) + 1));
        self.documents.update(name, add).await
    }

    fn get(&self, name: &str) -> Option<u32> {
        self.documents.get(name).map(|value| *value)
    }
}

fn local(folder: &Path) -> Arc<Store> {
    Arc::new(Store::open(folder.to_str().unwrap()).unwrap())
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

async fn host(store: Arc<Store>) -> SharedState<()> {
    SharedState::open(store, LIMITS, uncharged).await.unwrap()
}

fn hash(bytes: &str) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn content(bytes: &'static str) -> CheckedUpload<()> {
    CheckedUpload {
        sha256: hash(bytes),
        bytes: Bytes::from(bytes),
        facts: (),
    }
}

async fn put(host: &SharedState<()>, name: &str, bytes: &'static str) -> Result<bool, StateError> {
    let guests = host.guests.owned_by("acme");
    let put = guests.put(name, content(bytes), |_| Ok(())).await;
    put.map(|(_, new)| new)
}

fn has(host: &SharedState<()>, name: &str) -> bool {
    matches!(
        host.guests.owned_by("acme").find(name, None),
        FindResult::Version(_)
    )
}
