//! Object locations in the store.

use crate::root::Root;
use crate::{ObjectError, key};
use object_store::path::Path;
use std::sync::Arc;

/// Part of the store below the root. Keys cannot leave it.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) root: Arc<Root>,
    /// Prefix of every key in the store.
    pub(crate) prefix: Path,
}

impl Scope {
    /// Validates a key and returns the location of the object in the store.
    pub(crate) fn checked(&self, key: &str) -> Result<Path, ObjectError> {
        let path = key::checked(key)?;
        Ok(self.prefix.parts().chain(path.parts()).collect())
    }

    /// Returns the scope of a folder within this one.
    pub(crate) fn below_folder(&self, folder: &str) -> Result<Self, ObjectError> {
        let root = Root {
            shown: format!("{}/{folder}", self.root.shown.trim_end_matches('/')),
            ..(*self.root).clone()
        };
        Ok(Self {
            prefix: self.checked(folder)?,
            root: Arc::new(root),
        })
    }

    /// Returns the key of the object at `location`, or `None` if the location is outside of the root.
    pub(crate) fn key(&self, location: &Path) -> Option<String> {
        Some(Path::from_iter(location.prefix_match(&self.prefix)?).to_string())
    }

    /// Returns a name in the store relative to the root, or `None` if it is outside of the root. Unlike a
    /// location, the name may be an invalid path.
    pub(crate) fn below<'a>(&self, name: &'a str) -> Option<&'a str> {
        if self.prefix.is_root() {
            return Some(name);
        }
        name.strip_prefix(self.prefix.as_ref())?.strip_prefix('/')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{Credentials, Kind};

    fn scope(prefix: &str) -> Scope {
        Scope {
            root: Arc::new(Root {
                shown: "photos".to_owned(),
                kind: Kind::Folder,
                credentials: Credentials::Given,
                on_fault: Default::default(),
            }),
            prefix: prefix.into(),
        }
    }

    #[test]
    fn keys_and_locations_are_told_from_each_other() {
        let scope = scope("set/one");
        let location = scope.checked("a/b.jpg").unwrap();
        assert_eq!(location.as_ref(), "set/one/a/b.jpg");
        assert_eq!(scope.key(&location).as_deref(), Some("a/b.jpg"));
        assert_eq!(scope.key(&"set/other/a".into()), None);
        assert_eq!(scope.below("set/one//b.jpg"), Some("/b.jpg"));
        assert_eq!(scope.below("set/one2/b.jpg"), None);
        assert!(scope.checked("../two/a.jpg").is_err());
    }
}
