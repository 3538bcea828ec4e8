//! Listing a root in pages.

use super::{Object, Page, Store};
use crate::folder::{self, WalkError};
use crate::open::Listing;
use crate::{ObjectError, key};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use std::path::Path as FilePath;

/// Files of a page whose size and version are asked for at once; each is one system call on a thread of tokio's.
const HEADS_AT_ONCE: usize = 16;

/// What stands for the key in an error about a listing.
pub(super) const LISTING: &str = "its listing";

/// The most objects of one page, S3's own limit for one request.
pub(super) const LARGEST_PAGE: usize = 1000;

/// The most objects a web server's listing may have: it comes whole, for every page anew, at some 500 bytes an object.
const LARGEST_WHOLE: usize = 100_000;

impl Store {
    /// Up to `limit` objects (1 to 1,000) with keys greater than `after`, ascending by the keys' bytes. A page may be shorter than
    /// asked for and still have a next one.
    ///
    /// # Errors
    /// [`ObjectError`]; [`ObjectError::TooMany`] for a folder with over a million entries, [`ObjectError::NoListing`] for a web server
    /// that does not list its files.
    pub async fn list(&self, after: Option<&str>, limit: usize) -> Result<Page, ObjectError> {
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
    ) -> Result<Page, ObjectError> {
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
                Ok(meta) => Ok(Some(Object {
                    key,
                    size: meta.size,
                    etag: meta.e_tag,
                    label: None,
                })),
                // Removed since its folder was read.
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(self.error(&error, &key)),
            }
        });
        let objects: Vec<_> = heads.buffered(HEADS_AT_ONCE).try_collect().await?;
        Ok(Page {
            objects: objects.into_iter().flatten().collect(),
            next,
        })
    }

    async fn list_page(
        &self,
        store: &dyn PaginatedListStore,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page, ObjectError> {
        let prefix = if self.prefix.is_root() {
            None
        } else {
            Some(format!("{}/", self.prefix))
        };
        let offset = after.map(|after| format!("{}{after}", prefix.as_deref().unwrap_or_default()));
        let options = PaginatedListOptions {
            offset,
            max_keys: Some(limit),
            ..PaginatedListOptions::default()
        };
        let page = store.list_paginated(prefix.as_deref(), options).await;
        let page = page.map_err(|error| self.error(&error, LISTING))?;
        Ok(self.page(page.result.objects, page.page_token.is_some()))
    }

    async fn list_ordered(&self, after: Option<&str>, limit: usize) -> Result<Page, ObjectError> {
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
        let more = found.len() > limit;
        Ok(self.page(found.into_iter().take(limit), more))
    }

    async fn list_whole(&self, after: Option<&str>, limit: usize) -> Result<Page, ObjectError> {
        let prefix = (!self.prefix.is_root()).then_some(&self.prefix);
        let listing = self.store.list(prefix).take(LARGEST_WHOLE + 1);
        let found: Vec<_> =
            listing
                .try_collect()
                .await
                .map_err(|error| match self.error(&error, LISTING) {
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
        let mut objects = self.page(found, false).objects;
        objects.retain(|object| after.is_none_or(|after| object.key.as_str() > after));
        objects.sort_unstable_by(|left, right| left.key.cmp(&right.key));
        Ok(Page { objects, next: None }.cut(limit))
    }

    /// A page of what a store listed, less what is no key here.
    fn page(&self, found: impl IntoIterator<Item = ObjectMeta>, more: bool) -> Page {
        let listed: Vec<Object> = found.into_iter().filter_map(|meta| self.object(meta)).collect();
        let next = if more {
            listed.last().map(|object| object.key.clone())
        } else {
            None
        };
        Page {
            objects: listed
                .into_iter()
                .filter(|object| key::checked(&object.key).is_ok())
                .collect(),
            next,
        }
    }

    fn object(&self, meta: ObjectMeta) -> Option<Object> {
        let parts = meta.location.prefix_match(&self.prefix)?;
        let key = Path::from_iter(parts).to_string();
        Some(Object {
            key,
            size: meta.size,
            etag: meta.e_tag.map(|etag| self.etag(&etag).into_owned()),
            label: None,
        })
    }

    pub(super) fn failed(&self, reason: &str) -> ObjectError {
        ObjectError::Store {
            key: LISTING.to_owned(),
            root: self.root.clone(),
            reason: reason.to_owned(),
        }
    }
}
