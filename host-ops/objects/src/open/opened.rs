//! Result of opening a root.

use crate::dates::AnswerDates;
use crate::kind::{Credentials, Kind};
use crate::local::LocalFolder;
use object_store::ObjectStore;
use object_store::list::PaginatedListStore;
use object_store::path::Path;
use std::fmt;
use std::sync::Arc;

/// An opened root.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) listing: Listing,
    /// Prefix of every key.
    pub(crate) prefix: Path,
    pub(crate) kind: Kind,
    pub(crate) credentials: Credentials,
    /// Clock of a remote store. Stays empty for other stores.
    pub(crate) dates: AnswerDates,
}

impl Opened {
    /// Creates a remote store that lists keys in pages.
    pub(super) fn paged(
        store: impl ObjectStore + PaginatedListStore,
        prefix: Path,
        kind: Kind,
        credentials: Credentials,
        dates: AnswerDates,
    ) -> Self {
        let store = Arc::new(store);
        Self {
            store: Arc::clone(&store) as _,
            listing: Listing::Pages(store),
            prefix,
            kind,
            credentials,
            dates,
        }
    }
}

/// Method of listing a page of keys.
#[derive(Clone)]
pub(crate) enum Listing {
    /// Walks the folder in key order.
    Folder(LocalFolder),
    /// Requests a page from the store.
    Pages(Arc<dyn PaginatedListStore>),
    /// Reads the complete listing of a web server, which has no pages and is not ordered, or of a store in memory.
    Whole,
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listing")
    }
}
