//! Class and part of samples in tar shards.

use super::Part;
use super::listing::Listed;
use frostline_wire::listing_order;

pub(crate) struct ShardSample<'a> {
    /// Part according to the shard's key.
    pub(crate) part: Option<Part>,
    pub(crate) label: &'a str,
}

impl<'a> ShardSample<'a> {
    /// Returns `None` if the object is not in a shard or does not have a class.
    pub(crate) fn from_listed(object: Listed<'a>) -> Option<Self> {
        let (shard, name) = listing_order(object.key);
        let label = object.label.filter(|_| !name.is_empty())?;
        Some(Self {
            part: Part::of_shard(shard),
            label,
        })
    }
}
