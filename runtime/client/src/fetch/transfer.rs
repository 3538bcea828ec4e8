/// What bringing a batch here took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Transfer {
    /// Body bytes of all its answers.
    pub bytes: u64,
    /// Seconds its requests were open, added up.
    pub open_seconds: f64,
    /// Seconds of these that the host worked on them, as it says.
    pub host_seconds: f64,
}

impl Transfer {
    /// The share of the requests' time that went by on the host; `None` when it does not say.
    pub fn on_host(&self) -> Option<f64> {
        (self.host_seconds > 0.0 && self.open_seconds > 0.0).then(|| self.host_seconds / self.open_seconds)
    }

    pub(super) fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.open_seconds += other.open_seconds;
        self.host_seconds += other.host_seconds;
    }
}
