//! Sample references and listings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Number of skipped names that are listed as examples.
const MOST_NAMES: usize = 5;

/// Length in characters to which skipped names are truncated.
const LONGEST_NAME: usize = 120;

/// Reference to one version of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct SampleRef {
    /// The object's key, relative to the data root.
    pub key: String,
    /// Etag from the listing. Reads of other versions fail. `None` allows any version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
}

impl SampleRef {
    /// Returns a reference to any version of the object `key`.
    pub fn new(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            etag: None,
        }
    }
}

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "FlatObject")]
pub struct ObjectInfo {
    /// Key and version.
    #[serde(flatten)]
    pub sample: SampleRef,
    /// Size in bytes.
    pub size: u64,
    /// Class of the sample. Only set if the shard contains labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Last change of the file (ctime) in nanoseconds since the Unix epoch. Only set for files in a folder, whose
    /// version (size and modification time) programs can keep while they replace the content. Not part of the
    /// version, because copies of a file have different times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<u64>,
}

/// Form in which an object is deserialized. Serde's `flatten` would buffer every object and parse it twice.
#[derive(Deserialize, JsonSchema)]
struct FlatObject {
    key: String,
    size: u64,
    etag: Option<String>,
    label: Option<String>,
    changed: Option<u64>,
}

impl From<FlatObject> for ObjectInfo {
    fn from(
        FlatObject {
            key,
            size,
            etag,
            label,
            changed,
        }: FlatObject,
    ) -> Self {
        let sample = SampleRef { key, etag };
        Self {
            sample,
            size,
            label,
            changed,
        }
    }
}

/// Storage layout of samples under a data root.
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
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Layout {
    /// Detected from the first keys in the root.
    #[default]
    Auto,
    /// Every object is a sample.
    Objects,
    /// Samples are members of tar archives.
    Shards,
}

/// Returns the sort key of listings. For an object it is the key; for a sample in a shard
/// (`train-000.tar//00012.jpg`) it is the key of the shard, then the name within the shard.
pub fn listing_order(key: &str) -> (&str, &str) {
    key.split_once("//").unwrap_or((key, ""))
}

/// Page of a listing, sorted by [`listing_order`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectPage {
    /// The objects.
    pub objects: Vec<ObjectInfo>,
    /// Pass as `after` to request the next page. `None` if this is the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Names and links skipped up to `next`.
    pub left_out: SkippedNames,
}

/// Invalid names in a store and links that hosts do not follow.
///
/// A name is skipped if it contains an empty segment, `.`, `..`, a control character or invalid UTF-8, or
/// exceeds 1,024 bytes. This includes images inside of shards. In a folder, dangling links are skipped as
/// well, and files with names ending in `#` and digits, which are still being written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkippedNames {
    /// Number of skipped names.
    pub count: u64,
    /// The first five names, escaped and truncated to 120 characters.
    pub names: Vec<String>,
    /// Links out of the root, which `count` does not include.
    pub links: OutwardLinks,
}

/// Links in a folder that point out of the data root. Hosts do not follow these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutwardLinks {
    /// Number of links.
    pub count: u64,
    /// First link with its target (`key -> path`), escaped and truncated.
    pub first: String,
}

impl OutwardLinks {
    /// Returns true if no links were skipped.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds the link `key` to `target`.
    pub fn add(&mut self, key: &str, target: &str) {
        if self.is_empty() {
            self.first = format!("{} -> {}", escape_name(key), escape_name(target));
        }
        self.count += 1;
    }

    /// Adds the links of a later page.
    pub fn extend(&mut self, later: Self) {
        if self.is_empty() {
            self.first = later.first;
        }
        self.count = self.count.saturating_add(later.count);
    }
}

/// Describes the links and the remedy, such as `412 links lead out of the data root (first: train/cat/1.jpg
/// -> /cache/ab/12): ask ...`.
impl std::fmt::Display for OutwardLinks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { count, first } = self;
        let lead = if *count == 1 { "link leads" } else { "links lead" };
        write!(
            f,
            "{count} {lead} out of the data root (first: {first}): ask the host's operator to grant a parent folder that contains \
             both, or copy the data with `cp -rL`"
        )
    }
}

/// Escapes and truncates a name, which may contain arbitrary characters.
fn escape_name(name: &str) -> String {
    let shown = name.chars().take(LONGEST_NAME).flat_map(char::escape_debug);
    shown.collect()
}

impl SkippedNames {
    /// Adds a name, which may contain arbitrary characters.
    pub fn add(&mut self, name: &str) {
        self.count += 1;
        if self.names.len() < MOST_NAMES {
            self.names.push(escape_name(name));
        }
    }

    /// Adds the names and links of a later page.
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
        let mut left_out = SkippedNames::default();
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
        let mut left_out = SkippedNames::default();
        left_out.links.add("train/cat/1.jpg", "/cache/ab/12");
        left_out.links.add("train/cat/2.jpg", "/cache/cd/34");
        let mut both = SkippedNames::default();
        both.extend(left_out);
        assert_eq!((both.links.count, both.count), (2, 0));
        let said = both.links.to_string();
        assert!(
            said.starts_with("2 links lead out of the data root (first: train/cat/1.jpg -> /cache/ab/12): ask the host's operator "),
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
}
