//! Counts the parts of a guest while reading the bytes.

use crate::bounds::{GuestPart, MAX_MEMORIES, MAX_TABLES};
use crate::config::SandboxConfig;
use crate::error::SandboxError;
use std::collections::BTreeMap;

/// Counts of parts, checked against the bounds.
pub(crate) struct Tally<'a> {
    config: &'a SandboxConfig,
    found: BTreeMap<GuestPart, u64>,
}

impl<'a> Tally<'a> {
    pub(crate) fn new(config: &'a SandboxConfig) -> Self {
        Self {
            config,
            found: BTreeMap::new(),
        }
    }

    /// Adds `more` to the count of a part. Declared counts are added before the items are read, so that
    /// excess is refused early.
    pub(crate) fn add(&mut self, part: GuestPart, more: impl TryInto<u64>) -> Result<(), SandboxError> {
        let found = self.found.entry(part).or_default();
        *found = found.saturating_add(more.try_into().unwrap_or(u64::MAX));
        check_bound(part, *found, allowed(self.config, part))
    }

    pub(crate) fn check_depth(&self, depth: usize) -> Result<(), SandboxError> {
        check_bound(GuestPart::Nesting, depth as u64, self.config.bounds.nesting)
    }
}

fn allowed(config: &SandboxConfig, part: GuestPart) -> u64 {
    let bounds = &config.bounds;
    match part {
        GuestPart::Modules => bounds.modules,
        GuestPart::Nesting => bounds.nesting,
        GuestPart::Types => bounds.types,
        GuestPart::TypeBytes => bounds.type_bytes,
        GuestPart::Imports => bounds.imports,
        GuestPart::Functions => bounds.functions,
        GuestPart::Locals => bounds.locals,
        GuestPart::Memories => MAX_MEMORIES.into(),
        GuestPart::Tables => MAX_TABLES.into(),
        GuestPart::Globals => bounds.globals,
        GuestPart::DataSegments => bounds.data_segments,
        GuestPart::ElementSegments => bounds.element_segments,
        GuestPart::Exports => bounds.exports,
        GuestPart::Instances => bounds.instances,
        GuestPart::CustomBytes => bounds.custom_bytes,
        GuestPart::MemoryBytes => config.memory_bytes as u64,
        GuestPart::TableElements => config.table_elements as u64,
    }
}

fn check_bound(part: GuestPart, found: u64, allowed: u64) -> Result<(), SandboxError> {
    if found <= allowed {
        return Ok(());
    }
    Err(SandboxError::TooComplex { part, found, allowed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::GuestBounds;

    #[test]
    fn parts_add_up_and_stop_at_their_bounds() {
        let config = SandboxConfig {
            bounds: GuestBounds {
                functions: 10,
                ..GuestBounds::default()
            },
            ..SandboxConfig::default()
        };
        let mut tally = Tally::new(&config);
        assert_eq!(tally.add(GuestPart::Functions, 6_u32), Ok(()));
        assert_eq!(tally.add(GuestPart::Types, 6_u32), Ok(()));
        assert_eq!(tally.add(GuestPart::Functions, 4_u32), Ok(()));
        let too_many = SandboxError::TooComplex {
            part: GuestPart::Functions,
            found: 11,
            allowed: 10,
        };
        assert_eq!(tally.add(GuestPart::Functions, 1_u32), Err(too_many));
        assert!(tally.add(GuestPart::Functions, u64::MAX).is_err());
        assert!(tally.check_depth(8).is_ok() && tally.check_depth(9).is_err());
    }
}
