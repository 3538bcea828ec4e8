//! How a sample inside a shard is named, and its version.

use frostline_tensor::Layout;

/// What stands between the shard's key and the sample's name. No object's key has an empty segment, so none reads like a
/// sample's, whatever folders are called.
const SEPARATOR: &str = "//";

/// What a shard's key ends with.
const SHARD: &str = ".tar";

/// What the names of images end with, whatever their case.
const IMAGES: [&str; 6] = [".jpg", ".jpeg", ".jpe", ".png", ".webp", ".gif"];

/// A sample's key in its parts: `train-000.tar//00012.jpg`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SampleName<'a> {
    /// The shard's key.
    pub(crate) shard: &'a str,
    /// The sample's name in the archive.
    pub(crate) member: &'a str,
}

impl<'a> SampleName<'a> {
    /// The parts of a sample's key; none if it is an object's (or nothing at all). Neither part is checked.
    pub(crate) fn parse(key: &'a str) -> Option<Self> {
        let (shard, member) = key.split_once(SEPARATOR)?;
        is_shard(shard).then_some(Self { shard, member })
    }

    pub(crate) fn key(self) -> String {
        format!("{}{SEPARATOR}{}", self.shard, self.member)
    }
}

/// Whether an object is a shard.
pub(crate) fn is_shard(key: &str) -> bool {
    ends_with(key, SHARD)
}

/// Whether a name is an image's.
pub(crate) fn is_image(name: &str) -> bool {
    IMAGES.iter().any(|ending| ends_with(name, ending))
}

/// The layout of a root whose first keys these are: shards, if there are archives and no single images beside them. Files about the
/// data, such as `README.md` or `train-000.idx`, do not matter.
pub(crate) fn layout_of<'a>(keys: impl IntoIterator<Item = &'a str>) -> Layout {
    let (mut shards, mut images) = (false, false);
    for key in keys {
        shards |= is_shard(key);
        images |= is_image(key);
    }
    if shards && !images {
        Layout::Shards
    } else {
        Layout::Objects
    }
}

fn ends_with(name: &str, ending: &str) -> bool {
    let start = name.len().checked_sub(ending.len());
    start
        .and_then(|start| name.get(start..))
        .is_some_and(|end| end.eq_ignore_ascii_case(ending))
}

/// A sample's version: that of its shard, and where in it the sample lies. Whoever has it can read the sample without an index,
/// and a shard that was replaced is told by its own version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    /// The shard's etag.
    pub(crate) shard: String,
    /// Bytes before the sample.
    pub(crate) offset: u64,
    /// The sample's bytes.
    pub(crate) size: u64,
}

impl Version {
    /// `<the shard's etag>@<offset>+<size>`.
    pub(crate) fn etag(&self) -> String {
        format!("{}@{}+{}", self.shard, self.offset, self.size)
    }

    /// What [`Version::etag`] wrote; none for anything else.
    pub(crate) fn parse(etag: &str) -> Option<Self> {
        let (shard, place) = etag.rsplit_once('@')?;
        let (offset, size) = place.split_once('+')?;
        let (offset, size) = (offset.parse().ok()?, size.parse().ok()?);
        u64::checked_add(offset, size)?;
        Some(Self {
            shard: shard.to_owned(),
            offset,
            size,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_samples_and_of_objects_are_told_apart() {
        let name = SampleName::parse("a/train-000.TAR//b/00012.jpg").unwrap();
        assert_eq!((name.shard, name.member), ("a/train-000.TAR", "b/00012.jpg"));
        assert_eq!(name.key(), "a/train-000.TAR//b/00012.jpg");
        for key in [
            "train.tar/1.jpg",
            "train.tar",
            "a//b.jpg",
            "//b.jpg",
            "",
            "tar//b",
            "ü//b",
        ] {
            assert_eq!(SampleName::parse(key), None, "{key}");
        }
        assert!(is_image("a.JPeG") && is_image("a.png") && !is_image("jpg") && !is_image("a.jpg.txt"));
    }

    #[test]
    fn archives_without_images_beside_them_are_shards() {
        assert_eq!(layout_of(["README.md", "a.idx", "a.tar"]), Layout::Shards);
        assert_eq!(layout_of(["a.tar", "cat/1.jpg"]), Layout::Objects);
        assert_eq!(layout_of(["README.md"]), Layout::Objects);
        assert_eq!(layout_of([]), Layout::Objects);
    }

    #[test]
    fn versions_are_read_as_they_were_written() {
        let version = Version {
            shard: "\"a@1+2-b\"".to_owned(),
            offset: 512,
            size: 7,
        };
        assert_eq!(version.etag(), "\"a@1+2-b\"@512+7");
        assert_eq!(Version::parse(&version.etag()), Some(version));
        for etag in [
            "",
            "\"abc\"",
            "a@1",
            "a@1+x",
            "a@-1+2",
            "a@18446744073709551615+1",
        ] {
            assert_eq!(Version::parse(etag), None, "{etag}");
        }
    }
}
