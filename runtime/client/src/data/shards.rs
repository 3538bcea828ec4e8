//! Samples inside tar shards: their class and their part of the data.

use super::Part;
use super::listing::Listed;
use frostline_wire::listing_order;

/// What a shard says of a sample.
pub(crate) struct ShardSample<'a> {
    /// What it is there for, as the shard's key says.
    pub(crate) part: Option<Part>,
    /// Its class.
    pub(crate) label: &'a str,
}

impl<'a> ShardSample<'a> {
    /// None for an object of its own, and for a sample without a class.
    pub(crate) fn from_listed(object: Listed<'a>) -> Option<Self> {
        let (shard, name) = listing_order(object.key);
        let label = object.label.filter(|_| !name.is_empty())?;
        Some(Self {
            part: Part::of_shard(shard),
            label,
        })
    }
}
