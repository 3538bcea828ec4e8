//! A root as errors speak of it.

use crate::fault::OnFault;
use crate::kind::{Credentials, Kind};
use crate::{Fault, ObjectError};
use frostline_tensor::Cause;
use std::time::Duration;
use tokio::time::timeout;

/// How long one operation may take, with its repetitions. Twice what a single request may: a stalled one is tried again.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// What to look at where a store with settings of its own is not there, or has no such bucket.
pub(crate) const OWN_BUCKET: &str = "check the bucket's name, and bucket and endpoint under [store.BUCKET] in the host's configuration; buckets are \
                                     never created here";

/// What stands for the key in an error about a listing.
pub(crate) const LISTING: &str = "its listing";

/// A root by name: what it lies in and what its requests are signed with, so that its errors say what to do.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    /// As it was given, less credentials.
    pub(crate) shown: String,
    pub(crate) kind: Kind,
    pub(crate) credentials: Credentials,
    pub(crate) on_fault: OnFault,
}

impl Root {
    /// What `work` on `key` gives, unless it takes longer than an operation may.
    pub(crate) async fn in_time<T>(
        &self,
        key: &str,
        work: impl Future<Output = Result<T, ObjectError>>,
    ) -> Result<T, ObjectError> {
        let outcome = self.observed(DEADLINE, key, work).await;
        outcome.map_err(|error| self.on_fault.shown(error))
    }

    /// [`Root::within`] of one operation: who watches the root is told how it fails, and the error is as that one is to read it.
    pub(crate) async fn observed<T>(
        &self,
        deadline: Duration,
        key: &str,
        work: impl Future<Output = Result<T, ObjectError>>,
    ) -> Result<T, ObjectError> {
        let outcome = self.within(deadline, key, work).await;
        if let Err(error) = &outcome {
            self.on_fault.call(error);
        }
        outcome
    }

    /// What `work` on `key` gives, unless it takes longer than `deadline`.
    pub(crate) async fn within<T>(
        &self,
        deadline: Duration,
        key: &str,
        work: impl Future<Output = Result<T, ObjectError>>,
    ) -> Result<T, ObjectError> {
        let late = |_| ObjectError::Deadline {
            key: key.to_owned(),
            root: self.shown.clone(),
            after: deadline,
        };
        timeout(deadline, work).await.map_err(late)?
    }

    /// The store failed for `key`.
    pub(crate) fn failed(&self, key: &str, reason: impl Into<Cause>) -> ObjectError {
        ObjectError::Store {
            key: key.to_owned(),
            root: self.shown.clone(),
            reason: reason.into(),
            fault: Fault::Failed,
        }
    }

    /// There is no such root.
    pub(crate) fn missing(&self) -> ObjectError {
        ObjectError::NoSuchRoot {
            root: self.shown.clone(),
            advice: match self.credentials {
                Credentials::Own => OWN_BUCKET,
                _ => self.kind.bucket_advice(),
            },
        }
    }

    /// The object is not the version that was meant.
    pub(crate) fn changed(&self, key: &str) -> ObjectError {
        ObjectError::Changed {
            key: key.to_owned(),
            root: self.shown.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_takes_too_long_is_named() {
        let root = Root {
            shown: "s3://photos".to_owned(),
            kind: Kind::S3,
            credentials: Credentials::Given,
            on_fault: OnFault::default(),
        };
        assert_eq!(root.in_time("a.jpg", async { Ok(1) }).await, Ok(1));
        let late = root.in_time("a.jpg", std::future::pending::<Result<(), _>>());
        let text = late.await.unwrap_err().to_string();
        assert!(
            text.contains("s3://photos") && text.contains("a.jpg") && text.contains("60s"),
            "{text}"
        );
    }
}
