//! A store of rows, and what it is called where other machines find it.

use frostline_features::{Row, Store, Subject};

/// Kept rows and the name that they have on every machine.
pub(crate) struct NamedStore {
    pub(crate) store: Store,
    pub(crate) name: String,
    /// What people may read of it elsewhere.
    pub(crate) about: Vec<u8>,
}

impl NamedStore {
    pub(crate) fn new(store: Store, subject: &Subject, row: &Row) -> Self {
        Self {
            store,
            name: subject.name(row),
            about: subject.shown(row),
        }
    }
}
