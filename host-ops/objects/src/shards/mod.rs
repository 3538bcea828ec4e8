//! Samples inside tar archives, as WebDataset packs them: `docs/shards.md` says what is read and how samples are named.

mod archive;
mod cache;
mod index;
mod name;

pub(crate) use archive::ArchiveError;
pub(crate) use cache::{Held, Indexes, ShardVersion};
pub(crate) use index::{Entry, Index, IndexBuilder, LARGEST_INDEX};
pub(crate) use name::{SampleName, Version, is_shard, layout_of};

#[cfg(test)]
mod tests;
