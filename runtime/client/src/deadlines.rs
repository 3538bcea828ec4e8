use std::time::Duration;

/// Timeouts of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Connection setup. Default: 10 s.
    pub connect: Duration,
    /// Maximum time to the head of an answer, and to the end of an answer that is read as a whole. Must cover
    /// the compilation of a guest, the first load of a model and the wait in the host's queue. Default: 180
    /// s.
    pub answer: Duration,
    /// Maximum time between body pieces while sending or receiving. Must cover the processing of a grant,
    /// which may run hundreds of samples through a deep prefix on a busy host. Default: 120 s.
    pub idle: Duration,
    /// Maximum time until a host has taken an upload, plus a second for each 64 KiB. Attempts to send the upload
    /// add up. Default: 60 s.
    pub upload: Duration,
    /// Wait for the profile of a model, if the job can start without one. Default: 75 s.
    pub profile: Duration,
    /// Interval between pings of the connection. A host that lost power is detected after twice this time.
    /// Default: 15 s.
    pub ping: Duration,
}

/// Minimum rate of an upload in bytes per second. Slower links need more than four hours for a gigabyte.
const UPLOAD_RATE: u64 = 64 << 10;

impl Deadlines {
    /// Returns the maximum time until a host has taken an upload of `bytes` bytes.
    pub(crate) fn upload_of(&self, bytes: u64) -> Duration {
        self.upload + Duration::from_secs(bytes / UPLOAD_RATE)
    }
}

impl Default for Deadlines {
    /// A host stops a measurement after 60 s, and the slowest common network needs about 30 s. The additional
    /// 15 s cover loading the model and a measurement already in progress. Longer waits indicate a queue with
    /// an unknown end.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(180),
            idle: Duration::from_secs(120),
            upload: Duration::from_secs(60),
            profile: Duration::from_secs(75),
            ping: Duration::from_secs(15),
        }
    }
}
