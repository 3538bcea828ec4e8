//! Samples inside tar archives in the format of WebDataset. `docs/shards.md` describes the format and the
//! names of samples.

mod archive;
mod cache;
mod index;
mod name;

pub(crate) use archive::ArchiveError;
pub(crate) use cache::{Indexes, ReservedIndex, ShardVersion};
pub(crate) use index::{Index, LARGEST_INDEX, ShardSample};
pub(crate) use name::{SampleName, Version, is_shard, layout_of};

#[cfg(test)]
mod tests;
