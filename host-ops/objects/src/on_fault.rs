//! Callback for reporting store failures.

use crate::{Fault, ObjectError};
use std::fmt;
use std::sync::Arc;

type FaultCallback = Arc<dyn Fn(Fault, &ObjectError) + Send + Sync>;

/// Callback for the failures of a root.
#[derive(Clone, Default)]
pub(crate) struct OnFault {
    callback: Option<FaultCallback>,
    lent: bool,
}

impl OnFault {
    /// Creates a callback. If the root is `lent`, its users do not operate this process, and their errors
    /// omit its settings.
    pub(crate) fn new(told: impl Fn(Fault, &ObjectError) + Send + Sync + 'static, lent: bool) -> Self {
        Self {
            callback: Some(Arc::new(told)),
            lent,
        }
    }

    pub(crate) fn call(&self, error: &ObjectError) {
        if let (Some(told), Some(fault)) = (&self.callback, error.fault()) {
            told(fault, error);
        }
    }

    /// Returns the error for users of the root.
    pub(crate) fn shown(&self, error: ObjectError) -> ObjectError {
        if self.lent { error.lent() } else { error }
    }
}

impl fmt::Debug for OnFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnFault")
    }
}
