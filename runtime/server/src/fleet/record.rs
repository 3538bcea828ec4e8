//! Records of hosts in the state, as `hosts/<run>-<number>-<clock>.json`. The key contains the host's clock in seconds
//! since 1970, so a listing is enough to compare clocks. Like all objects of a state, a record is never replaced: a
//! host writes the record with the next number, and then removes the previous one.

use crate::state::StateError;
use bytes::Bytes;
use frostline_objects::Store;
use frostline_wire::{HostInfo, JobInfo};
use serde::{Deserialize, Serialize};

const FOLDER: &str = "hosts";

/// Number of keys per listing request, the maximum of S3.
const PAGE: usize = 1000;

/// Maximum number of considered records. A state with more hosts should be divided.
const MOST: usize = 256;

/// Estimated size of a record in bytes: up to 64 jobs and 64 tenants with 500 bytes each.
pub(crate) const RECORD_BYTES: u64 = 64 << 10;

/// Content of a record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HostRecord {
    pub(crate) host: HostInfo,
    /// Jobs that were active most recently.
    pub(crate) jobs: Vec<JobInfo>,
}

/// Parsed key of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordKey {
    pub(super) run: String,
    pub(super) number: u64,
    pub(super) clock: u64,
}

impl RecordKey {
    fn parse(key: &str) -> Option<Self> {
        let name = key
            .strip_prefix(FOLDER)?
            .strip_prefix('/')?
            .strip_suffix(".json")?;
        let (rest, clock) = name.rsplit_once('-')?;
        let (run, number) = rest.rsplit_once('-')?;
        Some(Self {
            run: run.to_owned(),
            number: number.parse().ok()?,
            clock: clock.parse().ok()?,
        })
    }

    fn key(&self) -> String {
        let Self { run, number, clock } = self;
        format!("{FOLDER}/{run}-{number:08}-{clock}.json")
    }

    pub(super) async fn read(&self, store: &Store) -> Result<HostRecord, StateError> {
        let key = self.key();
        let bytes = store.read(&key).await?;
        serde_json::from_slice(&bytes).map_err(|error| StateError::broken(&key, error))
    }

    pub(super) async fn write(&self, store: &Store, record: &HostRecord) -> Result<(), StateError> {
        let key = self.key();
        let json = serde_json::to_vec(record).map_err(|error| StateError::broken(&key, error))?;
        Ok(store.put_new(&key, Bytes::from(json)).await?)
    }

    /// Removes the record. It does no harm if this fails, because the next record has a higher number.
    pub(super) async fn remove(&self, store: &Store) {
        let _ = store.delete(&self.key()).await;
    }
}

/// Lists the records of all hosts, ordered by run and number.
pub(super) async fn list(store: &Store) -> Result<Vec<RecordKey>, StateError> {
    let mut records = Vec::new();
    let mut after = Some(FOLDER.to_owned());
    while let Some(from) = after.filter(|_| records.len() < MOST) {
        let page = store.list(Some(&from), PAGE).await?;
        let keys = page
            .objects
            .iter()
            .map(|object| RecordKey::parse(&object.sample.key));
        let ours = keys.take_while(Option::is_some).flatten();
        let before = records.len();
        records.extend(ours);
        after = page.next.filter(|_| records.len() - before == page.objects.len());
    }
    records.truncate(MOST);
    Ok(records)
}
