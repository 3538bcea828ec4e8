//! Activity on a connection. Either the host works on a request, or the client has to read an answer or send
//! a request.

use super::pace::{Pace, RATE};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::Instant;

/// Activity on a connection.
pub(super) struct Traffic {
    state: Mutex<Requests>,
}

struct Requests {
    next: u64,
    open: HashMap<u64, Exchange>,
    /// End of the last request.
    ended: Instant,
}

/// State of an open request.
struct Exchange {
    /// True while the host works on the request or on the next part of the answer.
    working: bool,
    /// Bytes of the answer that were handed to the connection and not sent.
    unsent: u64,
    /// Pace of the client while it reads the answer.
    pace: Pace,
    /// Time of the last change.
    since: Instant,
}

impl Exchange {
    fn waits_for_client(&self) -> bool {
        self.unsent > 0 || !self.working
    }

    /// Accounts for the time since the last change, and for `sent` bytes that the client accepted.
    fn advance(&mut self, sent: u64) {
        let now = Instant::now();
        if self.waits_for_client() {
            self.pace.record(now - self.since, sent);
        }
        self.unsent = self.unsent.saturating_sub(sent);
        self.since = now;
    }
}

/// Side that has to act next on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitsFor {
    /// The host is working on a request.
    Host,
    /// The client has had no open request since this time.
    Idle(Instant),
    /// The client would have read an answer by this time, according to its [`Pace`].
    Reader(Instant),
}

/// Open request. Dropping it ends the request.
pub(super) struct OpenRequest {
    traffic: Arc<Traffic>,
    id: u64,
}

/// Answer body that reports progress to [`Traffic`]. The request is open until the last byte was sent.
pub(super) struct TrackedBody<B> {
    body: B,
    open: Arc<OpenRequest>,
}

/// Bytes in the send buffer of a connection.
struct Sending {
    bytes: Bytes,
    open: Arc<OpenRequest>,
}

impl AsRef<[u8]> for Sending {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.open
            .change(|exchange| exchange.advance(self.bytes.len() as u64));
    }
}

impl Traffic {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(Requests {
                next: 0,
                open: HashMap::new(),
                ended: Instant::now(),
            }),
        })
    }

    /// Begins a request.
    pub(super) fn open(self: &Arc<Self>) -> OpenRequest {
        let mut state = self.state.lock();
        state.next += 1;
        let id = state.next;
        let exchange = Exchange {
            working: true,
            unsent: 0,
            pace: Pace::at(RATE),
            since: Instant::now(),
        };
        state.open.insert(id, exchange);
        OpenRequest {
            traffic: Arc::clone(self),
            id,
        }
    }

    pub(super) fn waits(&self) -> WaitsFor {
        let state = self.state.lock();
        if state.open.is_empty() {
            return WaitsFor::Idle(state.ended);
        }
        let readers = state.open.values().filter(|exchange| exchange.waits_for_client());
        let due = readers.map(|reader| {
            reader
                .since
                .checked_sub(reader.pace.delay())
                .unwrap_or(reader.since)
        });
        due.min().map_or(WaitsFor::Host, WaitsFor::Reader)
    }
}

impl OpenRequest {
    /// Wraps the answer's body. The connection then waits for the client to read it.
    pub(super) fn answer<B>(self, body: B) -> TrackedBody<B> {
        self.set_working(false);
        TrackedBody {
            body,
            open: Arc::new(self),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Exchange)) {
        if let Some(exchange) = self.traffic.state.lock().open.get_mut(&self.id) {
            change(exchange);
        }
    }

    fn set_working(&self, working: bool) {
        self.change(|exchange| {
            exchange.advance(0);
            exchange.working = working;
        });
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.traffic.state.lock();
        state.open.remove(&self.id);
        state.ended = Instant::now();
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for TrackedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.open.set_working(polled.is_pending());
        polled.map_ok(|frame| {
            frame.map_data(|bytes| {
                self.open.change(|exchange| exchange.unsent += bytes.len() as u64);
                let open = Arc::clone(&self.open);
                Bytes::from_owner(Sending { bytes, open })
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{StreamExt, channel::mpsc, poll};
    use http_body_util::{BodyExt, StreamBody};
    use std::convert::Infallible;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_falls_behind_until_all_is_sent() {
        let traffic = Traffic::new();
        let (sender, pieces) = mpsc::unbounded::<Bytes>();
        let frames = pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
        let mut body = traffic.open().answer(StreamBody::new(frames));
        let begun = Instant::now();
        tokio::time::advance(SECOND).await;
        assert_eq!(traffic.waits(), WaitsFor::Reader(begun));
        let second_of_bytes = Bytes::from(vec![0; RATE as usize]);
        sender.unbounded_send(second_of_bytes.clone()).unwrap();
        sender.unbounded_send(second_of_bytes).unwrap();
        let first = body.frame().await.unwrap().unwrap();
        tokio::time::advance(SECOND).await;
        assert_eq!(traffic.waits(), WaitsFor::Reader(begun), "nothing was sent");
        drop(first);
        assert_eq!(traffic.waits(), WaitsFor::Reader(begun + SECOND));
        let second = body.frame().await.unwrap().unwrap();
        assert!(poll!(Box::pin(body.frame())).is_pending());
        tokio::time::advance(SECOND).await;
        assert_eq!(
            traffic.waits(),
            WaitsFor::Reader(begun + SECOND),
            "expected an unsent piece"
        );
        drop(second);
        tokio::time::advance(100 * SECOND).await;
        assert_eq!(traffic.waits(), WaitsFor::Host, "the client has read everything");
        drop(body);
        assert_eq!(traffic.waits(), WaitsFor::Idle(begun + 103 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_open_until_the_last_byte_is_sent() {
        let traffic = Traffic::new();
        let begun = Instant::now();
        let mut body = traffic
            .open()
            .answer(http_body_util::Full::new(Bytes::from_static(b"a")));
        let unsent = body.frame().await.unwrap().unwrap();
        drop(body);
        tokio::time::advance(SECOND).await;
        assert_eq!(traffic.waits(), WaitsFor::Reader(begun));
        drop(unsent);
        assert_eq!(traffic.waits(), WaitsFor::Idle(begun + SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn one_answer_that_is_not_taken_counts_beside_others_that_are() {
        let traffic = Traffic::new();
        let begun = Instant::now();
        let untaken = traffic.open().answer(());
        tokio::time::advance(SECOND).await;
        let working = traffic.open();
        let taken = traffic.open().answer(());
        assert_eq!(traffic.waits(), WaitsFor::Reader(begun));
        drop(untaken);
        assert_eq!(traffic.waits(), WaitsFor::Reader(begun + SECOND));
        drop(taken);
        assert_eq!(traffic.waits(), WaitsFor::Host);
        drop(working);
        assert_eq!(traffic.waits(), WaitsFor::Idle(begun + SECOND));
    }
}
