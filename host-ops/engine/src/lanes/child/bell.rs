use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Wakes a lane while it waits for an answer. Writing to `rope` never blocks.
pub(super) struct Bell {
    pub(super) rope: Arc<UnixStream>,
    pub(super) sound: UnixStream,
}

impl Bell {
    pub(super) fn new() -> std::io::Result<Self> {
        let (rope, sound) = UnixStream::pair()?;
        rope.set_nonblocking(true)?;
        sound.set_nonblocking(true)?;
        Ok(Self {
            rope: Arc::new(rope),
            sound,
        })
    }

    /// Discards earlier signals.
    pub(super) fn silence(&self) {
        let mut bytes = [0; 16];
        while matches!((&self.sound).read(&mut bytes), Ok(1..)) {}
    }
}
