use crate::{ClientError, Deadlines};
use frostline_tensor::{Cause, one_line};
use std::error::Error;
use std::time::Duration;

/// The other side, as messages call it, and how long it is waited for.
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) deadlines: Deadlines,
}

impl Peer {
    pub(crate) fn unreachable(&self, error: &(dyn Error + 'static)) -> ClientError {
        ClientError::Unreachable {
            host: self.name.clone(),
            reason: one_line(error),
        }
    }

    /// A connection that ended before its time.
    pub(crate) fn lost(&self, error: &(dyn Error + 'static)) -> ClientError {
        if said_goodbye(error) {
            return ClientError::Leaving {
                host: self.name.clone(),
                reason: one_line(error),
            };
        }
        self.interrupted(one_line(error))
    }

    pub(crate) fn interrupted(&self, reason: impl Into<Cause>) -> ClientError {
        ClientError::Interrupted {
            host: self.name.clone(),
            reason: reason.into(),
        }
    }

    pub(crate) fn protocol(&self, reason: impl Into<Cause>) -> ClientError {
        ClientError::Protocol {
            host: self.name.clone(),
            reason: reason.into(),
        }
    }

    pub(crate) fn silent(&self, doing: &'static str, deadline: Duration) -> ClientError {
        ClientError::Silent {
            host: self.name.clone(),
            doing,
            seconds: deadline.as_secs(),
        }
    }
}

/// Whether a connection ended because the other side said good-bye (HTTP/2's GOAWAY without an error, RFC 9113, section 6.8), not
/// because it broke.
fn said_goodbye(error: &(dyn Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let goodbye = |error: &h2::Error| {
        error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR)
    };
    causes
        .filter_map(|error| error.downcast_ref::<h2::Error>())
        .any(goodbye)
}
