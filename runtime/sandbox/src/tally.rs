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
        check_bound(
            GuestPart::Nesting,
            depth as u64,
            allowed(self.config, GuestPart::Nesting),
        )
    }
}

/// Returns the bound of a part. The stock guest has 180 functions, a memory, a table and 1,600 bytes of types. The
/// bounds allow a guest that contains the interpreter of a language.
fn allowed(config: &SandboxConfig, part: GuestPart) -> u64 {
    match part {
        // A guest linked from twelve modules has up to three small ones for each.
        GuestPart::Modules => 64,
        // Composition nests components; four levels are already unusual.
        GuestPart::Nesting => 8,
        // Large programs have a thousand.
        GuestPart::Types => 10_000,
        // The interfaces of WASI have 20 KB. The memory needed to read types is proportional to this number.
        GuestPart::TypeBytes => 1 << 20,
        // The world has forty functions, and guests with multiple modules may import some functions several times.
        GuestPart::Imports => 2_000,
        // Compile time is proportional to this number. The stock guest needs 50 ms, and this number 14 s.
        GuestPart::Functions => 50_000,
        // Four bytes of Wasm can declare 50,000 variables, the maximum of a function, but the compiler needs memory
        // for each of them.
        GuestPart::Locals => 1_000_000,
        GuestPart::Memories => MAX_MEMORIES.into(),
        GuestPart::Tables => MAX_TABLES.into(),
        // Large programs have a thousand.
        GuestPart::Globals => 10_000,
        // Snapshots of initialized programs contain a segment for each memory range written during initialization.
        GuestPart::DataSegments => 20_000,
        // Compilers emit one for each table.
        GuestPart::ElementSegments => 1_000,
        // Debug builds export hundreds of functions.
        GuestPart::Exports => 10_000,
        // Passing a function between modules needs an alias.
        GuestPart::Instances => 5_000,
        // Function names are useful in the messages of traps, but hosts do not need debugging information.
        GuestPart::CustomBytes => 4 << 20,
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

    #[test]
    fn parts_add_up_and_stop_at_their_bounds() {
        let config = SandboxConfig::default();
        let mut tally = Tally::new(&config);
        assert_eq!(tally.add(GuestPart::Functions, 49_996_u32), Ok(()));
        assert_eq!(tally.add(GuestPart::Types, 6_u32), Ok(()));
        assert_eq!(tally.add(GuestPart::Functions, 4_u32), Ok(()));
        let too_many = SandboxError::TooComplex {
            part: GuestPart::Functions,
            found: 50_001,
            allowed: 50_000,
        };
        assert_eq!(tally.add(GuestPart::Functions, 1_u32), Err(too_many));
        assert!(tally.add(GuestPart::Functions, u64::MAX).is_err());
        assert!(tally.check_depth(8).is_ok() && tally.check_depth(9).is_err());
    }
}
