//! The host's memory as it stands.

use frostline_batching::{Kind, Ledger, Memory};
use strum::IntoEnumIterator;

/// What there is of memory, and who holds how much.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemorySnapshot {
    /// Bytes.
    pub(crate) budget: u64,
    /// Bytes by kind, first of all what nobody reserved.
    pub(crate) held: Vec<(&'static str, u64)>,
    /// How many wait for some.
    pub(crate) waiting: usize,
    /// Bytes by tenant; the host's own are nobody's.
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

    /// Bytes of all kinds.
    pub(crate) fn held_in_all(&self) -> u64 {
        self.held.iter().map(|(_, bytes)| bytes).sum()
    }
}
