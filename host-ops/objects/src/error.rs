use crate::Fault;
use crate::codes::is_about_credentials;
use frostline_tensor::{Cause, OpError, OpErrorCode};
use std::time::Duration;

/// Advice for users of a lent root.
const LENT_ADVICE: &str = "ask the operator of the host to check the log";

/// Error of a store operation. Messages never contain credentials. Errors of `object_store` are explained and
/// never kept as a source, because they repeat requests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The address or settings of the root are invalid.
    #[error("cannot use the data root '{root}': {reason}")]
    Root {
        /// The root, without credentials.
        root: String,
        /// The problem and the fix.
        #[source]
        reason: Cause,
    },
    /// The folder or bucket of the root does not exist.
    #[error("the folder or bucket '{root}' does not exist; {advice}")]
    NoSuchRoot {
        /// The root.
        root: String,
        /// What to check.
        advice: &'static str,
    },
    /// The key is invalid or could leave the root.
    #[error("the key '{key}' is not allowed: {reason}")]
    Key {
        /// The key, shortened.
        key: String,
        /// The violated rule.
        reason: &'static str,
    },
    /// The object does not exist.
    #[error("the object '{key}' does not exist in '{root}'")]
    NotFound {
        /// The object.
        key: String,
        /// Its root.
        root: String,
    },
    /// The object was replaced after the listing.
    #[error("the object '{key}' in '{root}' was replaced since it was listed")]
    Changed {
        /// The object.
        key: String,
        /// Its root.
        root: String,
    },
    /// The object is in an archive storage class.
    #[error(
        "the object '{key}' in '{root}' is archived ({}) and must be restored before it can be read; restore it or leave it out",
        class.as_deref().unwrap_or("storage class unknown")
    )]
    Archived {
        /// The object.
        key: String,
        /// Its root.
        root: String,
        /// The storage class, for example `DEEP_ARCHIVE`.
        class: Option<String>,
    },
    /// The object is stored compressed, so its bytes are not those of the file.
    #[error(
        "cannot read '{key}' in '{root}': stored with Content-Encoding {encoding}; upload it again without compression"
    )]
    Compressed {
        /// The object.
        key: String,
        /// Its root.
        root: String,
        /// Value of the header.
        encoding: String,
    },
    /// An object with this key exists.
    #[error("the object '{key}' already exists in '{root}'")]
    AlreadyThere {
        /// The object.
        key: String,
        /// Its root.
        root: String,
    },
    /// The object exceeds the caller's limit.
    #[error("the object '{key}' has {size} bytes, over the limit of {limit}")]
    TooLarge {
        /// The object.
        key: String,
        /// Size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// No memory is available to read the object.
    #[error("the object '{key}' was not read: {error}")]
    OutOfBudget {
        /// The object.
        key: String,
        /// Error of the memory budget.
        #[source]
        error: OpError,
    },
    /// The store refuses access.
    #[error("the store of '{root}' refuses access to '{key}' ({reason}); {advice}")]
    Denied {
        /// Object key or `its listing`.
        key: String,
        /// Its root.
        root: String,
        /// Error code of the store (`SignatureDoesNotMatch`), or a description.
        reason: String,
        /// True if the listing of the root is also refused.
        everywhere: bool,
        /// Which settings to check.
        advice: &'static str,
    },
    /// Credentials are missing, and the machine has no role.
    #[error("there are no credentials for the store of '{root}'; {advice}")]
    NoCredentials {
        /// The root.
        root: String,
        /// How to provide credentials.
        advice: &'static str,
    },
    /// The connection to the store failed.
    #[error("cannot reach the store of '{root}': {reason}; {advice}")]
    Unreachable {
        /// The root.
        root: String,
        /// Message of the operating system or HTTP client, for example `Connection refused`.
        reason: String,
        /// What to check.
        advice: &'static str,
    },
    /// The operation exceeded the deadline.
    #[error("the store of '{root}' did not answer a request for '{key}' within {after:?}")]
    Deadline {
        /// Object key or `its listing`.
        key: String,
        /// Its root.
        root: String,
        /// The deadline.
        after: Duration,
    },
    /// A folder or listing exceeds the maximum number of entries.
    #[error("the folder '{folder}' in '{root}' contains more than {limit} entries; use several folders")]
    TooMany {
        /// The folder, relative to the root.
        folder: String,
        /// The root.
        root: String,
        /// The limit.
        limit: usize,
    },
    /// The answers of a store to a listing exceed the maximum number of bytes.
    #[error("listing '{root}' needs more than {limit} bytes; grant smaller folders as data roots")]
    LongListing {
        /// The root.
        root: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// The shard is not readable.
    #[error("the shard '{key}' in '{root}' cannot be read: {reason}")]
    Shard {
        /// The shard.
        key: String,
        /// Its root.
        root: String,
        /// The problem with the archive.
        #[source]
        reason: Cause,
    },
    /// The web server does not list files.
    #[error(
        "the web server of '{root}' does not list its files ({reason}); turn on WebDAV there (PROPFIND with depth infinity), or \
         keep the data in a folder or a bucket"
    )]
    NoListing {
        /// The root.
        root: String,
        /// The server's answer.
        #[source]
        reason: Cause,
    },
    /// The root is a web server, which is read-only.
    #[error("'{root}' is a web server, which is read-only; write to a folder, s3://, gs:// or az://")]
    ReadOnly {
        /// The root.
        root: String,
    },
    /// The store does not support the request or condition.
    #[error("the store of '{root}' does not support the request for '{key}': {reason}")]
    Unsupported {
        /// Object key or `its listing`.
        key: String,
        /// Its root.
        root: String,
        /// The store's code, or the missing feature.
        #[source]
        reason: Cause,
    },
    /// Any other failure.
    #[error("the store of '{root}' failed for '{key}': {reason}")]
    Store {
        /// Object key or `its listing`.
        key: String,
        /// Its root.
        root: String,
        /// Code of the store or message of the operating system, shortened.
        #[source]
        reason: Cause,
        /// Type of failure.
        fault: Fault,
    },
}

impl ObjectError {
    /// Returns true if the object does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Returns true if the object to be created already exists.
    pub fn is_already_there(&self) -> bool {
        matches!(self, Self::AlreadyThere { .. })
    }

    /// Returns true if the same request may succeed later, because the store is busy, down or unreachable.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Store { fault, .. } => fault.may_pass(),
            Self::Unreachable { .. } | Self::Deadline { .. } => true,
            _ => false,
        }
    }

    /// Returns true if the error is specific to the request. A second attempt would fail the same way.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::Store { .. } | Self::Unreachable { .. } | Self::Deadline { .. }
        )
    }

    /// Returns the code of the corresponding [`OpError`].
    pub fn code(&self) -> OpErrorCode {
        match self {
            Self::Root { .. }
            | Self::Key { .. }
            | Self::Changed { .. }
            | Self::AlreadyThere { .. }
            | Self::Archived { .. }
            | Self::Compressed { .. }
            | Self::Shard { .. }
            | Self::ReadOnly { .. } => OpErrorCode::InvalidArgument,
            Self::NoSuchRoot { .. } | Self::NotFound { .. } => OpErrorCode::NotFound,
            Self::TooLarge { .. } | Self::TooMany { .. } | Self::LongListing { .. } => OpErrorCode::TooLarge,
            Self::OutOfBudget { error, .. } => error.code,
            Self::Denied { .. } | Self::NoCredentials { .. } => OpErrorCode::Security,
            Self::Deadline { .. } => OpErrorCode::Timeout,
            Self::Unsupported { .. } => OpErrorCode::UnsupportedOperation,
            Self::Store { .. } | Self::Unreachable { .. } | Self::NoListing { .. } => {
                OpErrorCode::RuntimeError
            }
        }
    }

    /// Returns the type of store failure, or `None` if the error concerns a single object or is a mistake of
    /// the caller.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Store { fault, .. } => Some(*fault),
            Self::Denied { reason, .. } if !is_about_credentials(reason) => Some(Fault::Denied),
            Self::Denied { .. } | Self::NoCredentials { .. } => Some(Fault::Credentials),
            Self::NoSuchRoot { .. } => Some(Fault::NoBucket),
            Self::Unreachable { .. } => Some(Fault::Unreachable),
            Self::Deadline { .. } => Some(Fault::Timeout),
            Self::Root { .. } | Self::NoListing { .. } | Self::Unsupported { .. } => Some(Fault::Failed),
            _ => None,
        }
    }

    /// Returns the error for users of a lent root, without advice about the settings of this process.
    #[must_use]
    pub fn lent(mut self) -> Self {
        match &mut self {
            Self::Root { reason, .. } => *reason = LENT_ADVICE.into(),
            Self::NoSuchRoot { advice, .. }
            | Self::Denied { advice, .. }
            | Self::NoCredentials { advice, .. }
            | Self::Unreachable { advice, .. } => *advice = LENT_ADVICE,
            _ => {}
        }
        self
    }

    /// Returns true if the error is not specific to the object. Other requests fail the same way.
    fn is_of_the_host(&self) -> bool {
        match self {
            Self::NoCredentials { .. } | Self::NoSuchRoot { .. } => true,
            Self::Denied {
                reason, everywhere, ..
            } => *everywhere || is_about_credentials(reason),
            Self::OutOfBudget { error, .. } => error.host_caused,
            error => error.is_temporary(),
        }
    }
}

impl From<ObjectError> for OpError {
    fn from(error: ObjectError) -> Self {
        Self {
            host_caused: error.is_of_the_host(),
            ..Self::new(error.code(), error.to_string())
        }
    }
}
