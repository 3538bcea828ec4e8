//! Records by day and host run, which usage and the audit share.

use crate::clock::Clock;
use crate::day::Day;
use crate::error::StateError;
use crate::folder::{Folder, remove, within};
use frostline_objects::Store;
use std::time::Duration;

/// Number of objects read concurrently.
pub(crate) const AT_ONCE: usize = 8;

/// Maximum time to remove old days. The rest is removed the next day.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(30);

/// A folder with objects by day and host run: `<folder>/<day>/<run>-<number>.json`. The id of a run is generated at every
/// start of a host, so two hosts never write to the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DailyFolder {
    pub(crate) folder: Folder,
    /// Number of days with records that are kept.
    pub(crate) kept_days: usize,
}

/// An object in a [`DailyFolder`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DailyObject {
    pub(crate) day: Day,
    pub(crate) run: String,
    pub(crate) number: u64,
    pub(crate) key: String,
}

impl DailyFolder {
    pub(crate) const fn new(name: &'static str, kept_days: usize) -> Self {
        Self {
            folder: Folder::new(name),
            kept_days,
        }
    }

    /// Returns the key of an object of a host run.
    pub(crate) fn key(self, day: Day, run: &str, number: u64) -> String {
        format!("{}/{day}/{run}-{number:08}.json", self.folder.name)
    }

    fn parse(self, key: &str) -> Option<DailyObject> {
        let (day, name) = self.folder.inside(key)?.split_once('/')?;
        let (run, number) = name.strip_suffix(".json")?.rsplit_once('-')?;
        Some(DailyObject {
            day: Day::parse(day)?,
            run: run.to_owned(),
            number: number.parse().ok()?,
            key: key.to_owned(),
        })
    }

    /// Lists objects in the order of days, runs and numbers, from the day `from` to the day `to`, both included. `None` is
    /// the first or the last day.
    pub(crate) async fn list(
        self,
        store: &Store,
        from: Option<Day>,
        to: Option<Day>,
    ) -> Result<Vec<DailyObject>, StateError> {
        let after = from.map(|day| format!("{}/{day}", self.folder.name));
        let objects = self.folder.list(
            store,
            after,
            |key| self.parse(key),
            |object: &DailyObject| to.is_none_or(|to| object.day <= to),
        );
        objects.await
    }

    /// Returns the days with records in ascending order. This needs a request per day.
    async fn days(self, store: &Store) -> Result<Vec<Day>, StateError> {
        let mut days = Vec::new();
        let mut after = Some(self.folder.name.to_owned());
        while let Some(from) = after {
            let page = store.list(Some(&from), 1).await?;
            let first = page.objects.first().map(|object| self.parse(&object.sample.key));
            after = match first {
                None => page.next,
                Some(None) => None,
                Some(Some(object)) => {
                    days.push(object.day);
                    // Sorts after all keys of the day.
                    Some(format!("{}/{}/~", self.folder.name, object.day))
                }
            };
        }
        Ok(days)
    }

    /// Removes all days except the newest [`kept_days`](Self::kept_days) that have records. The current date does not
    /// matter: a wrong clock removes nothing.
    pub(crate) async fn sweep(self, store: &Store) -> Result<(), StateError> {
        let days = self.days(store).await?;
        let Some(last) = days.iter().rev().nth(self.kept_days) else {
            return Ok(());
        };
        for object in self.list(store, None, Some(*last)).await? {
            remove(store, &object.key).await?;
        }
        Ok(())
    }
}

/// Removes old days once a day.
#[derive(Default)]
pub(crate) struct DailySweep {
    /// Day of the last attempt.
    swept: Option<Day>,
}

impl DailySweep {
    /// Removes the old days of `folder`, unless this was done today or the clock differs from others.
    pub(crate) async fn run(
        &mut self,
        folder: DailyFolder,
        store: &Store,
        clock: &Clock,
    ) -> Result<(), StateError> {
        let day = clock.today();
        if self.swept == Some(day) || !clock.may_expire() {
            return Ok(());
        }
        self.swept = Some(day);
        match within(SWEEP_TIMEOUT, folder.sweep(store)).await {
            Err(StateError::Late { .. }) => Ok(()),
            swept => swept,
        }
    }
}
