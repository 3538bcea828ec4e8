//! Where the objects of a root lie in its store.

use crate::root::{LISTING, Root};
use crate::{ObjectError, folder, key};
use object_store::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

/// The part of a store that a root is: no key leads out of it.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) root: Arc<Root>,
    /// What stands before every key.
    pub(crate) prefix: Path,
    /// The folder (canonical), where it is one: there links may lead elsewhere.
    pub(crate) folder: Option<PathBuf>,
}

impl Scope {
    /// Where the object lies; refused unless it lies below the root once links are followed.
    pub(crate) async fn checked(&self, key: &str) -> Result<Path, ObjectError> {
        let path = key::checked(key)?;
        if !self.stays_inside(key).await? {
            return Err(ObjectError::Key {
                key: key.to_owned(),
                reason: "it is a link that leads out of the data root",
            });
        }
        Ok(self.location(&path))
    }

    async fn stays_inside(&self, key: &str) -> Result<bool, ObjectError> {
        let Some(folder) = self.folder.clone() else {
            return Ok(true);
        };
        let key = key.to_owned();
        let held = tokio::task::spawn_blocking(move || folder::holds(&folder, &key)).await;
        held.map_err(|error| self.root.failed(LISTING, error))
    }

    /// Where a key that was checked lies.
    pub(crate) fn location(&self, path: &Path) -> Path {
        self.prefix.parts().chain(path.parts()).collect()
    }

    /// The key of what lies at `location`; none outside of the root.
    pub(crate) fn key(&self, location: &Path) -> Option<String> {
        Some(Path::from_iter(location.prefix_match(&self.prefix)?).to_string())
    }

    /// What a name in the store is below the root; unlike a location it may be no path at all.
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

    fn scope(prefix: &str, folder: Option<PathBuf>) -> Scope {
        Scope {
            root: Arc::new(Root {
                shown: "photos".to_owned(),
                kind: Kind::Folder,
                credentials: Credentials::Given,
            }),
            prefix: prefix.into(),
            folder,
        }
    }

    #[tokio::test]
    async fn keys_and_locations_are_told_from_each_other() {
        let scope = scope("set/one", None);
        let location = scope.checked("a/b.jpg").await.unwrap();
        assert_eq!(location.as_ref(), "set/one/a/b.jpg");
        assert_eq!(scope.key(&location).as_deref(), Some("a/b.jpg"));
        assert_eq!(scope.key(&"set/other/a".into()), None);
        assert_eq!(scope.below("set/one//b.jpg"), Some("/b.jpg"));
        assert_eq!(scope.below("set/one2/b.jpg"), None);
        assert!(scope.checked("../two/a.jpg").await.is_err());
    }

    #[tokio::test]
    async fn a_link_out_of_the_folder_is_refused() {
        let outside = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join("out")).unwrap();
        let scope = scope("", Some(folder.path().canonicalize().unwrap()));
        assert!(matches!(
            scope.checked("out/a.jpg").await,
            Err(ObjectError::Key { .. })
        ));
        scope.checked("in/a.jpg").await.unwrap();
    }
}
