use crate::shards::{is_image, is_shard};
use std::fmt;
use std::str::FromStr;

/// How samples lie in a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// Found out from the root's first page.
    #[default]
    Auto,
    /// Every object is a sample.
    Objects,
    /// Samples lie inside tar archives.
    Shards,
}

/// A layout that there is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no layout '{given}'; write auto, objects or shards")]
pub struct LayoutError {
    /// As given, shortened.
    pub given: String,
}

impl Layout {
    /// The layout of a root whose first keys these are: shards, if there are archives and no single images beside them. Files
    /// about the data, such as `README.md` or `train-000.idx`, do not matter.
    pub(crate) fn of<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut shards, mut images) = (false, false);
        for key in keys {
            shards |= is_shard(key);
            images |= is_image(key);
        }
        if shards && !images {
            Self::Shards
        } else {
            Self::Objects
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Objects => "objects",
            Self::Shards => "shards",
        })
    }
}

impl FromStr for Layout {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, LayoutError> {
        match text {
            "auto" => Ok(Self::Auto),
            "objects" => Ok(Self::Objects),
            "shards" => Ok(Self::Shards),
            _ => Err(LayoutError {
                given: text.chars().take(40).collect(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_without_images_beside_them_are_shards() {
        assert_eq!(Layout::of(["README.md", "a.idx", "a.tar"]), Layout::Shards);
        assert_eq!(Layout::of(["a.tar", "cat/1.jpg"]), Layout::Objects);
        assert_eq!(Layout::of(["README.md"]), Layout::Objects);
        assert_eq!(Layout::of([]), Layout::Objects);
    }

    #[test]
    fn layouts_are_read_as_they_are_written() {
        for layout in [Layout::Auto, Layout::Objects, Layout::Shards] {
            assert_eq!(layout.to_string().parse(), Ok(layout));
        }
        assert!(
            "tar"
                .parse::<Layout>()
                .unwrap_err()
                .to_string()
                .contains("shards")
        );
    }
}
