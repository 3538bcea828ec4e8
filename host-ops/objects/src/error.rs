use frostline_tensor::{OpError, OpErrorCode};
use std::time::Duration;

/// Why a store did not do what it was asked to. No text ever holds a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The root cannot be opened as it is written.
    #[error("cannot use the data root '{root}': {reason}")]
    Root {
        /// As given.
        root: String,
        /// What is wrong, and what to write instead.
        reason: String,
    },
    /// The folder or bucket of the root does not exist.
    #[error(
        "there is no folder or bucket at '{root}'; check the address and, for S3, the endpoint in AWS_ENDPOINT_URL"
    )]
    NoSuchRoot {
        /// The root.
        root: String,
    },
    /// The key could leave the root or is no key at all.
    #[error("the key '{key}' is not allowed: {reason}")]
    Key {
        /// The key, shortened.
        key: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// There is no such object.
    #[error("there is no object '{key}' in '{root}'")]
    NotFound {
        /// The object.
        key: String,
        /// Its root.
        root: String,
    },
    /// The object is not the version that was listed.
    #[error(
        "the object '{key}' in '{root}' was replaced since it was listed; start again to use the new one"
    )]
    Changed {
        /// The object.
        key: String,
        /// Its root.
        root: String,
    },
    /// There is such an object already.
    #[error("there is an object '{key}' in '{root}' already")]
    AlreadyThere {
        /// The object.
        key: String,
        /// Its root.
        root: String,
    },
    /// The object is larger than the caller takes.
    #[error("the object '{key}' has {size} bytes, at most {limit} are taken")]
    TooLarge {
        /// The object.
        key: String,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The store refuses the credentials.
    #[error(
        "the store of '{root}' refuses access to '{key}' ({reason}); check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, \
         AWS_SESSION_TOKEN and AWS_REGION in the environment of this process, and what they are allowed to do"
    )]
    Denied {
        /// The object, or the root's listing.
        key: String,
        /// Its root.
        root: String,
        /// The store's code, such as `SignatureDoesNotMatch`.
        reason: String,
    },
    /// There are no credentials, and the machine has no role that would give some.
    #[error(
        "there are no credentials for the store of '{root}'; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment \
         of this process, or AWS_SKIP_SIGNATURE=true for a public bucket"
    )]
    NoCredentials {
        /// The root.
        root: String,
    },
    /// Nothing listens where the store should be.
    #[error(
        "cannot reach the store of '{root}': {reason}; check that it runs and that AWS_ENDPOINT_URL names it"
    )]
    Unreachable {
        /// The root.
        root: String,
        /// The operating system's words, such as `Connection refused`.
        reason: String,
    },
    /// The store did not answer in time.
    #[error("the store of '{root}' did not answer for '{key}' within {after:?}")]
    Deadline {
        /// The object, or the root's listing.
        key: String,
        /// Its root.
        root: String,
        /// The deadline.
        after: Duration,
    },
    /// A local folder holds more entries than a listing takes.
    #[error(
        "the folder '{folder}' in '{root}' holds more than {limit} entries; spread them over several folders"
    )]
    TooMany {
        /// The folder, relative to the root.
        folder: String,
        /// The root.
        root: String,
        /// The limit.
        limit: usize,
    },
    /// The store failed in another way.
    #[error("the store of '{root}' failed for '{key}': {reason}")]
    Store {
        /// The object, or the root's listing.
        key: String,
        /// Its root.
        root: String,
        /// The store's code or the operating system's words, shortened.
        reason: String,
    },
}

impl ObjectError {
    /// Whether it says that the object to be created exists.
    pub fn is_already_there(&self) -> bool {
        matches!(self, Self::AlreadyThere { .. })
    }

    /// The class of the error as operations report it.
    pub fn code(&self) -> OpErrorCode {
        match self {
            Self::Root { .. } | Self::Key { .. } | Self::Changed { .. } | Self::AlreadyThere { .. } => {
                OpErrorCode::InvalidArgument
            }
            Self::NoSuchRoot { .. } | Self::NotFound { .. } => OpErrorCode::NotFound,
            Self::TooLarge { .. } | Self::TooMany { .. } => OpErrorCode::TooLarge,
            Self::Denied { .. } | Self::NoCredentials { .. } => OpErrorCode::Security,
            Self::Deadline { .. } => OpErrorCode::Timeout,
            Self::Store { .. } | Self::Unreachable { .. } => OpErrorCode::RuntimeError,
        }
    }
}

impl From<ObjectError> for OpError {
    fn from(error: ObjectError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}
