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
    #[error("there is no folder or bucket at '{root}'; check the address and, for S3, the endpoint in AWS_ENDPOINT_URL")]
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
    #[error("the object '{key}' in '{root}' was replaced since it was listed; start again to use the new one")]
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
    /// The store refuses the credentials, or there are none.
    #[error(
        "the store of '{root}' refuses access to '{key}'; check the credentials in the environment of this process \
         (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION)"
    )]
    Denied {
        /// The object, or the root's listing.
        key: String,
        /// Its root.
        root: String,
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
    /// The root holds more objects than a listing takes.
    #[error("'{root}' holds more than {limit} objects; name a folder below it")]
    TooMany {
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
        /// The store's own text, shortened.
        reason: String,
    },
}

/// The longest text taken over from a store: a whole error page helps nobody.
const LONGEST_REASON: usize = 300;

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
            Self::Denied { .. } => OpErrorCode::Security,
            Self::Deadline { .. } => OpErrorCode::Timeout,
            Self::Store { .. } => OpErrorCode::RuntimeError,
        }
    }

    /// A store's error about `key`, in our words. Texts about credentials are not taken over.
    pub(crate) fn of(error: object_store::Error, root: &str, key: &str) -> Self {
        use object_store::Error;
        let (root, key) = (root.to_owned(), key.to_owned());
        match error {
            Error::NotFound { source, .. } if source.to_string().contains("NoSuchBucket") => Self::NoSuchRoot { root },
            Error::NotFound { .. } => Self::NotFound { key, root },
            Error::Precondition { .. } | Error::NotModified { .. } => Self::Changed { key, root },
            Error::AlreadyExists { .. } => Self::AlreadyThere { key, root },
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Self::Denied { key, root },
            other => Self::other(&other.to_string(), root, key),
        }
    }

    fn other(text: &str, root: String, key: String) -> Self {
        if text.contains("NoSuchBucket") {
            return Self::NoSuchRoot { root };
        }
        if ["InvalidAccessKeyId", "SignatureDoesNotMatch", "credential", "AccessDenied"].iter().any(|word| text.contains(word)) {
            return Self::Denied { key, root };
        }
        let reason = text.replace('\n', " ").chars().take(LONGEST_REASON).collect();
        Self::Store { key, root, reason }
    }
}

impl From<ObjectError> for OpError {
    fn from(error: ObjectError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}
