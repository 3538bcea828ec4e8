use crate::UploadKind;
use frostline_tensor::{Cause, OpError};
use frostline_wire::ErrorClass;
use http::StatusCode;
use std::time::Duration;

/// Why a call to a host brought no answer, or not the one asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The host's address cannot be used.
    #[error("the host address '{url}' cannot be used: {reason}")]
    Address {
        /// As given.
        url: String,
        /// What is wrong with it.
        #[source]
        reason: Cause,
    },
    /// The token cannot be read or sent.
    #[error("cannot use the token: {reason}")]
    Token {
        /// What is wrong; never the token itself.
        #[source]
        reason: Cause,
    },
    /// The certificates to trust cannot be used.
    #[error("cannot use the authorities' certificates: {reason}")]
    Authorities {
        /// What is wrong.
        #[source]
        reason: Cause,
    },
    /// Nobody answers there.
    #[error(
        "cannot reach {}: {reason}; is it running, and is the address right?",
        at(host)
    )]
    Unreachable {
        /// The host.
        host: String,
        /// What the system says.
        reason: String,
    },
    /// The host stayed silent for too long.
    #[error("{} sent nothing for {seconds} s while {doing}", at(host))]
    Silent {
        /// The host.
        host: String,
        /// What was going on.
        doing: &'static str,
        /// The deadline.
        seconds: u64,
    },
    /// The connection broke or the answer ended before its end.
    #[error("the answer of {} was cut off: {reason}", at(host))]
    Interrupted {
        /// The host.
        host: String,
        /// How it broke.
        #[source]
        reason: Cause,
    },
    /// The host says good-bye before it answers: it closes its connections.
    #[error(
        "the host at {host} closed the connection before it answered: {reason}; it is most likely being restarted"
    )]
    Leaving {
        /// The host.
        host: String,
        /// How it said so.
        reason: String,
    },
    /// The host serves, but could not make some rows for reasons of its own.
    #[error("{} could not make all rows now: {reason}", at(host))]
    Lacking {
        /// The host.
        host: String,
        /// What it lacked.
        #[source]
        reason: Cause,
    },
    /// Rows were changed on their way.
    #[error(
        "{rows} of the rows that {} sent are corrupt: their checksums do not match, so something between host and trainer changes bytes",
        at(host)
    )]
    Altered {
        /// The host.
        host: String,
        /// How many.
        rows: usize,
    },
    /// The host is not let at the data, and was not for as long as was asked.
    #[error(
        "{} cannot read the data any more: {reason}; ask its operator, whose log says more, then go on with --resume",
        at(host)
    )]
    DataAccessDenied {
        /// The host.
        host: String,
        /// What the store says.
        #[source]
        reason: Cause,
    },
    /// The host said no.
    #[error("{} answered {status}: {message}", at(host))]
    Refused {
        /// The host.
        host: String,
        /// The HTTP status.
        status: StatusCode,
        /// What can be done about it.
        class: ErrorClass,
        /// The host's own text.
        message: String,
        /// When to ask again, if the host says.
        retry_after: Option<Duration>,
    },
    /// An upload gets no further.
    #[error(
        "the {what} did not get beyond {sent} of its {bytes} bytes in {attempts} attempts to send it to {host}: {source}; check the link, \
         the host keeps what it has"
    )]
    Upload {
        /// The host.
        host: String,
        /// What was sent.
        what: UploadKind,
        /// Bytes the host had at the last attempt.
        sent: u64,
        /// All of them.
        bytes: u64,
        /// Attempts in a row that brought nothing.
        attempts: u32,
        /// What the last attempt ended with.
        source: Box<ClientError>,
    },
    /// The answer is not what the protocol says; versions may differ.
    #[error(
        "{} sent an answer that this trainer does not understand: {reason}; are both of the same version?",
        at(host)
    )]
    Protocol {
        /// The host.
        host: String,
        /// What does not fit.
        #[source]
        reason: Cause,
    },
    /// Samples did not arrive, however often they were asked for.
    #[error(
        "{host} did not deliver {lost} samples (the first is '{first}') in {attempts} attempts: {source}; check the host and the link to it"
    )]
    Lost {
        /// The host, or all of them where there are several.
        host: String,
        /// Samples missing.
        lost: usize,
        /// One of them.
        first: String,
        /// Attempts in a row that brought nothing.
        attempts: u32,
        /// What the last attempt ended with.
        source: Box<ClientError>,
    },
    /// None of several hosts could be used.
    #[error("none of the hosts {hosts} can be used; the last one failed with: {source}")]
    NoHost {
        /// Their addresses.
        hosts: String,
        /// What the last one ended with.
        source: Box<ClientError>,
    },
    /// An image could not be preprocessed for a reason that is not the image.
    #[error("preprocessing on the trainer: {source}")]
    Preprocess {
        /// The operation's own text.
        source: OpError,
    },
    /// A part of this client ended before its time; the host has no part in it.
    #[error("the trainer's {part} ended unexpectedly; this is a fault of Frostline, please report it")]
    Ended {
        /// Which part.
        part: &'static str,
    },
}

/// What a host inside this process is called: its address tells people nothing.
pub(crate) const EMBEDDED: &str = "the embedded host";

/// A host in a sentence.
fn at(host: &str) -> String {
    match host {
        EMBEDDED => host.to_owned(),
        address => format!("the host at {address}"),
    }
}

impl ClientError {
    /// What can be done about it, where a host said no.
    pub fn class(&self) -> Option<ErrorClass> {
        match self {
            Self::Refused { class, .. } => Some(*class),
            _ => None,
        }
    }

    /// Whether the host is well but has no room now.
    pub fn is_busy(&self) -> bool {
        self.class() == Some(ErrorClass::Busy)
    }

    /// Whether the host does not know the token, or no longer.
    pub(crate) fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == StatusCode::UNAUTHORIZED)
    }

    /// Whether the host is on its way out, as for a restart.
    pub(crate) fn is_stopping(&self) -> bool {
        matches!(self, Self::Leaving { .. }) || self.class() == Some(ErrorClass::Stopping)
    }
}
