//! Usage in the shared state: `usage/<day>/<run of a host>-<number>.json` has all that one run of a host counted on a day. As objects are
//! created and never replaced, a host writes the next number and then removes the one before.

use super::books::Usages;
use crate::state::{DailyFolder, Day, StateError};
use frostline_objects::Store;
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const FOLDER: DailyFolder = DailyFolder("usage");

/// Objects read at once.
const AT_ONCE: usize = 8;

/// How often objects are listed anew as a host has just replaced one of them.
const TRIES: usize = 5;

/// An object's content. What a later version adds is passed over.
#[derive(Serialize, Deserialize)]
struct Content {
    tenants: Usages,
}

/// Where one run of a host keeps what it counted.
pub(super) struct StoredUsage {
    run: String,
    number: u64,
    /// The object that holds all of a day so far.
    current: BTreeMap<Day, String>,
}

impl StoredUsage {
    pub(super) fn new(run: String) -> Self {
        Self {
            run,
            number: 0,
            current: BTreeMap::new(),
        }
    }

    /// Keeps all that was used on `day`, in place of what was kept of it before.
    ///
    /// # Errors
    /// [`StateError`]; what was kept before still is.
    pub(super) async fn write(&mut self, store: &Store, day: Day, tenants: Usages) -> Result<(), StateError> {
        self.number += 1;
        let content = Content { tenants };
        let json = serde_json::to_vec(&content).map_err(|error| StateError::broken(FOLDER.0, error))?;
        let key = FOLDER.write(store, day, &self.run, self.number, json).await?;
        if let Some(before) = self.current.insert(day, key) {
            // One that stays is passed over by its number.
            let _ = store.delete(&before).await;
        }
        self.current.retain(|kept, _| *kept >= day);
        Ok(())
    }

    /// What all other runs of hosts used on `day`.
    ///
    /// # Errors
    /// [`StateError`].
    pub(super) async fn others(&self, store: &Store, day: Day) -> Result<Usages, StateError> {
        let days = read(store, day, day, Some(&self.run)).await?;
        Ok(days.into_values().next().unwrap_or_default())
    }
}

/// What was used from one day to another, both included, by all hosts but the run `without`.
///
/// # Errors
/// [`StateError`].
pub(super) async fn read(
    store: &Store,
    from: Day,
    to: Day,
    without: Option<&str>,
) -> Result<BTreeMap<Day, Usages>, StateError> {
    let mut tries = 1;
    loop {
        match read_once(store, from, to, without).await {
            Err(StateError::Store(error)) if error.is_not_found() && tries < TRIES => tries += 1,
            read => return read,
        }
    }
}

async fn read_once(
    store: &Store,
    from: Day,
    to: Day,
    without: Option<&str>,
) -> Result<BTreeMap<Day, Usages>, StateError> {
    let mut newest = newest_of(FOLDER.keys(store, Some(from), |day| day <= to).await?);
    newest.retain(|(_, run), _| Some(run.as_str()) != without);
    let contents = stream::iter(newest).map(|((day, _), (_, key))| async move {
        let bytes = store.read(&key).await?;
        let content: Content =
            serde_json::from_slice(&bytes).map_err(|error| StateError::broken(&key, error))?;
        Ok::<_, StateError>((day, content.tenants))
    });
    let mut days: BTreeMap<Day, Usages> = BTreeMap::new();
    let mut contents = contents.buffer_unordered(AT_ONCE);
    while let Some((day, tenants)) = contents.try_next().await? {
        let all = days.entry(day).or_default();
        for (tenant, usage) in tenants {
            all.entry(tenant).or_default().add_host(&usage);
        }
    }
    Ok(days)
}

/// Copies what all runs of hosts wrote last, and removes what it replaces there: for backups of a state, and to restore one.
///
/// # Errors
/// [`StateError`].
pub(crate) async fn copy(from: &Store, to: &Store) -> Result<(), StateError> {
    let (ours, theirs) = (newest(from).await?, newest(to).await?);
    for (run, (number, key)) in ours {
        let there = theirs.get(&run);
        if there.is_some_and(|(there, _)| *there >= number) {
            continue;
        }
        match from.read(&key).await {
            // Its host has replaced it meanwhile: the next backup has that.
            Err(error) if error.is_not_found() => continue,
            bytes => to.put_same(&key, bytes?).await?,
        }
        if let Some((_, before)) = there {
            to.delete(before).await?;
        }
    }
    Ok(())
}

/// The newest object of each run of a host and day.
async fn newest(store: &Store) -> Result<BTreeMap<(Day, String), (u64, String)>, StateError> {
    Ok(newest_of(FOLDER.keys(store, None, |_| true).await?))
}

fn newest_of(keys: Vec<String>) -> BTreeMap<(Day, String), (u64, String)> {
    let mut newest: BTreeMap<(Day, String), (u64, String)> = BTreeMap::new();
    for key in keys {
        let Some(name) = FOLDER.parse(&key) else {
            continue;
        };
        let entry = newest.entry((name.day, name.run)).or_default();
        *entry = std::mem::take(entry).max((name.number, key));
    }
    newest
}

/// Removes all days before `first`.
///
/// # Errors
/// [`StateError`].
pub(super) async fn sweep(store: &Store, first: Day) -> Result<(), StateError> {
    FOLDER.sweep(store, first).await
}
