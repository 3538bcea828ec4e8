//! Feature stores in an object store.

use crate::hints::{Hinted, Step};
use crate::host::data_url;
use anyhow::{Result, anyhow};
use frostline_features::{SegmentStore, Stored, Unavailable};
use frostline_objects::{ObjectError, Store};
use frostline_tensor::{BoxFuture, SampleRef};
use frostline_trainer::SharedFeatureStore;
use std::ops::Range;
use std::sync::Arc;

/// Suggested limit of the feature cache.
const CACHE_LIMIT: &str = "4GiB";

/// Number of objects that are listed per page.
const PAGE: usize = 1000;

/// Opens the feature store at `url`. Returns `None` without a URL.
///
/// # Errors
/// Returns an error if the job does not cache features, or if the URL is invalid.
pub(crate) fn open_feature_store(url: Option<&str>, keeps: bool) -> Result<Option<SharedFeatureStore>> {
    let Some(url) = url else { return Ok(None) };
    if !keeps {
        let error = anyhow!("the feature store shares cached features, but the feature cache is off");
        return Err(Hinted::wrap(error, vec![Step::set("feature_cache", CACHE_LIMIT)]));
    }
    let store = ObjectSegmentStore::open(&data_url(url)?, Store::open)?;
    Ok(Some(SharedFeatureStore::new(Arc::new(store))))
}

/// A folder in an object store, or an error if the store is unavailable.
#[derive(Debug)]
struct ObjectSegmentStore {
    shown: String,
    store: Result<Store, Unavailable>,
}

impl ObjectSegmentStore {
    /// Opens the store. An invalid URL is refused, but a missing folder may be a network folder that is not
    /// mounted, and does not stop the job.
    fn open(url: &str, open: impl Fn(&str) -> Result<Store, ObjectError>) -> Result<Self> {
        match open(url) {
            Ok(store) => Ok(Self {
                shown: store.root().to_owned(),
                store: Ok(store),
            }),
            Err(error @ ObjectError::NoSuchRoot { .. }) => Ok(Self {
                shown: url.to_owned(),
                store: Err(Unavailable(error.to_string())),
            }),
            Err(error) => Err(error.into()),
        }
    }
}

fn unavailable(error: ObjectError) -> Unavailable {
    Unavailable(error.to_string())
}

async fn list(
    store: &Store,
    folder: String,
    after: Option<String>,
    most: usize,
) -> Result<Vec<Stored>, Unavailable> {
    let prefix = format!("{folder}/");
    let mut found = Vec::new();
    let mut after = after.map_or(folder, |name| prefix.clone() + &name);
    loop {
        let page = store.list(Some(&after), PAGE).await.map_err(unavailable)?;
        for object in page.objects {
            let Some(name) = object.sample.key.strip_prefix(&prefix) else {
                // Keys such as `folder-2` and `folder.txt` precede `folder/`.
                if object.sample.key < prefix {
                    continue;
                }
                return Ok(found);
            };
            found.push(Stored {
                name: name.to_owned(),
                size: object.size,
            });
            if found.len() == most {
                return Ok(found);
            }
        }
        let Some(next) = page.next else {
            return Ok(found);
        };
        after = next;
    }
}

impl SegmentStore for ObjectSegmentStore {
    fn shown(&self) -> String {
        self.shown.clone()
    }

    fn list(
        &self,
        folder: String,
        after: Option<String>,
        most: usize,
    ) -> BoxFuture<Result<Vec<Stored>, Unavailable>> {
        let store = self.store.clone();
        Box::pin(async move { list(&store?, folder, after, most).await })
    }

    fn read(&self, key: String, range: Range<u64>) -> BoxFuture<Result<Vec<u8>, Unavailable>> {
        let store = self.store.clone();
        Box::pin(async move {
            let read = store?.read_range(&SampleRef::new(&key), range).await;
            read.map(|bytes| bytes.to_vec()).map_err(unavailable)
        })
    }

    fn put_new(&self, key: String, bytes: Vec<u8>) -> BoxFuture<Result<bool, Unavailable>> {
        let store = self.store.clone();
        Box::pin(async move {
            match store?.put_same(&key, bytes.into()).await {
                Ok(()) => Ok(true),
                Err(error) if error.is_already_there() => Ok(false),
                Err(error) => Err(unavailable(error)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn shelf(url: &str) -> ObjectSegmentStore {
        ObjectSegmentStore::open(url, |url| Store::open_with(url, HashMap::new())).unwrap()
    }

    #[tokio::test]
    async fn a_folder_holds_what_was_put_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        for url in [path.to_owned(), "memory://".to_owned(), format!("file://{path}/")] {
            let shelf = shelf(&url);
            let one = if url.starts_with("file") { "b2" } else { "b1" };
            let list = |after: Option<&str>, most| shelf.list(one.to_owned(), after.map(str::to_owned), most);
            assert_eq!(list(None, 10).await, Ok(vec![]));
            for key in ["a", one, &format!("{one}-2"), "c"].map(|folder| format!("{folder}/x.rows")) {
                shelf.put_new(key, b"1234".to_vec()).await.unwrap();
            }
            let put = |key: String, bytes: &[u8]| shelf.put_new(key, bytes.to_vec());
            assert_eq!(put(format!("{one}/y.rows"), b"12").await, Ok(true), "{url}");
            assert_eq!(put(format!("{one}/x.rows"), b"other").await, Ok(false));
            let stored = |name: &str, size| Stored {
                name: name.to_owned(),
                size,
            };
            let all = [stored("x.rows", 4), stored("y.rows", 2)];
            assert_eq!(list(None, 10).await.unwrap(), all);
            assert_eq!(list(None, 1).await.unwrap(), all[..1]);
            assert_eq!(list(Some("x.rows"), 10).await.unwrap(), all[1..]);
            let part = |range| shelf.read(format!("{one}/x.rows"), range);
            assert_eq!(part(1..3).await.unwrap(), b"23");
            assert_eq!(part(2..9).await.unwrap(), b"34");
        }
    }

    #[tokio::test]
    async fn invalid_urls_are_refused_and_missing_folders_are_reported_later() {
        let refused = ObjectSegmentStore::open("ftp://id:geheim@host/x", Store::open).unwrap_err();
        assert!(!refused.to_string().contains("geheim"), "{refused}");
        let away = shelf("/there/is/no/such/folder");
        let why = away.list("a".to_owned(), None, 1).await.unwrap_err();
        assert!(
            why.to_string().contains("no such folder") || why.to_string().contains("/there/is"),
            "{why}"
        );
        assert!(
            open_feature_store(Some("memory://"), false)
                .unwrap_err()
                .to_string()
                .contains("the feature cache is off")
        );
        assert!(open_feature_store(None, false).unwrap().is_none());
    }
}
