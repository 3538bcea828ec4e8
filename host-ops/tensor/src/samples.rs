//! Samples by name, and listings of them.

use serde::{Deserialize, Serialize};

/// Names a listing left out that are repeated: enough to know them by.
const MOST_NAMES: usize = 5;

/// The longest part of such a name that is repeated.
const LONGEST_NAME: usize = 120;

/// An object, and the version of it that is meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SampleRef {
    /// The object's key, relative to the data root.
    pub key: String,
    /// The etag it had when it was listed; a read of another version fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
}

impl SampleRef {
    /// The object of this key, whatever its version.
    pub fn new(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            etag: None,
        }
    }
}

/// One object of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "FlatObject")]
pub struct ObjectInfo {
    /// Its key and version.
    #[serde(flatten)]
    pub sample: SampleRef,
    /// Its size in bytes.
    pub size: u64,
    /// Its class, where a shard says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// An object as it is read: serde's `flatten` would read every object twice.
#[derive(Deserialize)]
struct FlatObject {
    key: String,
    size: u64,
    etag: Option<String>,
    label: Option<String>,
}

impl From<FlatObject> for ObjectInfo {
    fn from(
        FlatObject {
            key,
            size,
            etag,
            label,
        }: FlatObject,
    ) -> Self {
        let sample = SampleRef { key, etag };
        Self { sample, size, label }
    }
}

/// How samples lie under a data root.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    Serialize,
    Deserialize,
    strum::AsRefStr,
    strum::EnumString,
    strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Layout {
    /// Found out from the root's first keys.
    #[default]
    Auto,
    /// Every object is a sample.
    Objects,
    /// Samples lie inside tar archives.
    Shards,
}

/// What listings are ascending by: an object's key; for a sample inside a shard (`train-000.tar//00012.jpg`) first the shard's, then
/// the sample's name there.
pub fn listing_order(key: &str) -> (&str, &str) {
    key.split_once("//").unwrap_or((key, ""))
}

/// A page of a listing, ascending by [`listing_order`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectPage {
    /// The objects.
    pub objects: Vec<ObjectInfo>,
    /// Pass as `after` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// What was passed over up to `next`; absent where nothing was.
    #[serde(default, skip_serializing_if = "LeftOut::is_empty")]
    pub left_out: LeftOut,
}

/// Names in a store that are no keys: with an empty segment, `.`, `..`, a control character, bytes that are not UTF-8 or more than 1,024
/// bytes; links that lead nowhere; images of such names in a shard; and files in a folder whose name ends in `#` and digits, as a file
/// does while it is written. And links that lead out of the root.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// How many names.
    pub count: u64,
    /// The first five, escaped and shortened.
    pub names: Vec<String>,
    /// Links that lead out of the root. An older host counts them among the names.
    #[serde(default, skip_serializing_if = "OutwardLinks::is_empty")]
    pub links: OutwardLinks,
}

/// Links in a folder that lead out of the data root, so that a host does not follow them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutwardLinks {
    /// How many.
    pub count: u64,
    /// The first and where it leads, `key -> path`, escaped and shortened.
    pub first: String,
}

impl OutwardLinks {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Counts one more; `target` is what it says.
    pub fn add(&mut self, key: &str, target: &str) {
        if self.is_empty() {
            self.first = format!("{} -> {}", shown(key), shown(target));
        }
        self.count += 1;
    }

    /// Counts those of a later page.
    pub fn extend(&mut self, later: Self) {
        if self.is_empty() {
            self.first = later.first;
        }
        self.count = self.count.saturating_add(later.count);
    }
}

/// What it is, and what to do: `412 links lead out of it (first: train/cat/1.jpg -> /cache/ab/12): ...`.
impl std::fmt::Display for OutwardLinks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { count, first } = self;
        let lead = if *count == 1 { "link leads" } else { "links lead" };
        write!(
            f,
            "{count} {lead} out of the data root (first: {first}): pass --follow-links with a folder above that holds both, have a host \
             grant that folder, or copy the data with `cp -rL`"
        )
    }
}

/// The beginning of a name that may hold anything, escaped.
fn shown(name: &str) -> String {
    let shown = name.chars().take(LONGEST_NAME).flat_map(char::escape_debug);
    shown.collect()
}

impl LeftOut {
    /// Whether nothing was.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.links.is_empty()
    }

    /// Counts one more, whose name may hold anything.
    pub fn add(&mut self, name: &str) {
        self.count += 1;
        if self.names.len() < MOST_NAMES {
            self.names.push(shown(name));
        }
    }

    /// Counts those of a later page.
    pub fn extend(&mut self, later: Self) {
        self.count = self.count.saturating_add(later.count);
        let room = MOST_NAMES.saturating_sub(self.names.len());
        self.names.extend(later.names.into_iter().take(room));
        self.links.extend(later.links);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_escaped_and_not_all_of_them() {
        let mut left_out = LeftOut::default();
        for number in 0..9 {
            left_out.add(&format!("{number}\n\u{1b}[31m{}", "x".repeat(500)));
        }
        let mut both = left_out.clone();
        both.extend(left_out);
        assert_eq!((both.count, both.names.len()), (18, MOST_NAMES));
        assert!(both.names[0].starts_with("0\\n\\u{1b}") && both.names[0].len() < 200);
    }

    #[test]
    fn links_are_counted_apart_and_the_first_says_where_it_leads() {
        let mut left_out = LeftOut::default();
        left_out.links.add("train/cat/1.jpg", "/cache/ab/12");
        left_out.links.add("train/cat/2.jpg", "/cache/cd/34");
        let mut both = LeftOut::default();
        both.extend(left_out);
        assert!(!both.is_empty() && both.count == 0);
        let said = both.links.to_string();
        assert!(
            said.starts_with("2 links lead out of the data root (first: train/cat/1.jpg -> /cache/ab/12): pass --follow-links "),
            "{said}"
        );
        let mut odd = OutwardLinks::default();
        odd.add("a", "b\n\u{1b}[31m");
        assert!(
            odd.to_string()
                .starts_with("1 link leads out of the data root (first: a -> b\\n\\u{1b}[31m)"),
            "{odd}"
        );
    }

    #[test]
    fn hosts_that_count_links_among_the_names_are_understood() {
        let older: LeftOut = serde_json::from_str(r#"{"count":1,"names":["out.jpg"]}"#).unwrap();
        assert!(older.links.is_empty());
        let text = serde_json::to_string(&older).unwrap();
        assert_eq!(text, r#"{"count":1,"names":["out.jpg"]}"#);
    }
}
