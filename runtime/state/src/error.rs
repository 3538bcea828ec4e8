use frostline_batching::{OutOfBudget, Unfinished};
use frostline_objects::ObjectError;
use frostline_tensor::Cause;
use std::time::Duration;
use tokio::task::JoinError;

/// An error of the shared state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The store failed and the state is unchanged.
    #[error("cannot access the host's state: {0}")]
    Store(#[from] ObjectError),
    /// The store failed during a change, and the outcome is unknown.
    #[error(
        "cannot access the host's state: {error}; the change may have been applied: check, and repeat it if not"
    )]
    OutcomeUnknown {
        /// Error of the store.
        error: ObjectError,
    },
    /// A store that overwrites existing objects despite the condition.
    #[error(
        "cannot keep the host's state in '{root}': the store ignores 'If-None-Match: *' and overwrites existing objects, so hosts would lose \
         each other's changes and a revoked token could stay valid; use a local folder, Amazon S3, Google Cloud Storage, Azure \
         Blob Storage, or a server that supports conditional creates (see stores.md)"
    )]
    Replaces {
        /// The state's address.
        root: String,
    },
    /// A store without support for conditional creates.
    #[error(
        "cannot keep the host's state in '{root}': the store does not support conditional creates ('If-None-Match: *', or hard links in \
         a folder), without which hosts lose each other's changes ({reason}); use a local folder, Amazon S3, Google Cloud Storage, \
         Azure Blob Storage, or a server that supports them (see stores.md)"
    )]
    CreatesNothing {
        /// The state's address.
        root: String,
        /// Error of the store.
        #[source]
        reason: Cause,
    },
    /// An invalid record.
    #[error(
        "invalid record {key} in the host's state: {detail}; restore the state from a backup (frostline admin state restore)"
    )]
    Record {
        /// Key of the record.
        key: String,
        /// Description of the problem.
        #[source]
        detail: Cause,
    },
    /// A record written by a newer version, which this version cannot read.
    #[error(
        "cannot change {name} ({kind}): the record was written by a newer version of frostline; upgrade this host, or make the change on a newer host"
    )]
    Newer {
        /// `guests`, `models` or `tenants`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The location does not contain a state or a backup.
    #[error(
        "no frostline state found in '{root}': specify the host's state, or a folder or bucket with a backup"
    )]
    Empty {
        /// The location.
        root: String,
    },
    /// The location already contains a different backup.
    #[error("'{root}' already contains a different or newer backup; choose an empty folder or prefix")]
    OtherState {
        /// The location.
        root: String,
    },
    /// The existing state cannot be read to find out which tokens were revoked.
    #[error(
        "there is no state in '{root}' that says which tokens were revoked since the backup; either revoke all of them, after which \
         every tenant needs a new one, or keep those of the backup"
    )]
    UnknownTokens {
        /// The state's address.
        root: String,
    },
    /// The change conflicted repeatedly with other changes.
    #[error("conflicting concurrent changes of {kind} in the host's state; retry {name}")]
    Contended {
        /// `guests`, `models` or `tenants`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The requested version has been removed.
    #[error("the {kind} with the SHA-256 {sha256} were removed from this host's state; upload them again")]
    Gone {
        /// `guests` or `models`.
        kind: &'static str,
        /// SHA-256 of the version.
        sha256: String,
    },
    /// The stored bytes are corrupt.
    #[error(
        "the {kind} with the SHA-256 {sha256} are corrupt in this host's state: the stored bytes hash to {found}; remove the name and \
         upload it again"
    )]
    Damaged {
        /// `guests` or `models`.
        kind: &'static str,
        /// SHA-256 of the uploaded bytes.
        sha256: String,
        /// SHA-256 of the stored bytes.
        found: String,
    },
    /// The store did not answer in time.
    #[error("the state did not answer within {} s", after.as_secs())]
    Late {
        /// The time limit.
        after: Duration,
    },
    /// The operating system provided no random bytes.
    #[error("cannot generate a name in the host's state: {0}")]
    Random(#[from] getrandom::Error),
    /// A background task panicked or was cancelled.
    #[error("a background task for the host's state failed: {0}")]
    Work(#[from] JoinError),
    /// Blocking work was cancelled, took too long or panicked.
    #[error("cannot read from the host's state: {0}")]
    Unfinished(#[from] Unfinished),
    /// The name was disabled by an admin.
    #[error("{name} of the {kind} is disabled on this host")]
    Disabled {
        /// `guests` or `models`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The storage quota of the tenant is exceeded.
    #[error("{tenant} exceeds its storage quota with {requested} bytes, the limit is {limit}")]
    Full {
        /// The tenant.
        tenant: String,
        /// Total bytes, including the refused upload.
        requested: u64,
        /// The limit.
        limit: u64,
    },
    /// The limit for recent changes of the tenant in the log is reached.
    #[error(
        "too many changes of {tenant}'s guests and models: they have {bytes} bytes since the last snapshot of the host's state, and up to \
         {limit} are allowed; retry in a minute"
    )]
    LogFull {
        /// The tenant.
        tenant: String,
        /// Bytes in the log.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The limit for model metadata of the tenant is exceeded.
    #[error(
        "metadata limit exceeded: names and shapes of {tenant}'s cuts would use {requested} of {limit} bytes; delete a model first"
    )]
    Facts {
        /// The tenant.
        tenant: String,
        /// Total bytes, including the refused upload.
        requested: u64,
        /// The limit.
        limit: u64,
    },
    /// The limit for the number of names is reached.
    #[error("limit of {limit} {kind} reached; delete an existing name first")]
    TooMany {
        /// `guests` or `models`.
        kind: &'static str,
        /// The limit.
        limit: usize,
    },
}

impl StateError {
    /// Creates an error for an invalid record.
    pub(crate) fn broken(key: &str, detail: impl Into<Cause>) -> Self {
        Self::Record {
            key: key.to_owned(),
            detail: detail.into(),
        }
    }

    /// True if the store reported that the requested object does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_not_found())
    }
}

/// Reason that audit entries cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The entries do not fit in the memory budget.
    #[error("{0}; use a smaller limit")]
    Memory(#[from] OutOfBudget),
    /// The entries cannot be read.
    #[error("cannot read the audit log: {0}")]
    State(#[from] StateError),
}
