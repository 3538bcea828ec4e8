//! Records of hosts in the state, as `hosts/<run>-<number>-<clock>.json`. The key contains the host's clock in seconds
//! since 1970, so a listing is enough to compare clocks. Like all objects of a state, a record is never replaced: a
//! host writes the record with the next number, and then removes the previous one.

use crate::error::StateError;
use crate::folder::{Folder, read_json, to_json};
use frostline_objects::Store;
use frostline_wire::{HostInfo, JobInfo};
use serde::{Deserialize, Serialize};

const FOLDER: Folder = Folder::new("hosts");

/// Maximum number of considered records. A state with more hosts should be divided.
const MOST: usize = 256;

/// Record of a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostRecord {
    /// Name, address and activity.
    pub host: HostInfo,
    /// Jobs that were active most recently.
    pub jobs: Vec<JobInfo>,
}

/// Key of a record of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostKey {
    /// Random id of the host process.
    pub run: String,
    /// Number of earlier records of the host process.
    pub number: u64,
    /// Clock of the host in seconds since 1970.
    pub clock: u64,
}

impl HostKey {
    fn parse(key: &str) -> Option<Self> {
        let name = FOLDER.inside(key)?.strip_suffix(".json")?;
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
        format!("{}/{run}-{number:08}-{clock}.json", FOLDER.name)
    }

    /// Reads the record.
    ///
    /// # Errors
    /// Returns [`StateError`] if the record does not exist or cannot be read.
    pub async fn read(&self, store: &Store) -> Result<HostRecord, StateError> {
        read_json(store, &self.key()).await
    }

    /// Creates the record.
    ///
    /// # Errors
    /// Returns [`StateError`] if the record exists or cannot be written.
    pub async fn write(&self, store: &Store, record: &HostRecord) -> Result<(), StateError> {
        let key = self.key();
        Ok(store.put_new(&key, to_json(&key, record)?).await?)
    }

    /// Removes the record. It does no harm if this fails, because the next record has a higher number.
    pub async fn remove(&self, store: &Store) {
        let _ = store.delete(&self.key()).await;
    }

    /// Lists up to 256 records of hosts, ordered by run and number.
    ///
    /// # Errors
    /// Returns [`StateError`] if the store fails.
    pub async fn list(store: &Store) -> Result<Vec<Self>, StateError> {
        let mut count = 0;
        let keys = FOLDER.list(store, None, Self::parse, |_| {
            count += 1;
            count <= MOST
        });
        keys.await
    }
}
