/// Type of store failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// HTTP status 408, 429, 502, 503 or 504.
    Busy,
    /// The store does not allow the request.
    Denied,
    /// The store rejects the credentials, or credentials are missing.
    Credentials,
    /// The bucket or folder does not exist.
    NoBucket,
    /// The connection failed.
    Unreachable,
    /// The request timed out.
    Timeout,
    /// The connection broke during the answer.
    Broken,
    /// Any other failure.
    Failed,
}

impl Fault {
    /// Every failure type.
    pub const ALL: [Self; 8] = [
        Self::Busy,
        Self::Denied,
        Self::Credentials,
        Self::NoBucket,
        Self::Unreachable,
        Self::Timeout,
        Self::Broken,
        Self::Failed,
    ];

    /// Returns the one-word name that is used as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Denied => "denied",
            Self::Credentials => "credentials",
            Self::NoBucket => "no_bucket",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Broken => "broken",
            Self::Failed => "failed",
        }
    }

    /// Returns true if the failure is not specific to the object: the store or the connection to it is busy
    /// or down, and any other request may fail the same way.
    pub(crate) fn may_pass(self) -> bool {
        matches!(self, Self::Busy | Self::Timeout | Self::Broken)
    }
}
