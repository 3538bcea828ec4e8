use bytes::Bytes;
use frostline_batching::Reserved;
use std::sync::Arc;

/// Bytes, and what keeps them reserved.
struct Kept {
    bytes: Bytes,
    _memory: Arc<Reserved>,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The same bytes, which keep `memory` until the last of them is dropped, wherever they wait by then.
pub(crate) fn kept(bytes: Bytes, memory: &Arc<Reserved>) -> Bytes {
    Bytes::from_owner(Kept {
        bytes,
        _memory: Arc::clone(memory),
    })
}
