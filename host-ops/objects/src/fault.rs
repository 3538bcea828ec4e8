//! How stores fail, as far as it is counted, and who is told.

use crate::ObjectError;
use std::fmt;
use std::sync::Arc;

/// A kind of failure of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It answers 408, 429, 502, 503 or 504.
    Busy,
    /// It does not allow what was asked for.
    Denied,
    /// It does not take the credentials, or there are none.
    Credentials,
    /// There is no such bucket or folder.
    NoBucket,
    /// There is no connection to it.
    Unreachable,
    /// It does not answer in time.
    Timeout,
    /// It breaks off its answers.
    Broken,
    /// Anything else.
    Failed,
}

impl Fault {
    /// All of them.
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

    /// One word, for a label.
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

    /// Whether it says nothing of the object: the store is busy or down, or the way there is, and any other may fail like that.
    pub(crate) fn may_pass(self) -> bool {
        matches!(self, Self::Busy | Self::Timeout | Self::Broken)
    }
}

type Told = Arc<dyn Fn(Fault, &ObjectError) + Send + Sync>;

/// Who is told of the failures of a root.
#[derive(Clone, Default)]
pub(crate) struct OnFault {
    told: Option<Told>,
    lent: bool,
}

impl OnFault {
    /// Those who use the root run the process that opened it, unless it is `lent`.
    pub(crate) fn new(told: impl Fn(Fault, &ObjectError) + Send + Sync + 'static, lent: bool) -> Self {
        Self {
            told: Some(Arc::new(told)),
            lent,
        }
    }

    pub(crate) fn call(&self, error: &ObjectError) {
        if let (Some(told), Some(fault)) = (&self.told, error.fault()) {
            told(fault, error);
        }
    }

    /// The error as those who use the root are to read it.
    pub(crate) fn shown(&self, error: ObjectError) -> ObjectError {
        if self.lent { error.lent() } else { error }
    }
}

impl fmt::Debug for OnFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnFault")
    }
}
