use frostline_wire::{ObjectInfo, ObjectPage, SampleRef, SkippedNames};
use std::collections::HashMap;

/// Packed list of the objects under a data root. An object needs 40 bytes in addition to the key and version,
/// a third of the memory of [`ObjectInfo`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Keys, each followed by the version.
    text: String,
    objects: Vec<Packed>,
    /// Distinct class names from shards.
    labels: Vec<String>,
    numbers: HashMap<String, u32>,
    /// Invalid names under the root, and links to targets outside the root.
    pub(crate) no_keys: SkippedNames,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Packed {
    /// Offset of the key in the text.
    at: usize,
    size: u64,
    /// Length of the key in bytes.
    key: u32,
    /// Length of the version in bytes, or 0 if there is no version.
    etag: u32,
    /// Label index + 1, or 0 if there is no label.
    label: u32,
    /// Time of the last change, or 0 if it is not listed.
    changed: u64,
}

/// An object in a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Key relative to the root.
    pub key: &'a str,
    /// Version of the object.
    pub etag: Option<&'a str>,
    /// Size in bytes.
    pub size: u64,
    /// Class from a shard, if any.
    pub label: Option<&'a str>,
    /// Time of the last change of a file in nanoseconds since 1970, if it is listed.
    pub changed: Option<u64>,
}

impl Listing {
    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns true if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns the object with this index, in the order of the listing.
    pub fn get(&self, number: u32) -> Option<Listed<'_>> {
        let packed = self.objects.get(number as usize)?;
        let end = packed.at + packed.key as usize;
        let etag = self.text.get(end..end + packed.etag as usize)?;
        let label = packed.label.checked_sub(1);
        Some(Listed {
            key: self.text.get(packed.at..end)?,
            etag: (!etag.is_empty()).then_some(etag),
            size: packed.size,
            label: label.and_then(|number| Some(self.labels.get(number as usize)?.as_str())),
            changed: (packed.changed > 0).then_some(packed.changed),
        })
    }

    /// Iterates over the objects and indices in listing order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Listed<'_>)> {
        (0..self.objects.len() as u32).filter_map(|number| Some((number, self.get(number)?)))
    }

    /// Returns the size of the object with this index, or 0 if the index is invalid.
    pub(crate) fn size(&self, number: u32) -> u64 {
        self.objects.get(number as usize).map_or(0, |packed| packed.size)
    }

    /// Adds a page of the listing.
    pub(crate) fn add_page(&mut self, page: ObjectPage) {
        self.extend(page.objects);
        self.no_keys.extend(page.left_out);
    }

    fn number(&mut self, label: String) -> u32 {
        if let Some(number) = self.numbers.get(&label) {
            return *number;
        }
        self.labels.push(label.clone());
        let number = self.labels.len() as u32;
        self.numbers.insert(label, number);
        number
    }
}

impl Extend<ObjectInfo> for Listing {
    fn extend<I: IntoIterator<Item = ObjectInfo>>(&mut self, objects: I) {
        for object in objects {
            let SampleRef { key, etag } = object.sample;
            let etag = etag.unwrap_or_default();
            let label = object.label.map_or(0, |label| self.number(label));
            let at = self.text.len();
            self.text.push_str(&key);
            self.text.push_str(&etag);
            // Answers are much smaller than 4 GB, so the lengths fit.
            self.objects.push(Packed {
                at,
                size: object.size,
                key: key.len() as u32,
                etag: etag.len() as u32,
                label,
                changed: object.changed.unwrap_or_default(),
            });
        }
    }
}

impl FromIterator<ObjectInfo> for Listing {
    fn from_iter<I: IntoIterator<Item = ObjectInfo>>(objects: I) -> Self {
        let mut listing = Self::default();
        listing.extend(objects);
        listing
    }
}

impl Listed<'_> {
    /// Returns a reference to this object for a request.
    pub(crate) fn sample(&self) -> SampleRef {
        SampleRef {
            key: self.key.to_owned(),
            etag: self.etag.map(str::to_owned),
        }
    }
}

impl From<Listed<'_>> for ObjectInfo {
    fn from(object: Listed<'_>) -> Self {
        Self {
            sample: object.sample(),
            size: object.size,
            label: object.label.map(str::to_owned),
            changed: object.changed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_object_is_what_it_was() {
        let object = |key: &str, etag: Option<&str>, label: Option<&str>| ObjectInfo {
            sample: SampleRef {
                key: key.to_owned(),
                etag: etag.map(str::to_owned),
            },
            size: key.len() as u64,
            label: label.map(str::to_owned),
            changed: label.map(|_| 7),
        };
        let objects = [
            object("a/ü.jpg", Some("\"1\""), None),
            object("b.tar//2", None, Some("cat")),
            object("b.tar//3", Some("x"), Some("dog")),
            object("b.tar//4", Some("x"), Some("cat")),
        ];
        let listing: Listing = objects.iter().cloned().collect();
        let unpacked: Vec<ObjectInfo> = listing.iter().map(|(_, object)| object.into()).collect();
        assert_eq!(unpacked, objects);
        assert_eq!(listing.labels, ["cat", "dog"]);
        assert_eq!((listing.get(4), listing.size(3), listing.size(4)), (None, 8, 0));
    }
}
