use crate::{ClientError, Deadlines};
use std::time::Duration;

type Cause = dyn std::error::Error + 'static;

/// The other side, as messages call it, and how long it is waited for.
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) deadlines: Deadlines,
}

impl Peer {
    pub(crate) fn unreachable(&self, error: &Cause) -> ClientError {
        ClientError::Unreachable {
            host: self.name.clone(),
            reason: chain(error),
        }
    }

    /// A connection that ended before its time.
    pub(crate) fn lost(&self, error: &Cause) -> ClientError {
        if said_goodbye(error) {
            return ClientError::Leaving {
                host: self.name.clone(),
                reason: chain(error),
            };
        }
        self.interrupted(chain(error))
    }

    pub(crate) fn interrupted(&self, reason: String) -> ClientError {
        ClientError::Interrupted {
            host: self.name.clone(),
            reason,
        }
    }

    pub(crate) fn protocol(&self, reason: String) -> ClientError {
        ClientError::Protocol {
            host: self.name.clone(),
            reason,
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
fn said_goodbye(error: &Cause) -> bool {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let goodbye = |error: &h2::Error| {
        error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR)
    };
    causes
        .filter_map(|error| error.downcast_ref::<h2::Error>())
        .any(goodbye)
}

/// The texts of an error and all its causes, in one line.
fn chain(error: &Cause) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
