//! Memory for tensors that the host holds on behalf of guests.

use super::room::TenantMemory;
use frostline_batching::Reserved;
use frostline_sandbox::MemorySource;
use frostline_tensor::OpError;
use parking_lot::Mutex;
use std::sync::Arc;

/// Accounts for the tensors of an extraction. Tensors first use the memory of the grants, then the free
/// memory of the host. A guest that holds more or larger tensors than usual is limited to the available
/// memory.
pub(crate) struct TensorMemory {
    room: TenantMemory,
    state: Mutex<TensorUsage>,
}

#[derive(Default)]
struct TensorUsage {
    /// Bytes covered by grants.
    covered: u64,
    used: u64,
    /// Reservation for bytes beyond `covered`.
    excess: Option<Reserved>,
}

/// Covered memory of a grant, until dropped.
pub(crate) struct GrantCover {
    tensors: Arc<TensorMemory>,
    bytes: u64,
}

impl TensorMemory {
    pub(crate) fn new(room: TenantMemory) -> Arc<Self> {
        Arc::new(Self {
            room,
            state: Mutex::default(),
        })
    }

    /// Adds `bytes` bytes of a grant to the covered memory.
    pub(crate) fn cover(self: &Arc<Self>, bytes: u64) -> GrantCover {
        let mut state = self.state.lock();
        state.covered = state.covered.saturating_add(bytes);
        // Shrinking a reservation never fails.
        self.adjust(&mut state).ok();
        GrantCover {
            tensors: Arc::clone(self),
            bytes,
        }
    }

    /// Reserves the bytes in use beyond the covered bytes.
    fn adjust(&self, state: &mut TensorUsage) -> Result<(), OpError> {
        let beyond = state.used.saturating_sub(state.covered);
        match &mut state.excess {
            _ if beyond == 0 => state.excess = None,
            Some(reserved) => reserved.resize(beyond).map_err(|_| self.room.shortage(beyond))?,
            None => {
                state.excess = Some(
                    self.room
                        .try_reserve(beyond)
                        .map_err(|_| self.room.shortage(beyond))?,
                )
            }
        }
        Ok(())
    }
}

impl MemorySource for TensorMemory {
    fn reserve(&self, bytes: u64) -> Result<(), OpError> {
        let mut state = self.state.lock();
        let before = state.used;
        state.used = before.saturating_add(bytes);
        let adjusted = self.adjust(&mut state);
        if adjusted.is_err() {
            state.used = before;
        }
        adjusted
    }

    fn release(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.used = state.used.saturating_sub(bytes);
        self.adjust(&mut state).ok();
    }
}

impl Drop for GrantCover {
    fn drop(&mut self) {
        let mut state = self.tensors.state.lock();
        state.covered = state.covered.saturating_sub(self.bytes);
        // The tensors of other calls may now exceed the cover. If no memory is free for the excess, only the
        // measured base includes it.
        self.tensors.adjust(&mut state).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_batching::{Budget, Kind, Memory};

    fn held(memory: &Memory) -> u64 {
        memory.read(|ledger| ledger.held(Kind::Grant))
    }

    #[test]
    fn tensors_use_covered_memory_and_then_free_memory() {
        let memory = Memory::new(Budget {
            bytes: 100,
            ..Budget::default()
        });
        let tensors = TensorMemory::new(TenantMemory::new(&memory, "a", Kind::Grant));
        let grant = memory.try_reserve("a", Kind::Grant, 60).unwrap();
        let cover = tensors.cover(60);
        tensors.reserve(50).unwrap();
        assert_eq!(held(&memory), 60);
        tensors.reserve(30).unwrap();
        assert_eq!(held(&memory), 80);
        let busy = tensors.reserve(30).unwrap_err();
        assert!(busy.host_caused, "memory may become free: {busy}");
        let never = tensors.reserve(1000).unwrap_err();
        assert!(
            !never.host_caused && never.message.contains("memory_budget"),
            "{never}"
        );
        tensors.release(50);
        assert_eq!(held(&memory), 60);
        drop((grant, cover));
        assert_eq!(held(&memory), 30);
        tensors.release(30);
        assert_eq!(held(&memory), 0);
    }
}
