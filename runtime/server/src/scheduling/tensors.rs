//! Memory for what a guest makes the host hold in its calls.

use super::room::TenantMemory;
use frostline_batching::Reserved;
use frostline_sandbox::MemorySource;
use frostline_tensor::OpError;
use parking_lot::Mutex;
use std::sync::Arc;

/// Lends what the grants of one extraction cover, and beyond that what the host has free: a guest that holds more tensors than usual, or
/// larger ones, takes no more than there is.
pub(crate) struct TensorMemory {
    room: TenantMemory,
    state: Mutex<TensorUsage>,
}

#[derive(Default)]
struct TensorUsage {
    /// Bytes that grants cover.
    covered: u64,
    used: u64,
    /// What is used beyond.
    reserved: Option<Reserved>,
}

/// What a grant covers, until this is dropped.
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

    /// A grant covers `bytes` more.
    pub(crate) fn cover(self: &Arc<Self>, bytes: u64) -> GrantCover {
        let mut state = self.state.lock();
        state.covered = state.covered.saturating_add(bytes);
        // Less is never refused.
        self.adjust(&mut state).ok();
        GrantCover {
            tensors: Arc::clone(self),
            bytes,
        }
    }

    /// Reserves just what is used beyond what is covered.
    fn adjust(&self, state: &mut TensorUsage) -> Result<(), OpError> {
        let beyond = state.used.saturating_sub(state.covered);
        match &mut state.reserved {
            _ if beyond == 0 => state.reserved = None,
            Some(reserved) => reserved.resize(beyond).map_err(|_| self.room.shortage(beyond))?,
            None => {
                state.reserved = Some(
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
        // What other calls use beyond their grants was lent by this one: the measured base has it where there is no room.
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
    fn what_grants_cover_is_lent_and_beyond_that_what_is_free() {
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
        assert!(busy.host_caused, "others may give some back: {busy}");
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
