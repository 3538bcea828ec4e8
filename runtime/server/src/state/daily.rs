use super::StateError;
use super::day::Day;
use bytes::Bytes;
use frostline_objects::Store;

/// Keys asked for at a time: what S3 gives at once.
const PAGE: usize = 1000;

/// A folder of the shared state in which each run of a host has objects of its own by day: `<folder>/<day>/<run>-<number>.json`. A run is
/// random and new at each start, so no two hosts write under one name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DailyFolder(pub(crate) &'static str);

/// The name of an object in a [`DailyFolder`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DailyName {
    pub(crate) day: Day,
    pub(crate) run: String,
    pub(crate) number: u64,
}

impl DailyFolder {
    fn key(self, day: Day, run: &str, number: u64) -> String {
        format!("{}/{day}/{run}-{number:08}.json", self.0)
    }

    /// `None` for keys of other folders, and others.
    pub(crate) fn parse(self, key: &str) -> Option<DailyName> {
        let (day, name) = key.strip_prefix(self.0)?.strip_prefix('/')?.split_once('/')?;
        let (run, number) = name.strip_suffix(".json")?.rsplit_once('-')?;
        Some(DailyName {
            day: Day::parse(day)?,
            run: run.to_owned(),
            number: number.parse().ok()?,
        })
    }

    /// Keys from the day `from` on, or all, up to the first day that is not `wanted`; by day.
    ///
    /// # Errors
    /// [`StateError`].
    pub(crate) async fn keys(
        self,
        store: &Store,
        from: Option<Day>,
        wanted: impl Fn(Day) -> bool,
    ) -> Result<Vec<String>, StateError> {
        let first = from.map_or_else(|| self.0.to_owned(), |day| format!("{}/{day}", self.0));
        let (mut keys, mut after) = (Vec::new(), Some(first));
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

    /// Writes an object that only this run of a host writes, and returns its key.
    ///
    /// # Errors
    /// [`StateError`].
    pub(crate) async fn write(
        self,
        store: &Store,
        day: Day,
        run: &str,
        number: u64,
        content: Vec<u8>,
    ) -> Result<String, StateError> {
        let key = self.key(day, run, number);
        match store.put_new(&key, Bytes::from(content)).await {
            // Nobody else writes under this name: the answer of a try before was lost.
            Err(error) if !error.is_already_there() => Err(error.into()),
            _ => Ok(key),
        }
    }

    /// Removes all days before `first`.
    ///
    /// # Errors
    /// [`StateError`].
    pub(crate) async fn sweep(self, store: &Store, first: Day) -> Result<(), StateError> {
        for key in self.keys(store, None, |day| day < first).await? {
            match store.delete(&key).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }
}
