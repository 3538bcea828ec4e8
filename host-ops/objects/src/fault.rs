use strum::{EnumIter, IntoEnumIterator, IntoStaticStr};

/// Type of store failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
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
    /// Returns every failure type.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }

    /// Returns the one-word name that is used as a metric label.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns true if the failure is not specific to the object: the store or the connection to it is busy
    /// or down, and any other request may fail the same way.
    pub(crate) fn may_pass(self) -> bool {
        matches!(self, Self::Busy | Self::Timeout | Self::Broken)
    }
}
