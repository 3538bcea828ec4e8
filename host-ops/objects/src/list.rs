//! Listing a root in pages.

use crate::folder::{self, SkippedEntry, WalkError};
use crate::local::LocalFolder;
use crate::names::listed;
use crate::open::Listing;
use crate::root::{DEADLINE, LISTING};
use crate::scope::Scope;
use crate::{ObjectError, key};
use frostline_tensor::{LeftOut, ObjectInfo, ObjectPage, SampleRef};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::spawn_blocking;

/// Files of a page whose size and version are asked for at once; each is one system call on a thread of tokio's.
const HEADS_AT_ONCE: usize = 16;

/// The most objects of one page, S3's own limit for one request.
pub(crate) const LARGEST_PAGE: usize = 1000;

/// The most objects a web server's listing may have: it comes whole, for every page anew, at some 500 bytes an object. So does that of
/// a store that starts over for every page, or lists keys in another order than that of their bytes.
const LARGEST_WHOLE: usize = 100_000;

/// Requests for one page that bring nothing to put on it: as many as a listing of [`LARGEST_WHOLE`] objects takes.
const FRUITLESS: usize = LARGEST_WHOLE / LARGEST_PAGE;

/// A page of objects, and by their names what is none.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) objects: Vec<ObjectInfo>,
    pub(crate) next: Option<String>,
    /// What is left out up to `next`, ascending.
    pub(crate) odd: Vec<SkippedEntry>,
    /// Others, before all objects.
    pub(crate) before: LeftOut,
}

impl From<Names> for ObjectPage {
    fn from(names: Names) -> Self {
        let mut left_out = names.before;
        names.odd.iter().for_each(|odd| odd.count_into(&mut left_out));
        Self {
            objects: names.objects,
            next: names.next,
            left_out,
        }
    }
}

/// What a store answered to a request for a listing.
struct Answer {
    found: Vec<ObjectMeta>,
    /// Names that were no keys to begin with.
    cut: Vec<String>,
    /// Whether the store has more than it listed.
    more: bool,
}

/// Lists the objects of a root.
#[derive(Debug, Clone)]
pub(crate) struct Lister {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) scope: Scope,
    pub(crate) listing: Listing,
    /// Whether the store was found to list keys in another order than that of their bytes.
    pub(crate) unordered: Arc<AtomicBool>,
}

impl Lister {
    /// See [`Store::list`](crate::Store::list).
    pub(crate) async fn page(&self, after: Option<&str>, limit: usize) -> Result<Names, ObjectError> {
        let page = self.page_within(DEADLINE, after, limit).await;
        page.map_err(|error| self.scope.root.on_fault.shown(error))
    }

    /// Whether the root answers within `deadline`: its listing begins, or the folder is there. A web server lists all or nothing, and is
    /// not asked.
    pub(crate) async fn probe(&self, deadline: Duration) -> Result<(), ObjectError> {
        match &self.listing {
            Listing::Whole => Ok(()),
            Listing::Folder(folder) => {
                let (folder, prefix) = (folder.clone(), self.scope.prefix.clone());
                let there = spawn_blocking(move || folder.has_folder(prefix.as_ref()));
                let root = &self.scope.root;
                let there = async {
                    match there.await {
                        Ok(true) => Ok(()),
                        _ => Err(root.missing()),
                    }
                };
                root.observed(deadline, LISTING, there).await
            }
            Listing::Pages(_) | Listing::Ordered => self.page_within(deadline, None, 1).await.map(drop),
        }
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
                Listing::Ordered => self.list_ordered(after, limit).await,
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
        let (folder, prefix) = (folder.clone(), self.scope.prefix.clone());
        let after = after.map(str::to_owned);
        let walk = spawn_blocking(move || folder::page(&folder, &prefix, after.as_deref(), limit));
        let found = walk
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
            match self.store.head(&self.scope.checked(&key)?).await {
                Ok(meta) => Ok(Some(self.listed(key, meta))),
                // Removed since its folder was read.
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(self.scope.root.explain(&error, &key)),
            }
        });
        let objects: Vec<_> = heads.buffered(HEADS_AT_ONCE).try_collect().await?;
        Ok(Names {
            objects: objects.into_iter().flatten().collect(),
            next,
            odd: found.odd,
            before: LeftOut::default(),
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
        let (mut before, mut token, mut most) = (LeftOut::default(), None, limit);
        let mut last = after.map(str::to_owned);
        for _ in 0..FRUITLESS {
            let options = PaginatedListOptions {
                offset: offset.clone(),
                max_keys: Some(most),
                page_token: token,
                ..PaginatedListOptions::default()
            };
            let (answer, cut) = listed(store.list_paginated(prefix.as_deref(), options)).await;
            let answer = answer.map_err(|error| self.scope.root.explain(&error, LISTING))?;
            let found = &answer.result.objects;
            if !self.ascend(last.as_deref(), found) {
                return self.list_unordered(after, limit).await;
            }
            last = found
                .last()
                .and_then(|meta| self.scope.key(&meta.location))
                .or(last);
            (token, most) = (answer.page_token, LARGEST_PAGE);
            let answer = Answer {
                found: answer.result.objects,
                cut,
                more: token.is_some(),
            };
            let page = self.cut_to(answer, after, limit);
            if !page.objects.is_empty() || token.is_none() {
                return Ok(Names { before, ..page });
            }
            before.extend(ObjectPage::from(page).left_out);
        }
        Err(self.scope.root.failed(LISTING, fruitless(before.count)))
    }

    async fn list_ordered(&self, after: Option<&str>, limit: usize) -> Result<Names, ObjectError> {
        let prefix = (!self.scope.prefix.is_root()).then_some(&self.scope.prefix);
        let listing = match after {
            None => self.store.list(prefix),
            Some(after) => self
                .store
                .list_with_offset(prefix, &self.scope.location(&key::checked(after)?)),
        };
        let found: Vec<_> = listing
            .take(limit + 1)
            .try_collect()
            .await
            .map_err(|error| self.scope.root.explain(&error, LISTING))?;
        let answer = Answer {
            found,
            cut: Vec::new(),
            more: false,
        };
        Ok(self.cut_to(answer, after, limit))
    }

    /// A page out of all that is there, of a store that starts over for every page, or whose keys come in another order than that of their
    /// bytes. Who was given a page before that was known has to begin again: keys may have been passed over.
    async fn list_unordered(&self, after: Option<&str>, limit: usize) -> Result<Names, ObjectError> {
        let (found, cut) = self.everything().await;
        let found = found.map_err(|error| self.scope.root.explain(&error, LISTING))?;
        if found.len() > LARGEST_WHOLE {
            return Err(self.scope.root.failed(LISTING, fruitless(0)));
        }
        let passed_over = !self.ascend(None, &found) && !self.unordered.swap(true, Ordering::Relaxed);
        if passed_over && after.is_some() {
            let reason =
                "it lists keys in another order than that of their bytes; list it from the start again";
            return Err(self.scope.root.failed(LISTING, reason));
        }
        let more = false;
        Ok(self.cut_to(Answer { found, cut, more }, after, limit))
    }

    /// Whether keys come in the order of their bytes, after `last`.
    fn ascend(&self, last: Option<&str>, found: &[ObjectMeta]) -> bool {
        let mut last = last.map(str::to_owned);
        let mut keys = found.iter().filter_map(|meta| self.scope.key(&meta.location));
        keys.all(|key| {
            let ascends = last.as_ref().is_none_or(|last| *last < key);
            last = Some(key);
            ascends
        })
    }

    /// All that the store lists, up to one more than may be, and names that are no keys.
    async fn everything(&self) -> (object_store::Result<Vec<ObjectMeta>>, Vec<String>) {
        let prefix = (!self.scope.prefix.is_root()).then_some(&self.scope.prefix);
        listed(self.store.list(prefix).take(LARGEST_WHOLE + 1).try_collect()).await
    }

    async fn list_whole(&self, after: Option<&str>, limit: usize) -> Result<Names, ObjectError> {
        let (found, cut) = self.everything().await;
        let found = found.map_err(|error| match self.scope.root.explain(&error, LISTING) {
            ObjectError::Store { root, reason, .. } | ObjectError::Unsupported { root, reason, .. } => {
                ObjectError::NoListing { root, reason }
            }
            error => error,
        })?;
        if found.len() > LARGEST_WHOLE {
            return Err(ObjectError::TooMany {
                folder: String::new(),
                root: self.scope.root.shown.clone(),
                limit: LARGEST_WHOLE,
            });
        }
        let more = false;
        Ok(self.cut_to(Answer { found, cut, more }, after, limit))
    }

    /// The first `limit` of what a store listed that lie after `after`, less what is no key here.
    fn cut_to(&self, answer: Answer, after: Option<&str>, limit: usize) -> Names {
        let Answer { found, cut, more } = answer;
        let new = |key: &str| after.is_none_or(|after| key > after);
        let below = |name: String| self.scope.below(&name).map(str::to_owned);
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
        // Those after the last object are met again with the next page.
        odd.retain(|name| new(name) && next.as_ref().is_none_or(|next| name < next));
        odd.sort_unstable();
        Names {
            objects,
            next,
            odd: odd.into_iter().map(SkippedEntry::name).collect(),
            before: LeftOut::default(),
        }
    }

    fn object(&self, meta: ObjectMeta) -> Option<ObjectInfo> {
        Some(self.listed(self.scope.key(&meta.location)?, meta))
    }

    /// The object of this key as the store knows it.
    pub(crate) fn listed(&self, key: String, meta: ObjectMeta) -> ObjectInfo {
        let etag = |etag: String| self.scope.root.kind.etag(&etag).into_owned();
        ObjectInfo {
            sample: SampleRef {
                key,
                etag: meta.e_tag.map(etag),
            },
            size: meta.size,
            label: None,
        }
    }
}

/// Why a listing does not move on.
fn fruitless(left_out: u64) -> String {
    if left_out > 0 {
        format!(
            "{left_out} names in a row are no keys here (they have empty segments, '.', '..' or control characters); rename them"
        )
    } else {
        format!(
            "it starts over for every page instead of after the last key (S3's start-after, Azure's startFrom), or lists keys in another \
             order than that of their bytes; of such a store at most {LARGEST_WHOLE} objects are listed"
        )
    }
}
