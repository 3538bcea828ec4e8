use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counter of received body bytes. Clones share a count. A child also counts toward the parent.
#[derive(Debug, Clone, Default)]
pub(crate) struct ByteMeter(Arc<ByteCount>);

#[derive(Debug, Default)]
struct ByteCount {
    bytes: AtomicU64,
    parent: Option<ByteMeter>,
}

impl ByteMeter {
    /// Creates a meter that starts at zero. The bytes also count here.
    pub(crate) fn child(&self) -> Self {
        Self(Arc::new(ByteCount {
            bytes: AtomicU64::new(0),
            parent: Some(self.clone()),
        }))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.0.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(parent) = &self.0.parent {
            parent.add(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_counts_into_its_parent() {
        let total = ByteMeter::default();
        let first = total.child();
        let second = total.child();
        first.add(3);
        second.clone().add(4);
        assert_eq!((total.bytes(), first.bytes(), second.bytes()), (7, 3, 4));
    }
}
