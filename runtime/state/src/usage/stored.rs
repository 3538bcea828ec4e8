//! Usage in the shared state. `usage/<day>/<run>.<period>-<number>.json` contains the total usage that a host run
//! counted in a period of a day. Objects are never replaced: a host writes the object with the next number and then
//! removes the previous object.

use super::books::{Period, Usages};
use crate::daily::{AT_ONCE, DailyFolder, DailyObject};
use crate::day::Day;
use crate::error::StateError;
use crate::folder::{self, create, read_json, to_json};
use frostline_objects::Store;
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A year of usage, and a month to close the books.
pub(super) const FOLDER: DailyFolder = DailyFolder::new("usage", 400);

/// Attempts to list and read the objects. An attempt fails if a host replaces one of the objects at the same
/// time.
const TRIES: usize = 5;

/// Content of an object. Fields added by newer versions are ignored.
#[derive(Serialize, Deserialize)]
struct Content {
    tenants: Usages,
}

/// Usage stored by a host run.
pub(super) struct StoredUsage {
    run: String,
    number: u64,
    /// Keys of the current objects.
    current: BTreeMap<Period, String>,
}

impl StoredUsage {
    pub(super) fn new(run: String) -> Self {
        Self {
            run,
            number: 0,
            current: BTreeMap::new(),
        }
    }

    /// Writes the total usage of a period and removes its previous object.
    ///
    /// # Errors
    /// Returns [`StateError`] if the store fails. The previous object is then still in place.
    pub(super) async fn write(
        &mut self,
        store: &Store,
        period: Period,
        tenants: Usages,
    ) -> Result<(), StateError> {
        self.number += 1;
        let key = FOLDER.key(period.day, &self.id(period), self.number);
        create(store, &key, to_json(&key, &Content { tenants })?).await?;
        if let Some(before) = self.current.insert(period, key) {
            // If the old object remains, readers ignore it because of the lower number.
            let _ = store.delete(&before).await;
        }
        self.current.retain(|kept, _| *kept >= period);
        Ok(())
    }

    fn id(&self, period: Period) -> String {
        format!("{}.{}", self.run, period.number)
    }

    /// Reads the usage on the day of `period` that all hosts counted in other periods.
    ///
    /// # Errors
    /// Returns [`StateError`] if the state cannot be read.
    pub(super) async fn others(&self, store: &Store, period: Period) -> Result<Usages, StateError> {
        let days = read(store, period.day, period.day, Some(&self.id(period))).await?;
        Ok(days.into_values().next().unwrap_or_default())
    }
}

/// Reads the usage of all host runs from the day `from` to the day `to`, both included. The run `without` is
/// skipped.
///
/// # Errors
/// Returns [`StateError`] if the state cannot be read.
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
    let mut newest = newest(store, Some(from), Some(to)).await?;
    newest.retain(|(_, run), _| Some(run.as_str()) != without);
    let contents = stream::iter(newest.into_values()).map(|object| async move {
        let content: Content = read_json(store, &object.key).await?;
        Ok::<_, StateError>((object.day, content.tenants))
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

/// Copies the newest object of every host run and day, and removes the older object in the destination. Used
/// to back up and to restore a state.
///
/// # Errors
/// Returns [`StateError`] if either store fails.
pub(crate) async fn copy(from: &Store, to: &Store) -> Result<(), StateError> {
    let theirs = newest(to, None, None).await?;
    for (run, ours) in newest(from, None, None).await? {
        let before = theirs.get(&run);
        if before.is_some_and(|before| before.number >= ours.number) {
            continue;
        }
        // If the host has replaced the object in the meantime, the next backup will copy the new one.
        if folder::copy(from, to, &ours.key).await?
            && let Some(before) = before
        {
            to.delete(&before.key).await?;
        }
    }
    Ok(())
}

/// Lists the newest object of each host run and day, from the day `from` to the day `to`, both included.
async fn newest(
    store: &Store,
    from: Option<Day>,
    to: Option<Day>,
) -> Result<BTreeMap<(Day, String), DailyObject>, StateError> {
    // Objects of the same run are listed in the order of their numbers.
    let objects = FOLDER.list(store, from, to).await?.into_iter();
    Ok(objects
        .map(|object| ((object.day, object.run.clone()), object))
        .collect())
}
