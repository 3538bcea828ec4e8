//! Lists a root in pages.

use super::Store;
use crate::folder::{self, WalkError};
use crate::kind::Kind;
use crate::local::{LocalFolder, changed};
use crate::names::{RemovedNames, first_storage_class, with_removed_names};
use crate::open::Listing;
use crate::root::{DEADLINE, LISTING};
use crate::{ObjectError, key};
use frostline_tensor::{ObjectInfo, ObjectPage, SampleRef, SkippedNames};
use futures::{StreamExt, TryFutureExt, TryStreamExt, stream};
use object_store::ObjectMeta;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::timeout;

/// Concurrent metadata reads per page, each on a thread in tokio's blocking pool.
const HEADS_AT_ONCE: usize = 16;

/// Maximum number of objects per page, which is S3's limit per request.
pub(super) const LARGEST_PAGE: usize = 1000;

/// Maximum number of objects in a web server's listing. Each page requires the complete listing, at some 500
/// bytes per object. The limit also applies to stores that start over for every page or do not list keys in
/// byte order.
const MAX_COMPLETE_LISTING: usize = 100_000;

/// Maximum number of requests without new objects for a page, enough for a listing with
/// [`MAX_COMPLETE_LISTING`] objects.
const MAX_EMPTY_REQUESTS: usize = MAX_COMPLETE_LISTING / LARGEST_PAGE;

/// A page of objects with the skipped entries.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) objects: Vec<ObjectInfo>,
    pub(super) next: Option<String>,
    /// Invalid names up to `next`, ascending.
    pub(super) skipped: Vec<String>,
    /// Entries skipped before all objects of the page.
    pub(super) before: SkippedNames,
}

impl From<Names> for ObjectPage {
    fn from(names: Names) -> Self {
        let mut left_out = names.before;
        names.skipped.iter().for_each(|odd| left_out.add(odd));
        Self {
            objects: names.objects,
            next: names.next,
            left_out,
        }
    }
}

/// A store's answer to a listing request.
struct ListPage {
    found: Vec<ObjectMeta>,
    removed: RemovedNames,
    /// True if the store has more objects.
    more: bool,
}

impl Store {
    /// Lists up to `limit` objects (1 to 1,000) with keys greater than `after`, ascending by the bytes of the
    /// keys. A page may contain fewer objects even if more follow.
    ///
    /// # Errors
    /// Returns [`ObjectError::TooMany`] if a folder has more than a million entries, or a web server or a
    /// store in memory more than 100,000 objects, [`ObjectError::LongListing`] if a web server lists more than
    /// 64 MiB, [`ObjectError::NoListing`] if it does not list its files, [`ObjectError::OutOfBudget`] if no
    /// memory is available, and other errors if the store fails.
    pub async fn list(&self, after: Option<&str>, limit: usize) -> Result<ObjectPage, ObjectError> {
        Ok(self.page(after, limit).await?.into())
    }

    /// Checks that the root answers within `deadline`. Lists the first object, or checks that the folder
    /// exists. Web servers are not contacted, because they have no partial listings. Errors are meant for the
    /// operator of this process.
    ///
    /// # Errors
    /// Returns an error if the root does not exist, cannot be reached or does not answer in time, or if the
    /// store fails.
    pub async fn probe(&self, deadline: Duration) -> Result<(), ObjectError> {
        match &self.listing {
            Listing::Whole => Ok(()),
            Listing::Folder(folder) => {
                let root = &self.scope.root;
                let there = folder.check_folder(&self.scope.prefix);
                let there = there.map_err(|_| root.missing());
                root.observed(deadline, LISTING, there).await
            }
            Listing::Pages(_) => self.page_within(deadline, None, 1).await.map(drop),
        }
    }

    /// Returns the page of [`Store::list`] with the names of the skipped entries.
    pub(super) async fn page(&self, after: Option<&str>, limit: usize) -> Result<Names, ObjectError> {
        let page = self.page_within(DEADLINE, after, limit).await;
        page.map_err(|error| self.scope.root.on_fault.shown(error))
    }

    async fn page_within(
        &self,
        deadline: Duration,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Names, ObjectError> {
        let limit = limit.clamp(1, LARGEST_PAGE);
        let listing = async {
            match &self.listing {
                Listing::Folder(folder) => self.list_folder(folder, after, limit).await,
                Listing::Pages(_) if self.unordered.load(Ordering::Relaxed) => {
                    self.list_unordered(after, limit).await
                }
                Listing::Pages(store) => self.list_page(store.as_ref(), after, limit).await,
                Listing::Whole => self.list_whole(after, limit).await,
            }
        };
        self.scope.root.observed(deadline, LISTING, listing).await
    }

    async fn list_folder(
        &self,
        folder: &LocalFolder,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Names, ObjectError> {
        let _memory = self.room.enter(LISTING, folder::MEMORY).await?;
        let folder = folder.clone();
        let prefix = self.scope.prefix.clone();
        let after = after.map(str::to_owned);
        let passage = self.access.enter().await;
        let found = passage
            .run(move |stop| folder::page(&folder, &prefix, after.as_deref(), limit, stop))
            .await
            .map_err(|error| self.scope.root.failed(LISTING, error))?;
        let found = found.map_err(|error| match error {
            WalkError::Io(error) => self.scope.root.failed(LISTING, error),
            WalkError::NoSuchRoot => self.scope.root.missing(),
            WalkError::TooMany(folder) => ObjectError::TooMany {
                folder,
                root: self.scope.root.shown.clone(),
                limit: folder::MOST_ENTRIES,
            },
        })?;
        let next = if found.more {
            found.keys.last().cloned()
        } else {
            None
        };
        let heads = stream::iter(found.keys).map(|key| async move {
            let location = self.scope.checked(&key)?;
            match self.access.head(self.store.as_ref(), &location).await {
                Ok(meta) => Ok(Some(self.listed(key, meta))),
                // The file was removed after the folder was read.
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(self.scope.root.explain(&error, &key)),
            }
        });
        let objects: Vec<_> = heads.buffered(HEADS_AT_ONCE).try_collect().await?;
        Ok(Names {
            objects: objects.into_iter().flatten().collect(),
            next,
            skipped: Vec::new(),
            before: found.skipped,
        })
    }

    async fn list_page(
        &self,
        store: &dyn PaginatedListStore,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Names, ObjectError> {
        let prefix = if self.scope.prefix.is_root() {
            None
        } else {
            Some(format!("{}/", self.scope.prefix))
        };
        let offset = after.map(|after| format!("{}{after}", prefix.as_deref().unwrap_or_default()));
        let mut before = SkippedNames::default();
        let mut token = None;
        let mut most = limit;
        let mut last = after.map(str::to_owned);
        for _ in 0..MAX_EMPTY_REQUESTS {
            let options = PaginatedListOptions {
                offset: offset.clone(),
                max_keys: Some(most),
                page_token: token,
                ..PaginatedListOptions::default()
            };
            let listing = store.list_paginated(prefix.as_deref(), options);
            let (answer, removed) = with_removed_names(&self.scope.root, &self.room, listing).await?;
            let found = &answer.result.objects;
            if !self.ascend(last.as_deref(), found) {
                return self.list_unordered(after, limit).await;
            }
            last = found
                .last()
                .and_then(|meta| self.scope.key(&meta.location))
                .or(last);
            (token, most) = (answer.page_token, LARGEST_PAGE);
            let answer = ListPage {
                found: answer.result.objects,
                removed,
                more: token.is_some(),
            };
            let page = self.cut_to(answer, after, limit);
            if !page.objects.is_empty() || token.is_none() {
                return Ok(Names { before, ..page });
            }
            before.extend(ObjectPage::from(page).left_out);
        }
        Err(self.scope.root.failed(LISTING, no_progress_reason(before.count)))
    }

    /// Returns a page from the complete listing. Used if the store starts over for every page or does not
    /// list keys in byte order. A caller that received pages before the order was known must begin again,
    /// because keys may have been skipped.
    async fn list_unordered(&self, after: Option<&str>, limit: usize) -> Result<Names, ObjectError> {
        let (found, removed) = self.everything().await?;
        if found.len() > MAX_COMPLETE_LISTING {
            return Err(self.scope.root.failed(LISTING, no_progress_reason(0)));
        }
        let passed_over = !self.ascend(None, &found) && !self.unordered.swap(true, Ordering::Relaxed);
        if passed_over && after.is_some() {
            let reason = "keys are not listed in byte order; list from the start again";
            return Err(self.scope.root.failed(LISTING, reason));
        }
        let more = false;
        Ok(self.cut_to(ListPage { found, removed, more }, after, limit))
    }

    /// Returns true if the keys are in byte order and come after `last`.
    fn ascend(&self, last: Option<&str>, found: &[ObjectMeta]) -> bool {
        let mut last = last.map(str::to_owned);
        let mut keys = found.iter().filter_map(|meta| self.scope.key(&meta.location));
        keys.all(|key| {
            let ascends = last.as_ref().is_none_or(|last| *last < key);
            last = Some(key);
            ascends
        })
    }

    /// Lists up to [`MAX_COMPLETE_LISTING`] objects, plus an extra one to detect larger stores, and the
    /// invalid names.
    async fn everything(&self) -> Result<(Vec<ObjectMeta>, RemovedNames), ObjectError> {
        let prefix = (!self.scope.prefix.is_root()).then_some(&self.scope.prefix);
        let listing = self.store.list(prefix).take(MAX_COMPLETE_LISTING + 1);
        with_removed_names(&self.scope.root, &self.room, listing.try_collect()).await
    }

    async fn list_whole(&self, after: Option<&str>, limit: usize) -> Result<Names, ObjectError> {
        let everything = self.everything().await;
        let (found, removed) = everything.map_err(|error| match error {
            ObjectError::Store { root, reason, .. } | ObjectError::Unsupported { root, reason, .. } => {
                ObjectError::NoListing { root, reason }
            }
            error => error,
        })?;
        if found.len() > MAX_COMPLETE_LISTING {
            return Err(ObjectError::TooMany {
                folder: String::new(),
                root: self.scope.root.shown.clone(),
                limit: MAX_COMPLETE_LISTING,
            });
        }
        let more = false;
        Ok(self.cut_to(ListPage { found, removed, more }, after, limit))
    }

    /// Returns the first `limit` objects after `after` in key order. Objects whose names are not valid keys
    /// do not count, and are returned as skipped.
    fn cut_to(&self, answer: ListPage, after: Option<&str>, limit: usize) -> Names {
        let ListPage { found, removed, more } = answer;
        let mut odd: Vec<String> = removed
            .names
            .into_iter()
            .filter_map(|name| self.scope.below(&name).map(str::to_owned))
            .collect();
        let objects = found
            .into_iter()
            .filter_map(|meta| Some(self.listed(self.scope.key(&meta.location)?, meta)));
        let mut objects: Vec<ObjectInfo> = objects.collect();
        // Some stores restart the listing for each page.
        objects.retain(|object| after.is_none_or(|after| object.sample.key.as_str() > after));
        objects.sort_unstable_by(|left, right| left.sample.key.cmp(&right.sample.key));
        objects.retain(|object| {
            let fine = key::checked(&object.sample.key).is_ok();
            if !fine {
                odd.push(object.sample.key.clone());
            }
            fine
        });
        let more = more || objects.len() > limit;
        objects.truncate(limit);
        let next = objects
            .last()
            .filter(|_| more)
            .map(|last| last.sample.key.clone());
        // Names after the last object belong to the next page.
        odd.retain(|name| {
            after.is_none_or(|after| name.as_str() > after) && next.as_ref().is_none_or(|next| name < next)
        });
        odd.sort_unstable();
        Names {
            objects,
            next,
            skipped: odd,
            before: SkippedNames::default(),
        }
    }

    /// Returns the storage class of the object at `location` from the store's listing, if the store lists it.
    pub(super) async fn storage_class(&self, location: &Path) -> Option<String> {
        let Listing::Pages(store) = &self.listing else {
            return None;
        };
        let options = PaginatedListOptions {
            max_keys: Some(1),
            ..PaginatedListOptions::default()
        };
        // The key itself precedes all others with this prefix.
        let listing = store.list_paginated(Some(location.as_ref()), options);
        timeout(DEADLINE, first_storage_class(listing)).await.ok()?
    }

    /// Converts an object's metadata.
    pub(super) fn listed(&self, key: String, meta: ObjectMeta) -> ObjectInfo {
        let kind = self.scope.root.kind;
        let changed = (kind == Kind::Folder).then(|| changed(&meta)).flatten();
        ObjectInfo {
            sample: SampleRef {
                key,
                etag: meta.e_tag.map(|etag| kind.etag(&etag).into_owned()),
            },
            size: meta.size,
            label: None,
            changed,
        }
    }
}

/// Returns the reason why a listing made no progress: `left_out` consecutive invalid names, or the order of
/// the listing if `left_out` is 0.
fn no_progress_reason(left_out: u64) -> String {
    if left_out > 0 {
        format!(
            "{left_out} consecutive names are invalid keys (empty segments, '.', '..' or control characters); rename these objects"
        )
    } else {
        format!(
            "it starts over for every page instead of after the last key (S3's start-after, Azure's startFrom), or does not list keys in \
             byte order; listings of such a store are limited to {MAX_COMPLETE_LISTING} objects"
        )
    }
}
