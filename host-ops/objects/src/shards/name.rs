//! Keys and versions of samples inside shards.

use frostline_tensor::{Layout, is_hidden_name, is_image_name};

/// Separator between the shard's key and the sample's name. Keys of objects have no empty segments, so the
/// two kinds of keys cannot collide.
const SEPARATOR: &str = "//";

/// File extension of shards.
const SHARD: &str = ".tar";

/// Sample key in two parts, for example `train-000.tar//00012.jpg`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SampleName<'a> {
    /// The shard's key.
    pub(crate) shard: &'a str,
    /// The sample's name in the archive.
    pub(crate) member: &'a str,
}

impl<'a> SampleName<'a> {
    /// Splits the key of a sample. Returns `None` for other keys. The parts are not validated.
    pub(crate) fn parse(key: &'a str) -> Option<Self> {
        let (shard, member) = key.split_once(SEPARATOR)?;
        is_shard(shard).then_some(Self { shard, member })
    }

    pub(crate) fn key(self) -> String {
        format!("{}{SEPARATOR}{}", self.shard, self.member)
    }
}

/// Returns true if the object is a shard.
pub(crate) fn is_shard(key: &str) -> bool {
    let start = key.len().checked_sub(SHARD.len());
    let end = start.and_then(|start| key.get(start..));
    end.is_some_and(|end| end.eq_ignore_ascii_case(SHARD)) && !is_hidden_name(key)
}

/// Returns the layout for the first keys in a root. Archives without images mean shards. Hidden files and
/// files with other extensions are ignored, for example `README.md` or `train-000.idx`.
pub(crate) fn layout_of<'a>(keys: impl IntoIterator<Item = &'a str>) -> Layout {
    let mut shards = false;
    let mut images = false;
    for key in keys {
        shards |= is_shard(key);
        images |= is_image_name(key) && !is_hidden_name(key);
    }
    if shards && !images {
        Layout::Shards
    } else {
        Layout::Objects
    }
}

/// Sample version: the shard's etag and the sample's byte range. It locates the sample without an index and
/// detects a replaced shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    /// The shard's etag.
    pub(crate) shard: String,
    /// Offset of the sample in bytes.
    pub(crate) offset: u64,
    /// Size of the sample in bytes.
    pub(crate) size: u64,
}

impl Version {
    /// Returns the etag `<the shard's etag>@<offset>+<size>`.
    pub(crate) fn etag(&self) -> String {
        format!("{}@{}+{}", self.shard, self.offset, self.size)
    }

    /// Parses the result of [`Version::etag`]. Returns `None` for other etags.
    pub(crate) fn parse(etag: &str) -> Option<Self> {
        let (shard, place) = etag.rsplit_once('@')?;
        let (offset, size) = place.split_once('+')?;
        let offset = offset.parse().ok()?;
        let size = size.parse().ok()?;
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
    }

    #[test]
    fn archives_without_images_beside_them_are_shards() {
        assert_eq!(layout_of(["README.md", "a.idx", "a.tar"]), Layout::Shards);
        assert_eq!(layout_of(["a.tar", "cat/1.jpg"]), Layout::Objects);
        assert_eq!(layout_of(["a.tar", "cat/1.bmp"]), Layout::Objects);
        assert_eq!(layout_of(["._1.jpg", "._a.tar", "a.tar"]), Layout::Shards);
        assert_eq!(layout_of(["._a.tar", ".cache/a.tar"]), Layout::Objects);
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
