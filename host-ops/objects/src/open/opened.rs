//! What opening a root gives.

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
    /// What stands before every key.
    pub(crate) prefix: Path,
    pub(crate) kind: Kind,
    pub(crate) credentials: Credentials,
}

impl Opened {
    /// A store across a network that is asked for pages of keys.
    pub(super) fn paged(
        store: impl ObjectStore + PaginatedListStore,
        prefix: Path,
        kind: Kind,
        credentials: Credentials,
    ) -> Self {
        let store = Arc::new(store);
        Self {
            store: Arc::clone(&store) as _,
            listing: Listing::Pages(store),
            prefix,
            kind,
            credentials,
        }
    }
}

/// How a page of keys is found.
#[derive(Clone)]
pub(crate) enum Listing {
    /// By walking the folder in the order of keys.
    Folder(LocalFolder),
    /// By asking the store for a page.
    Pages(Arc<dyn PaginatedListStore>),
    /// By reading the store's listing, which is in order.
    Ordered,
    /// By reading all of a web server's listing, which has neither pages nor an order.
    Whole,
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Folder(_) => "Folder",
            Self::Pages(_) => "Pages",
            Self::Ordered => "Ordered",
            Self::Whole => "Whole",
        })
    }
}
