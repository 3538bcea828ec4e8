use crate::Fault;
use crate::codes::is_about_credentials;
use frostline_tensor::{Cause, OpError, OpErrorCode};
use std::time::Duration;

/// What to do for whom a root is lent.
const LENT_ADVICE: &str = "ask whoever runs the host, whose log says more";

/// Why a store did not do what it was asked to. No text ever holds a credential: what `object_store` says is explained, never a cause,
/// for it repeats requests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The root cannot be opened as it is written.
    #[error("cannot use the data root '{root}': {reason}")]
    Root {
        /// As given.
        root: String,
        /// What is wrong, and what to write instead.
        #[source]
        reason: Cause,
    },
    /// The folder or bucket of the root does not exist.
    #[error("there is no folder or bucket at '{root}'; {advice}")]
    NoSuchRoot {
        /// The root.
        root: String,
        /// What to check.
        advice: &'static str,
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
    #[error("the object '{key}' has {size} bytes, over the limit of {limit}")]
    TooLarge {
        /// The object.
        key: String,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// There is no memory to read the object into.
    #[error("the object '{key}' was not read: {error}")]
    OutOfBudget {
        /// The object.
        key: String,
        /// Who has none, and what to do.
        #[source]
        error: OpError,
    },
    /// The store refuses the credentials.
    #[error("the store of '{root}' refuses access to '{key}' ({reason}); {advice}")]
    Denied {
        /// The object, or the root's listing.
        key: String,
        /// Its root.
        root: String,
        /// The store's code, such as `SignatureDoesNotMatch`.
        reason: String,
        /// Whether the root's listing is refused as well.
        everywhere: bool,
        /// Which settings to check.
        advice: &'static str,
    },
    /// There are no credentials, and the machine has no role that would give some.
    #[error("there are no credentials for the store of '{root}'; {advice}")]
    NoCredentials {
        /// The root.
        root: String,
        /// How to give some.
        advice: &'static str,
    },
    /// Nothing listens where the store should be.
    #[error("cannot reach the store of '{root}': {reason}; {advice}")]
    Unreachable {
        /// The root.
        root: String,
        /// The operating system's words, such as `Connection refused`.
        reason: String,
        /// What to check.
        advice: &'static str,
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
    /// A folder holds more entries than a listing takes.
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
    /// An archive of samples cannot be read.
    #[error("the shard '{key}' in '{root}' cannot be read: {reason}")]
    Shard {
        /// The shard.
        key: String,
        /// Its root.
        root: String,
        /// What is wrong with it.
        #[source]
        reason: Cause,
    },
    /// A web server does not list its files.
    #[error(
        "the web server of '{root}' does not list its files ({reason}); turn on WebDAV there (PROPFIND with depth infinity), or \
         keep the data in a folder or a bucket"
    )]
    NoListing {
        /// The root.
        root: String,
        /// What it answered.
        #[source]
        reason: Cause,
    },
    /// A web server is read from, never written to.
    #[error("'{root}' is a web server, which is only read from; write to a folder, s3://, gs:// or az://")]
    ReadOnly {
        /// The root.
        root: String,
    },
    /// The store does not know what was asked of it, such as a condition.
    #[error("the store of '{root}' does not do what was asked of it for '{key}': {reason}")]
    Unsupported {
        /// The object, or the root's listing.
        key: String,
        /// Its root.
        root: String,
        /// The store's code.
        #[source]
        reason: Cause,
    },
    /// The store failed in another way.
    #[error("the store of '{root}' failed for '{key}': {reason}")]
    Store {
        /// The object, or the root's listing.
        key: String,
        /// Its root.
        root: String,
        /// The store's code or the operating system's words, shortened.
        #[source]
        reason: Cause,
        /// What kind of failure it is.
        fault: Fault,
    },
}

impl ObjectError {
    /// Whether there is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Whether it says that the object to be created exists.
    pub fn is_already_there(&self) -> bool {
        matches!(self, Self::AlreadyThere { .. })
    }

    /// Whether the same request may succeed later, without anybody changing anything: the store is busy, down, or not reached.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Store { fault, .. } => fault.may_pass(),
            Self::Unreachable { .. } | Self::Deadline { .. } => true,
            _ => false,
        }
    }

    /// Whether it is the store's word on the object asked for, which asking again does not change.
    pub(crate) fn is_about_the_object(&self) -> bool {
        !matches!(
            self,
            Self::Store { .. } | Self::Unreachable { .. } | Self::Deadline { .. }
        )
    }

    /// The class of the error as operations report it.
    pub fn code(&self) -> OpErrorCode {
        match self {
            Self::Root { .. }
            | Self::Key { .. }
            | Self::Changed { .. }
            | Self::AlreadyThere { .. }
            | Self::Shard { .. }
            | Self::ReadOnly { .. } => OpErrorCode::InvalidArgument,
            Self::NoSuchRoot { .. } | Self::NotFound { .. } => OpErrorCode::NotFound,
            Self::TooLarge { .. } | Self::TooMany { .. } => OpErrorCode::TooLarge,
            Self::OutOfBudget { error, .. } => error.code,
            Self::Denied { .. } | Self::NoCredentials { .. } => OpErrorCode::Security,
            Self::Deadline { .. } => OpErrorCode::Timeout,
            Self::Unsupported { .. } => OpErrorCode::UnsupportedOperation,
            Self::Store { .. } | Self::Unreachable { .. } | Self::NoListing { .. } => {
                OpErrorCode::RuntimeError
            }
        }
    }

    /// How the store failed; `None` for what it says of an object, and for what the caller did wrong.
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

    /// What it says to whom the root is lent: nothing of the settings by which it is opened.
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

    /// Whether it says nothing of the object that was asked for: others fail alike.
    fn is_of_the_host(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Deadline { .. } | Self::NoCredentials { .. } => true,
            Self::Store { fault, .. } => fault.may_pass(),
            Self::NoSuchRoot { .. } => true,
            Self::Denied {
                reason, everywhere, ..
            } => *everywhere || is_about_credentials(reason),
            Self::OutOfBudget { error, .. } => error.host_caused,
            _ => false,
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
