//! Local folders, as paths or `file://`.

use super::address::refused;
use super::opened::{Listing, Opened};
use crate::ObjectError;
use crate::dates::AnswerDates;
use crate::kind::{Credentials, Kind};
use crate::local::LocalFolder;
use object_store::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

pub(super) fn open(root: &str, folder: PathBuf) -> Result<Opened, ObjectError> {
    let folder = folder.canonicalize().map_err(|_| ObjectError::NoSuchRoot {
        root: root.to_owned(),
        advice: Kind::Folder.address_advice(),
    })?;
    if !folder.is_dir() {
        return Err(refused(
            root,
            "it is a file; name the folder that contains the images",
        ));
    }
    let folder = LocalFolder::new(folder);
    Ok(Opened {
        store: Arc::new(folder.clone()),
        listing: Listing::Folder(folder),
        prefix: Path::default(),
        kind: Kind::Folder,
        credentials: Credentials::Given,
        dates: AnswerDates::default(),
    })
}
