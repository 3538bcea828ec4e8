//! Folders inside the folder of a class.

use super::Listing;
use frostline_wire::listing_order;
use std::collections::BTreeSet;

/// Folders of a class that may be the actual parts or classes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subfolders {
    /// Folder that contains all samples of the class.
    pub folder: String,
    /// Names of two or more folders in it, in ascending order.
    pub names: Vec<String>,
}

impl Subfolders {
    /// Finds the subfolders with the samples of a class.
    pub(super) fn find(listing: &Listing, samples: &[u32]) -> Option<Self> {
        let objects = samples.iter().filter_map(|object| listing.get(*object));
        let keys = objects.map(|object| listing_order(object.key));
        let folders: Option<Vec<&str>> = keys
            .map(|(key, in_shard)| Some(key.rsplit_once('/')?.0).filter(|_| in_shard.is_empty()))
            .collect();
        let folders: BTreeSet<&str> = folders?.into_iter().collect();
        let first = folders.first()?;
        let last = folders.last()?;
        // The folders are sorted, so the first and the last have the shortest common prefix.
        let shared = first
            .split('/')
            .zip(last.split('/'))
            .take_while(|(left, right)| left == right);
        let shared: Vec<&str> = shared.map(|(segment, _)| segment).collect();
        let names: BTreeSet<String> = folders
            .iter()
            .filter_map(|folder| folder.split('/').nth(shared.len()).map(str::to_owned))
            .collect();
        (names.len() > 1).then(|| Self {
            folder: shared.join("/"),
            names: names.into_iter().collect(),
        })
    }

    pub(super) fn advice(&self, root: &str) -> String {
        const SHOWN: usize = 4;
        let shown: Vec<&str> = self.names.iter().take(SHOWN).map(String::as_str).collect();
        let more = if self.names.len() > SHOWN { ", .." } else { "" };
        format!(
            "; use '{}' as the data root, which contains the folders {}{more}",
            below(root, &self.folder),
            shown.join(", ")
        )
    }
}

/// Returns the data root that is the folder `folder` in `root`.
pub(super) fn below(root: &str, folder: &str) -> String {
    format!("{}/{folder}", root.trim_end_matches('/'))
}
