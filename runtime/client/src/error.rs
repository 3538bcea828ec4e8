use crate::UploadKind;
use frostline_tensor::{Cause, OpError, without_secrets};
use frostline_wire::ErrorClass;
use http::StatusCode;
use std::time::Duration;

/// Error of a call to a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The host's address is invalid.
    #[error("the host address '{url}' cannot be used: {reason}")]
    Address {
        /// Address without credentials.
        url: String,
        /// Reason.
        #[source]
        reason: Cause,
    },
    /// The token is unreadable or invalid.
    #[error("cannot use the token: {reason}")]
    Token {
        /// Reason, without the token itself.
        #[source]
        reason: Cause,
    },
    /// The certificates to trust cannot be used.
    #[error("cannot use the CA certificates: {reason}")]
    Authorities {
        /// Reason.
        #[source]
        reason: Cause,
    },
    /// Connecting to the host failed.
    #[error(
        "cannot reach {}: {reason} (check that it is running and that the address is correct)",
        at(host)
    )]
    Unreachable {
        /// The host.
        host: String,
        /// Message of the operating system.
        reason: String,
    },
    /// The host sent nothing within the deadline.
    #[error("{} sent nothing for {seconds} s while {doing}", at(host))]
    Silent {
        /// The host.
        host: String,
        /// Operation in progress.
        doing: &'static str,
        /// Deadline in seconds.
        seconds: u64,
    },
    /// The host took an upload at less than the minimum rate.
    #[error(
        "cannot upload to {}: it accepted less than {bytes} bytes in {seconds} s; check the link, or use another host",
        at(host)
    )]
    SlowUpload {
        /// The host.
        host: String,
        /// Size of the upload in bytes.
        bytes: u64,
        /// Deadline in seconds.
        seconds: u64,
    },
    /// The connection broke or the answer ended early.
    #[error("the answer from {} was cut off: {reason}", at(host))]
    Interrupted {
        /// The host.
        host: String,
        /// Reason.
        #[source]
        reason: Cause,
    },
    /// The host closed the connection in an orderly way before it answered.
    #[error("the host at {host} closed the connection before answering: {reason}; it is probably restarting")]
    Leaving {
        /// The host.
        host: String,
        /// Message of the connection.
        reason: String,
    },
    /// The host works, but could not compute some rows, for example because of insufficient memory.
    #[error("{} could not compute all rows: {reason}", at(host))]
    RowsUnavailable {
        /// The host.
        host: String,
        /// Reason.
        #[source]
        reason: Cause,
    },
    /// Rows were corrupted in transit.
    #[error(
        "{rows} of the rows from {} are corrupt: checksums do not match; check the network between host and trainer",
        at(host)
    )]
    CorruptRows {
        /// The host.
        host: String,
        /// Number of corrupt rows.
        rows: usize,
    },
    /// The store denied the host access to the data until all retries were used up.
    #[error(
        "{} can no longer read the data: {reason}; ask the operator to check the host's log",
        at(host)
    )]
    DataAccessDenied {
        /// The host.
        host: String,
        /// Message of the store.
        #[source]
        reason: Cause,
    },
    /// The host refused the request.
    #[error("{} answered {status}: {message}", at(host))]
    Refused {
        /// The host.
        host: String,
        /// The HTTP status.
        status: StatusCode,
        /// Class of the refusal.
        class: ErrorClass,
        /// Message of the host.
        message: String,
        /// Time after which to retry, if the host provides one.
        retry_after: Option<Duration>,
    },
    /// An upload failed after repeated attempts without progress.
    #[error(
        "cannot upload the {what} to {host}: stopped at {sent} of {bytes} bytes after {attempts} attempts: {source}; check the link and retry, \
         the host keeps the bytes it received"
    )]
    Upload {
        /// The host.
        host: String,
        /// Kind of the upload.
        what: UploadKind,
        /// Offset of the last attempt in bytes.
        sent: u64,
        /// Size of the upload in bytes.
        bytes: u64,
        /// Number of consecutive attempts without progress.
        attempts: u32,
        /// Error of the last attempt.
        source: Box<ClientError>,
    },
    /// The answer violates the protocol, for example because the versions differ.
    #[error(
        "{} sent an answer that this trainer does not understand: {reason}; are both of the same version?",
        at(host)
    )]
    Protocol {
        /// The host.
        host: String,
        /// Reason.
        #[source]
        reason: Cause,
    },
    /// Samples are missing after all retries.
    #[error(
        "{host} did not deliver {lost} samples (the first is '{first}') in {attempts} attempts: {source}; check the host and the link to it"
    )]
    Lost {
        /// Address of the host. For multiple hosts, all addresses.
        host: String,
        /// Number of missing samples.
        lost: usize,
        /// Key of the first missing sample.
        first: String,
        /// Number of consecutive failed attempts without samples. Answers of busy or stopping hosts and
        /// immediate moves to another host are not counted.
        attempts: u32,
        /// Error of the last attempt.
        source: Box<ClientError>,
    },
    /// All hosts failed.
    #[error("none of the hosts {hosts} can be used; the last one failed with: {source}")]
    NoHost {
        /// Addresses of the hosts.
        hosts: String,
        /// Error of the last host.
        source: Box<ClientError>,
    },
    /// Preprocessing failed for a reason other than the image.
    #[error("preprocessing on the trainer failed: {source}")]
    Preprocess {
        /// Error of the operation.
        source: OpError,
    },
    /// An internal error of this client: a task ended unexpectedly, or an expected value is missing. The host
    /// is not involved.
    #[error("the trainer's {part} ended unexpectedly; this is a fault of Frostline, please report it")]
    Ended {
        /// Name of the task or of the missing value.
        part: &'static str,
    },
}

/// Name of a host inside this process in messages, because the address is of no use to people.
pub(crate) const EMBEDDED: &str = "the embedded host";

/// Formats a host for a message.
fn at(host: &str) -> String {
    match host {
        EMBEDDED => host.to_owned(),
        address => format!("the host at {address}"),
    }
}

impl ClientError {
    /// Returns the error for an invalid address, which may contain credentials.
    pub(crate) fn address(url: &str, reason: impl Into<Cause>) -> Self {
        let shown = without_secrets(url);
        // Without a valid scheme, user and password are still there.
        let host = shown.rsplit('@').next().unwrap_or_default();
        Self::Address {
            url: host.to_owned(),
            reason: reason.into(),
        }
    }

    /// Returns the class if this is a refusal.
    pub fn class(&self) -> Option<ErrorClass> {
        match self {
            Self::Refused { class, .. } => Some(*class),
            _ => None,
        }
    }

    /// Returns true if the host works but has no capacity now.
    pub fn is_busy(&self) -> bool {
        self.class() == Some(ErrorClass::Busy)
    }

    /// Returns true if the host does not accept the token.
    pub(crate) fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == StatusCode::UNAUTHORIZED)
    }

    /// Returns true if the host is draining, for example before a restart.
    pub(crate) fn is_stopping(&self) -> bool {
        matches!(self, Self::Leaving { .. }) || self.class() == Some(ErrorClass::Stopping)
    }
}
