//! Snapshot of the host's memory.

use frostline_batching::{Kind, Ledger, Memory};
use strum::IntoEnumIterator;

/// Snapshot of the memory budget and all reservations.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemorySnapshot {
    /// Memory budget in bytes.
    pub(crate) budget: u64,
    /// Bytes by kind, beginning with the unreserved base.
    pub(crate) held: Vec<(&'static str, u64)>,
    /// Number of requests that wait for memory.
    pub(crate) waiting: usize,
    /// Reserved bytes by tenant, without those of the host.
    pub(crate) tenants: Vec<(String, u64)>,
}

impl MemorySnapshot {
    pub(crate) fn read(memory: &Memory) -> Self {
        memory.read(|ledger: &Ledger| {
            let kinds = Kind::iter().map(|kind| (kind.into(), ledger.held(kind)));
            let tenants = ledger.tenants().filter(|(name, _)| !name.is_empty());
            Self {
                budget: ledger.budget().bytes,
                held: std::iter::once(("base", ledger.base())).chain(kinds).collect(),
                waiting: ledger.waiting(),
                tenants: tenants.map(|(name, bytes)| (name.to_owned(), bytes)).collect(),
            }
        })
    }

    /// Sums the bytes of all kinds.
    pub(crate) fn held_in_all(&self) -> u64 {
        self.held.iter().map(|(_, bytes)| bytes).sum()
    }
}
