//! Root description for errors.

use crate::kind::{Credentials, Kind};
use crate::on_fault::OnFault;
use crate::{Fault, ObjectError};
use frostline_tensor::Cause;
use object_store::ObjectMeta;
use std::time::Duration;
use tokio::time::timeout;

/// Maximum duration of an operation, including retries. A request may use half of this, which leaves time to
/// retry a stalled one.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Maximum object size for [`Store::read`](crate::Store::read), in bytes. The largest objects are models
/// (VGG19, the largest common one, has 575 MB). The limit protects the host's memory from an object that grows
/// without end. Images have separate limits.
pub const LARGEST_READ: u64 = 1 << 30;

/// Advice for an unreachable store or missing bucket with separate settings.
pub(crate) const OWN_BUCKET: &str = "check the bucket's name, and bucket and endpoint under [store.BUCKET] in the host's configuration; buckets are \
                                     not created automatically";

/// Replaces the key in errors about a listing.
pub(crate) const LISTING: &str = "its listing";

/// Root description. The kind and credentials determine the advice in errors.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    /// The address without credentials.
    pub(crate) shown: String,
    pub(crate) kind: Kind,
    pub(crate) credentials: Credentials,
    pub(crate) on_fault: OnFault,
}

impl Root {
    /// Runs `work` on `key` within [`DEADLINE`] and reports failures. If the root is lent, the error omits
    /// the settings of this process.
    pub(crate) async fn in_time<T>(
        &self,
        key: &str,
        work: impl Future<Output = Result<T, ObjectError>>,
    ) -> Result<T, ObjectError> {
        let outcome = self.observed(DEADLINE, key, work).await;
        outcome.map_err(|error| self.on_fault.shown(error))
    }

    /// Runs `work` as [`Root::within`] does and reports failures. The error includes advice about the
    /// settings of this process.
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

    /// Runs `work` on `key`. Returns [`ObjectError::Deadline`] if it takes longer than `deadline`.
    pub(crate) async fn within<T>(
        &self,
        deadline: Duration,
        key: &str,
        work: impl Future<Output = Result<T, ObjectError>>,
    ) -> Result<T, ObjectError> {
        timeout(deadline, work).await.map_err(|_| ObjectError::Deadline {
            key: key.to_owned(),
            root: self.shown.clone(),
            after: deadline,
        })?
    }

    /// Returns the error for a store that failed for `key`.
    pub(crate) fn failed(&self, key: &str, reason: impl Into<Cause>) -> ObjectError {
        ObjectError::Store {
            key: key.to_owned(),
            root: self.shown.clone(),
            reason: reason.into(),
            fault: Fault::Failed,
        }
    }

    /// Returns the error for a root that does not exist.
    pub(crate) fn missing(&self) -> ObjectError {
        ObjectError::NoSuchRoot {
            root: self.shown.clone(),
            advice: match self.credentials {
                Credentials::Own => OWN_BUCKET,
                _ => self.kind.bucket_advice(),
            },
        }
    }

    /// Checks that an object has the expected version, if both are known.
    pub(crate) fn check_version(
        &self,
        key: &str,
        expected: Option<&str>,
        found: &ObjectMeta,
    ) -> Result<(), ObjectError> {
        match (expected, &found.e_tag) {
            (Some(expected), Some(found)) if expected != self.kind.etag(found) => Err(self.changed(key)),
            _ => Ok(()),
        }
    }

    /// Returns the error for an object that is not the expected version.
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
    async fn a_timeout_names_the_root_and_key() {
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
