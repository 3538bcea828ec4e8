use std::ops::AddAssign;

/// Transfer statistics for a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Transfer {
    /// Body bytes of all answers.
    pub bytes: u64,
    /// Total duration of the completed requests in seconds.
    pub open_seconds: f64,
    /// Seconds of this duration that hosts report as work.
    pub host_seconds: f64,
}

impl Transfer {
    /// Returns the fraction of `open_seconds` that hosts report as work, or `None` if no host reports a time.
    pub fn on_host(&self) -> Option<f64> {
        (self.host_seconds > 0.0 && self.open_seconds > 0.0).then(|| self.host_seconds / self.open_seconds)
    }
}

impl AddAssign for Transfer {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.open_seconds += other.open_seconds;
        self.host_seconds += other.host_seconds;
    }
}
