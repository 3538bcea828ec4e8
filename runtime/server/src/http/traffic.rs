//! Activity on a connection. Either the host works on a request, or the client has to read an answer or send
//! a request.

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
    open: HashMap<u64, RequestState>,
    /// End of the last request.
    ended: Instant,
}

#[derive(Clone, Copy)]
enum RequestState {
    Host,
    /// Answer data has been available to the client since this time.
    Client(Instant),
}

/// Side that has to act next on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitsFor {
    /// The host is working on a request.
    Host,
    /// The client has had no open request since this time.
    Idle(Instant),
    /// The client has not read any part of an answer since this time.
    Untaken(Instant),
}

/// Open request. Dropping it ends the request.
pub(super) struct OpenRequest {
    traffic: Arc<Traffic>,
    id: u64,
}

/// Answer body that records every read by the client.
pub(super) struct TrackedBody<B> {
    body: B,
    open: OpenRequest,
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
        state.open.insert(id, RequestState::Host);
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
        let untaken = state.open.values().filter_map(|request| match request {
            RequestState::Host => None,
            RequestState::Client(since) => Some(*since),
        });
        untaken.min().map_or(WaitsFor::Host, WaitsFor::Untaken)
    }
}

impl OpenRequest {
    /// Wraps the answer's body. The connection then waits for the client to read it.
    pub(super) fn answer<B>(self, body: B) -> TrackedBody<B> {
        self.set_state(RequestState::Client(Instant::now()));
        TrackedBody { body, open: self }
    }

    fn set_state(&self, request: RequestState) {
        self.traffic.state.lock().open.insert(self.id, request);
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
        self.open.set_state(match polled {
            Poll::Pending => RequestState::Host,
            Poll::Ready(_) => RequestState::Client(Instant::now()),
        });
        polled
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
    async fn a_client_that_takes_slowly_is_not_one_that_takes_nothing() {
        let traffic = Traffic::new();
        let (sender, pieces) = mpsc::unbounded::<Bytes>();
        let frames = pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
        let mut body = traffic.open().answer(StreamBody::new(frames));
        sender.unbounded_send(Bytes::from_static(b"a")).unwrap();
        sender.unbounded_send(Bytes::from_static(b"b")).unwrap();
        let begun = Instant::now();
        tokio::time::advance(SECOND).await;
        assert_eq!(traffic.waits(), WaitsFor::Untaken(begun));
        assert!(body.frame().await.is_some());
        assert_eq!(traffic.waits(), WaitsFor::Untaken(begun + SECOND));
        assert!(body.frame().await.is_some());
        assert!(poll!(Box::pin(body.frame())).is_pending());
        tokio::time::advance(100 * SECOND).await;
        assert_eq!(traffic.waits(), WaitsFor::Host, "the client has read everything");
        drop(body);
        assert_eq!(traffic.waits(), WaitsFor::Idle(begun + 101 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn one_answer_that_is_not_taken_counts_beside_others_that_are() {
        let traffic = Traffic::new();
        let begun = Instant::now();
        let untaken = traffic.open().answer(());
        tokio::time::advance(SECOND).await;
        let (working, taken) = (traffic.open(), traffic.open().answer(()));
        assert_eq!(traffic.waits(), WaitsFor::Untaken(begun));
        drop(untaken);
        assert_eq!(traffic.waits(), WaitsFor::Untaken(begun + SECOND));
        drop(taken);
        assert_eq!(traffic.waits(), WaitsFor::Host);
        drop(working);
        assert_eq!(traffic.waits(), WaitsFor::Idle(begun + SECOND));
    }
}
