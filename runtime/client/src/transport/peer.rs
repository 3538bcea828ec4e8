use crate::{ClientError, Deadlines};
use frostline_tensor::{Cause, one_line};
use std::error::Error;
use std::time::Duration;

/// Host name for messages and deadlines for calls.
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) deadlines: Deadlines,
}

impl Peer {
    pub(crate) fn unreachable(&self, error: &(dyn Error + 'static)) -> ClientError {
        ClientError::Unreachable {
            host: self.name.clone(),
            reason: if is_plain(error) {
                let plain = self.name.replacen("https://", "http://", 1);
                format!("it does not speak TLS; use {plain}")
            } else {
                one_line(error)
            },
        }
    }

    /// Returns the error for an early end of the connection.
    pub(crate) fn lost(&self, error: &(dyn Error + 'static)) -> ClientError {
        if said_goodbye(error) {
            return ClientError::Leaving {
                host: self.name.clone(),
                reason: one_line(error),
            };
        }
        if reset_by(error, h2::Reason::ENHANCE_YOUR_CALM) {
            return self.interrupted(
                "slow reading exceeded the host's buffer; request fewer samples or read faster",
            );
        }
        if self.name.starts_with("http://") && is_no_http2(error) {
            let encrypted = self.name.replacen("http://", "https://", 1);
            return ClientError::Unreachable {
                host: self.name.clone(),
                reason: format!("it does not speak HTTP/2 without TLS; if it serves TLS, use {encrypted}"),
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

/// Returns true if the peer answered a TLS handshake without TLS.
fn is_plain(error: &(dyn Error + 'static)) -> bool {
    let invalid = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
    causes(error).any(|error| error.downcast_ref::<rustls::Error>() == Some(&invalid))
}

/// Returns true if the peer does not speak HTTP/2. TLS alerts and HTTP/1 answers look like oversized frames.
fn is_no_http2(error: &(dyn Error + 'static)) -> bool {
    of_http2(error).any(|error| !error.is_remote() && error.reason() == Some(h2::Reason::FRAME_SIZE_ERROR))
}

/// Returns true if the peer reset the request for this reason.
fn reset_by(error: &(dyn Error + 'static), reason: h2::Reason) -> bool {
    of_http2(error).any(|error| error.is_reset() && error.is_remote() && error.reason() == Some(reason))
}

/// Returns true if the peer closed the connection in an orderly way (GOAWAY without an error, RFC 9113,
/// section 6.8).
fn said_goodbye(error: &(dyn Error + 'static)) -> bool {
    of_http2(error)
        .any(|error| error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR))
}

/// Returns the HTTP/2 errors among `error` and all causes.
fn of_http2<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a h2::Error> {
    causes(error).filter_map(|error| error.downcast_ref::<h2::Error>())
}

/// Returns an error and all causes. The source of an I/O error skips the inner error, so the inner error is
/// visited explicitly.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let inner = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        match inner {
            Some(inner) => Some(inner as &(dyn Error + 'static)),
            None => error.source(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};

    /// Message of the error for a stream that the host resets for this reason.
    async fn told_of(reason: h2::Reason) -> String {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let host = tokio::spawn(async move {
            let mut connection = h2::server::handshake(theirs).await.unwrap();
            let (_request, mut answering) = connection.accept().await.unwrap().unwrap();
            let mut body = answering.send_response(Response::new(()), false).unwrap();
            body.send_reset(reason);
            while connection.accept().await.is_some() {}
        });
        let (mut client, connection) = h2::client::handshake(ours).await.unwrap();
        let connection = tokio::spawn(connection);
        let request = Request::get("http://host/").body(()).unwrap();
        let (answer, _) = client.send_request(request, true).unwrap();
        let error = match answer.await {
            Ok(answer) => answer.into_body().data().await.unwrap().unwrap_err(),
            Err(error) => error,
        };
        host.abort();
        connection.abort();
        let peer = Peer {
            name: "host".to_owned(),
            deadlines: Deadlines::default(),
        };
        peer.lost(&error).to_string()
    }

    #[tokio::test]
    async fn a_slow_reader_is_advised_to_request_fewer_samples() {
        let told = told_of(h2::Reason::ENHANCE_YOUR_CALM).await;
        assert!(told.contains("request fewer samples"), "{told}");
        let told = told_of(h2::Reason::INTERNAL_ERROR).await;
        assert!(!told.contains("fewer samples"), "{told}");
    }
}
