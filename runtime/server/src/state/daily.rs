use super::StateError;
use super::day::Day;
use bytes::Bytes;
use frostline_objects::Store;

/// Number of keys per listing request, the maximum of S3.
const PAGE: usize = 1000;

/// A folder of the shared state with objects by day and host run: `<folder>/<day>/<run>-<number>.json`. The
/// id of a run is generated at every start of a host, so two hosts never write to the same key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DailyFolder(pub(crate) &'static str);

/// Parsed key of an object in a [`DailyFolder`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DailyName {
    pub(crate) day: Day,
    pub(crate) run: String,
    pub(crate) number: u64,
}

impl DailyFolder {
    /// Returns the key of an object of a host run.
    pub(crate) fn key(self, day: Day, run: &str, number: u64) -> String {
        format!("{}/{day}/{run}-{number:08}.json", self.0)
    }

    /// Parses a key. Returns `None` if it does not belong to this folder.
    pub(crate) fn parse(self, key: &str) -> Option<DailyName> {
        let (day, name) = key.strip_prefix(self.0)?.strip_prefix('/')?.split_once('/')?;
        let (run, number) = name.strip_suffix(".json")?.rsplit_once('-')?;
        Some(DailyName {
            day: Day::parse(day)?,
            run: run.to_owned(),
            number: number.parse().ok()?,
        })
    }

    /// Lists keys in the order of days, beginning with the day `from` if given, until the first day for which
    /// `wanted` returns false.
    ///
    /// # Errors
    /// Returns [`StateError`] if the store fails.
    pub(crate) async fn keys(
        self,
        store: &Store,
        from: Option<Day>,
        wanted: impl Fn(Day) -> bool,
    ) -> Result<Vec<String>, StateError> {
        let first = from.map_or_else(|| self.0.to_owned(), |day| format!("{}/{day}", self.0));
        let mut keys = Vec::new();
        let mut after = Some(first);
        while let Some(from) = after {
            let page = store.list(Some(&from), PAGE).await?;
            for object in page.objects {
                match self.parse(&object.sample.key) {
                    Some(name) if wanted(name.day) => keys.push(object.sample.key),
                    _ => return Ok(keys),
                }
            }
            after = page.next;
        }
        Ok(keys)
    }

    /// Writes the object with this [`key`](Self::key), which belongs to this host run.
    ///
    /// # Errors
    /// Returns [`StateError`] if the store fails.
    pub(crate) async fn write(store: &Store, key: &str, content: Vec<u8>) -> Result<(), StateError> {
        match store.put_new(key, Bytes::from(content)).await {
            // Only this run writes this key, so an earlier attempt succeeded but the response was lost.
            Err(error) if !error.is_already_there() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Returns the days with records in ascending order. This needs a request per day.
    async fn days(self, store: &Store) -> Result<Vec<Day>, StateError> {
        let mut days = Vec::new();
        let mut after = Some(self.0.to_owned());
        while let Some(from) = after {
            let page = store.list(Some(&from), 1).await?;
            let first = page.objects.first().map(|object| self.parse(&object.sample.key));
            after = match first {
                None => page.next,
                Some(None) => None,
                Some(Some(name)) => {
                    days.push(name.day);
                    // Sorts after all keys of the day.
                    Some(format!("{}/{}/~", self.0, name.day))
                }
            };
        }
        Ok(days)
    }

    /// Removes all days except the newest `kept` days that have records. The current date does not matter:
    /// a wrong clock removes nothing.
    ///
    /// # Errors
    /// Returns [`StateError`] if the store fails.
    pub(crate) async fn sweep(self, store: &Store, kept: usize) -> Result<(), StateError> {
        let days = self.days(store).await?;
        let Some(last) = days.iter().rev().nth(kept) else {
            return Ok(());
        };
        for key in self.keys(store, None, |day| day <= *last).await? {
            match store.delete(&key).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }
}
