use crate::refusal::Refusal;
use frostline_objects::ObjectError;
use frostline_tensor::Cause;
use frostline_wire::QuotaKey;
use tokio::task::JoinError;

/// State that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The store failed, and nothing was changed.
    #[error("the host's state: {0}")]
    Store(#[from] ObjectError),
    /// The store failed while something was changed.
    #[error(
        "the host's state: {error}; whether the change was made is not known: look, and do it again if it was not"
    )]
    Unsure {
        /// What the store said.
        error: ObjectError,
    },
    /// A store whose creates replace what is there.
    #[error(
        "the host's state cannot lie in '{root}': that store replaces an object that was only to be created (it passes over \
         'If-None-Match: *'), so that hosts would lose each other's changes and a revoked token could go on working; use a local \
         folder, Amazon S3, Google Cloud Storage, Azure Blob Storage, or a server that keeps to the condition (stores.md names some)"
    )]
    Replaces {
        /// The state's address.
        root: String,
    },
    /// A store that creates nothing.
    #[error(
        "the host's state cannot lie in '{root}': that store writes objects, but does not create them only where none is \
         ('If-None-Match: *', or hard links in a folder), which hosts need so as not to lose each other's changes ({reason}); use a \
         local folder, Amazon S3, Google Cloud Storage, Azure Blob Storage, or a server that knows the condition (stores.md names some)"
    )]
    CreatesNothing {
        /// The state's address.
        root: String,
        /// What it answered.
        #[source]
        reason: Cause,
    },
    /// A record nobody can read.
    #[error(
        "the host's state has a broken record {key}: {detail}; restore it, or write {{}} in its place and do again what it was \
         about"
    )]
    Record {
        /// Its key.
        key: String,
        /// What is wrong.
        #[source]
        detail: Cause,
    },
    /// Others keep changing the state.
    #[error("the {kind} of this host's state are being changed by too many others; try {name} again")]
    Contended {
        /// `guests`, `models` or `tenants`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// Bytes that no version stands for any more.
    #[error("the {kind} with the SHA-256 {sha256} were removed from this host's state; upload them again")]
    Gone {
        /// `guests` or `models`.
        kind: &'static str,
        /// The hash.
        sha256: String,
    },
    /// Bytes that are not those that were uploaded.
    #[error(
        "the {kind} with the SHA-256 {sha256} are damaged in this host's state: the bytes there hash to {found}; remove the name \
         and upload it again"
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
    #[error("no random bytes for a name in the host's state: {0}")]
    Random(#[from] getrandom::Error),
    /// Work on a thread of its own was lost.
    #[error("work on the host's state was lost: {0}")]
    Work(#[from] JoinError),
    /// A name that an admin refuses.
    #[error("{name} of the {kind} is disabled on this host")]
    Disabled {
        /// `guests` or `models`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// More bytes than a tenant may store.
    #[error("{tenant} may store {limit} bytes here, and this would take {wanted}")]
    Full {
        /// The tenant.
        tenant: String,
        /// Bytes that it would have stored.
        wanted: u64,
        /// The limit.
        limit: u64,
    },
    /// More kept of models than one tenant may have.
    #[error(
        "what this host keeps of {tenant}'s models, the names and shapes of their cuts, would take {wanted} bytes; at most {limit} are kept of \
         a tenant's: delete a model first"
    )]
    Facts {
        /// Whose they are.
        tenant: String,
        /// What it would take.
        wanted: u64,
        /// The limit.
        limit: u64,
    },
    /// More names than allowed.
    #[error("this host keeps at most {limit} {kind}; delete one first")]
    TooMany {
        /// `guests` or `models`.
        kind: &'static str,
        /// The limit.
        limit: usize,
    },
}

impl StateError {
    /// A record that is no JSON, or not the JSON it should be.
    pub(super) fn broken(key: &str, detail: impl Into<Cause>) -> Self {
        Self::Record {
            key: key.to_owned(),
            detail: detail.into(),
        }
    }

    /// What tenants are told: not where the state lies, nor what others have there. That is for the log.
    pub(crate) fn told(&self) -> String {
        let told = match self {
            Self::Store(_) => {
                "the host's state cannot be read or written now, and nothing was changed; try again later"
            }
            Self::Unsure { .. } => {
                "the host's state could not be written, and whether the change was made is not known: look, and do it again if it was not"
            }
            _ => return self.to_string(),
        };
        tracing::error!(error = %self, "the state's store failed");
        format!("{told} (whoever runs the host finds the cause in its log)")
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
                wanted,
                limit,
            } => Self::Quota {
                tenant,
                key: QuotaKey::StoredBytes,
                wanted,
                limit,
            },
            StateError::Gone { .. } => Self::not_found(error.to_string()),
            _ => Self::host(error.told()),
        }
    }
}
