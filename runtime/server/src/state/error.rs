use crate::refusal::Refusal;
use frostline_objects::ObjectError;
use frostline_tensor::Cause;
use frostline_wire::QuotaKey;
use tokio::task::JoinError;

/// An error of the shared state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The store failed, and nothing was changed.
    #[error("cannot access the host's state: {0}")]
    Store(#[from] ObjectError),
    /// The store failed while something was changed.
    #[error(
        "cannot access the host's state: {error}; the change may have been applied: check, and repeat it if not"
    )]
    Unsure {
        /// What the store said.
        error: ObjectError,
    },
    /// A store whose creates overwrite objects.
    #[error(
        "cannot keep the host's state in '{root}': the store ignores 'If-None-Match: *' and overwrites existing objects, so hosts would lose \
         each other's changes and a revoked token could stay valid; use a local folder, Amazon S3, Google Cloud Storage, Azure \
         Blob Storage, or a server that supports conditional creates (see stores.md)"
    )]
    Replaces {
        /// The state's address.
        root: String,
    },
    /// A store without conditional creates.
    #[error(
        "cannot keep the host's state in '{root}': the store does not support conditional creates ('If-None-Match: *', or hard links in \
         a folder), without which hosts lose each other's changes ({reason}); use a local folder, Amazon S3, Google Cloud Storage, \
         Azure Blob Storage, or a server that supports them (see stores.md)"
    )]
    CreatesNothing {
        /// The state's address.
        root: String,
        /// What it answered.
        #[source]
        reason: Cause,
    },
    /// A record that is no JSON, whatever wrote it.
    #[error(
        "invalid record {key} in the host's state: {detail}; restore the state from a backup (frostline admin state restore)"
    )]
    Record {
        /// Its key.
        key: String,
        /// What is wrong.
        #[source]
        detail: Cause,
    },
    /// A record that this version cannot read.
    #[error(
        "cannot change {name} of the {kind}: a newer version of frostline wrote its record; upgrade this host, or make the change at a newer one"
    )]
    Newer {
        /// `guests`, `models` or `tenants`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// Where a state or a backup should be there is none.
    #[error(
        "there is no state of frostline in '{root}'; name the host's state, or a folder or bucket that a backup was written to"
    )]
    Empty {
        /// The address.
        root: String,
    },
    /// A backup would go where that of another state is.
    #[error(
        "'{root}' holds a backup of another state, or a newer one of this; choose an empty folder or prefix"
    )]
    OtherState {
        /// The address.
        root: String,
    },
    /// A restore cannot find out which tokens were revoked.
    #[error(
        "there is no state in '{root}' that says which tokens were revoked since the backup; choose --tokens revoke, after which every tenant \
         needs a new one (frostline admin tenant rotate), or --tokens keep"
    )]
    UnknownTokens {
        /// The state's address.
        root: String,
    },
    /// Too many concurrent changes.
    #[error("too many concurrent changes of {kind} in the host's state; retry {name}")]
    Contended {
        /// `guests`, `models` or `tenants`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// Bytes of a removed version.
    #[error("the {kind} with the SHA-256 {sha256} were removed from this host's state; upload them again")]
    Gone {
        /// `guests` or `models`.
        kind: &'static str,
        /// The hash.
        sha256: String,
    },
    /// Corrupt bytes.
    #[error(
        "the {kind} with the SHA-256 {sha256} are corrupt in this host's state: the stored bytes hash to {found}; remove the name and \
         upload it again"
    )]
    Damaged {
        /// `guests` or `models`.
        kind: &'static str,
        /// The hash of what was uploaded.
        sha256: String,
        /// The hash of what is there.
        found: String,
    },
    /// The system gave no random bytes.
    #[error("cannot generate a name in the host's state: {0}")]
    Random(#[from] getrandom::Error),
    /// A task panicked or was cancelled.
    #[error("a task on the host's state failed: {0}")]
    Work(#[from] JoinError),
    /// A name that an admin disabled.
    #[error("{name} of the {kind} is disabled on this host")]
    Disabled {
        /// `guests` or `models`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The tenant's storage quota is exceeded.
    #[error("storage quota of {tenant} exceeded: {requested} of {limit} bytes")]
    Full {
        /// The tenant.
        tenant: String,
        /// Bytes requested.
        requested: u64,
        /// The limit.
        limit: u64,
    },
    /// The tenant's limit of model metadata is exceeded.
    #[error(
        "metadata limit exceeded: names and shapes of {tenant}'s cuts would take {requested} of {limit} bytes; delete a model first"
    )]
    Facts {
        /// Whose they are.
        tenant: String,
        /// Bytes requested.
        requested: u64,
        /// The limit.
        limit: u64,
    },
    /// More names than allowed.
    #[error("limit of {limit} {kind} reached; delete one first")]
    TooMany {
        /// `guests` or `models`.
        kind: &'static str,
        /// The limit.
        limit: usize,
    },
}

impl StateError {
    /// A record that is no JSON, or not the JSON it should be.
    pub(crate) fn broken(key: &str, detail: impl Into<Cause>) -> Self {
        Self::Record {
            key: key.to_owned(),
            detail: detail.into(),
        }
    }

    /// The message for tenants, without the state's location or others' content; the full error is logged.
    pub(crate) fn tenant_message(&self) -> String {
        let message = match self {
            Self::Store(_) => "the host's state is unavailable, and nothing was changed; retry later",
            Self::Unsure { .. } => {
                "the host's state could not be written; the change may have been applied: check, and repeat it if not"
            }
            _ => return self.to_string(),
        };
        tracing::error!(error = %self, "state store failed");
        format!("{message} (the cause is in the host's log)")
    }

    /// Whether the store said that what was to be read is not there.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_not_found())
    }
}

impl From<StateError> for Refusal {
    fn from(error: StateError) -> Self {
        match error {
            StateError::TooMany { .. } | StateError::Facts { .. } => Self::request(error.to_string()),
            StateError::Full {
                tenant,
                requested,
                limit,
            } => Self::Quota {
                tenant,
                key: QuotaKey::StoredBytes,
                requested,
                limit,
            },
            StateError::Gone { .. } => Self::not_found(error.to_string()),
            _ => Self::host(error.tenant_message()),
        }
    }
}
