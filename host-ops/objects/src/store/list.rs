//! Listing a root in pages.

use super::Store;
use crate::folder::{self, WalkError};
use crate::names::listed;
use crate::open::Listing;
use crate::{ObjectError, key};
use frostline_tensor::{LeftOut, ObjectInfo, ObjectPage, SampleRef};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use std::path::Path as FilePath;

/// Files of a page whose size and version are asked for at once; each is one system call on a thread of tokio's.
const HEADS_AT_ONCE: usize = 16;

/// What stands for the key in an error about a listing.
pub(crate) const LISTING: &str = "its listing";

/// The most objects of one page, S3's own limit for one request.
pub(super) const LARGEST_PAGE: usize = 1000;

/// The most objects a web server's listing may have: it comes whole, for every page anew, at some 500 bytes an object. So does that of
/// a store that starts over for every page.
const LARGEST_WHOLE: usize = 100_000;

/// Requests for one page that bring nothing to put on it: as many as a listing of [`LARGEST_WHOLE`] objects takes.
const FRUITLESS: usize = LARGEST_WHOLE / LARGEST_PAGE;

impl Store {
    /// Up to `limit` objects (1 to 1,000) with keys greater than `after`, ascending by the keys' bytes. A page may be shorter than
    /// asked for and still have a next one.
    ///
    /// # Errors
    /// [`ObjectError`]; [`ObjectError::TooMany`] for a folder with over a million entries, [`ObjectError::NoListing`] for a web server
    /// that does not list its files.
    pub async fn list(&self, after: Option<&str>, limit: usize) -> Result<ObjectPage, ObjectError> {
        let limit = limit.clamp(1, LARGEST_PAGE);
        let listing = async {
            match &self.listing {
                Listing::Folder(folder) => self.list_folder(folder, after, limit).await,
                Listing::Pages(store) => self.list_page(store.as_ref(), after, limit).await,
                Listing::Ordered => self.list_ordered(after, limit).await,
                Listing::Whole => self.list_whole(after, limit).await,
            }
        };
        self.in_time(LISTING, listing).await
    }

    async fn list_folder(
        &self,
        root: &FilePath,
        after: Option<&str>,
        limit: usize,
    ) -> Result<ObjectPage, ObjectError> {
        let (root, after) = (root.to_owned(), after.map(str::to_owned));
        let walk = tokio::task::spawn_blocking(move || folder::page(&root, after.as_deref(), limit));
        let found = walk.await.map_err(|error| self.failed(&error.to_string()))?;
        let found = found.map_err(|error| match error {
            WalkError::Io(error) => self.failed(&error.to_string()),
            WalkError::TooMany(folder) => ObjectError::TooMany {
                folder,
                root: self.root.clone(),
                limit: folder::MOST_ENTRIES,
            },
        })?;
        let next = if found.more {
            found.keys.last().cloned()
        } else {
            None
        };
        let heads = stream::iter(found.keys).map(|key| async move {
            match self.store.head(&key::checked(&key)?).await {
                Ok(meta) => Ok(Some(self.listed(key, meta))),
                // Removed since its folder was read.
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(self.error(&error, &key)),
            }
        });
        let objects: Vec<_> = heads.buffered(HEADS_AT_ONCE).try_collect().await?;
        Ok(ObjectPage {
            objects: objects.into_iter().flatten().collect(),
            next,
            left_out: found.left_out,
        })
    }

    async fn list_page(
        &self,
        store: &dyn PaginatedListStore,
        after: Option<&str>,
        limit: usize,
    ) -> Result<ObjectPage, ObjectError> {
        let prefix = if self.prefix.is_root() {
            None
        } else {
            Some(format!("{}/", self.prefix))
        };
        let offset = after.map(|after| format!("{}{after}", prefix.as_deref().unwrap_or_default()));
        let (mut left_out, mut token, mut most) = (LeftOut::default(), None, limit);
        for _ in 0..FRUITLESS {
            let options = PaginatedListOptions {
                offset: offset.clone(),
                max_keys: Some(most),
                page_token: token,
                ..PaginatedListOptions::default()
            };
            let (answer, cut) = listed(store.list_paginated(prefix.as_deref(), options)).await;
            let answer = answer.map_err(|error| self.error(&error, LISTING))?;
            (token, most) = (answer.page_token, LARGEST_PAGE);
            let mut page = self.page(answer.result.objects, cut, after, limit, token.is_some());
            left_out.extend(page.left_out);
            if !page.objects.is_empty() || token.is_none() {
                page.left_out = left_out;
                return Ok(page);
            }
        }
        Err(self.failed(&fruitless(left_out.count)))
    }

    async fn list_ordered(&self, after: Option<&str>, limit: usize) -> Result<ObjectPage, ObjectError> {
        let prefix = (!self.prefix.is_root()).then_some(&self.prefix);
        let listing = match after {
            None => self.store.list(prefix),
            Some(after) => self
                .store
                .list_with_offset(prefix, &self.location(&key::checked(after)?)),
        };
        let found: Vec<_> = listing
            .take(limit + 1)
            .try_collect()
            .await
            .map_err(|error| self.error(&error, LISTING))?;
        Ok(self.page(found, Vec::new(), after, limit, false))
    }

    async fn list_whole(&self, after: Option<&str>, limit: usize) -> Result<ObjectPage, ObjectError> {
        let prefix = (!self.prefix.is_root()).then_some(&self.prefix);
        let listing = self.store.list(prefix).take(LARGEST_WHOLE + 1);
        let (found, cut) = listed(listing.try_collect::<Vec<_>>()).await;
        let found = found.map_err(|error| match self.error(&error, LISTING) {
            ObjectError::Store { root, reason, .. } => ObjectError::NoListing { root, reason },
            error => error,
        })?;
        if found.len() > LARGEST_WHOLE {
            return Err(ObjectError::TooMany {
                folder: String::new(),
                root: self.root.clone(),
                limit: LARGEST_WHOLE,
            });
        }
        Ok(self.page(found, cut, after, limit, false))
    }

    /// The first `limit` of what a store listed that lie after `after`, less what is no key here; `cut` are names that were no keys to
    /// begin with. `more` says whether the store has more than it listed.
    fn page(
        &self,
        found: impl IntoIterator<Item = ObjectMeta>,
        cut: Vec<String>,
        after: Option<&str>,
        limit: usize,
        more: bool,
    ) -> ObjectPage {
        let new = |key: &str| after.is_none_or(|after| key > after);
        let below = |name: String| relative(&self.prefix, &name).map(str::to_owned);
        let mut odd: Vec<String> = cut.into_iter().filter_map(below).collect();
        let mut objects: Vec<ObjectInfo> = found.into_iter().filter_map(|meta| self.object(meta)).collect();
        // Some stores start a listing over for every page.
        objects.retain(|object| new(&object.sample.key));
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
        let mut left_out = LeftOut::default();
        // Those after the last object are met again with the next page.
        odd.retain(|name| new(name) && next.as_ref().is_none_or(|next| name < next));
        odd.sort_unstable();
        odd.iter().for_each(|name| left_out.add(name));
        ObjectPage {
            objects,
            next,
            left_out,
        }
    }

    fn object(&self, meta: ObjectMeta) -> Option<ObjectInfo> {
        let parts = meta.location.prefix_match(&self.prefix)?;
        let key = Path::from_iter(parts).to_string();
        Some(self.listed(key, meta))
    }

    /// The object of this key as the store knows it.
    pub(super) fn listed(&self, key: String, meta: ObjectMeta) -> ObjectInfo {
        let etag = meta.e_tag.map(|etag| self.etag(&etag).into_owned());
        ObjectInfo {
            sample: SampleRef { key, etag },
            size: meta.size,
            label: None,
        }
    }

    pub(super) fn failed(&self, reason: &str) -> ObjectError {
        ObjectError::Store {
            key: LISTING.to_owned(),
            root: self.root.clone(),
            reason: reason.to_owned(),
        }
    }
}

/// What a name in the store is below a root's prefix.
fn relative<'a>(prefix: &Path, name: &'a str) -> Option<&'a str> {
    if prefix.is_root() {
        return Some(name);
    }
    name.strip_prefix(prefix.as_ref())?.strip_prefix('/')
}

/// Why a listing does not move on.
fn fruitless(left_out: u64) -> String {
    if left_out > 0 {
        format!(
            "{left_out} names in a row are no keys here (they have empty segments, '.', '..' or control characters); rename them"
        )
    } else {
        format!(
            "it starts over for every page instead of after the last key (S3's start-after, Azure's startFrom); of such a store at most \
             {LARGEST_WHOLE} objects are listed"
        )
    }
}
