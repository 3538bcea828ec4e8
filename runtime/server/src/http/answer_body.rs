//! The body of an answer: pieces as they come, and a clean end only after all of them.

use crate::extraction::Piece;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame};
use prometheus_client::metrics::counter::Counter;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// Pieces below this are joined: a batch has a dozen of a few bytes around one of megabytes.
const SMALL: usize = 16 << 10;

/// The most of a piece that is handed on at once, so that a slow client holds back the rest.
const FRAME: usize = 256 << 10;

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The request failed after its answer had begun; the body ends with this instead of an end.
#[derive(Debug, thiserror::Error)]
#[error("the extraction failed after its answer had begun")]
pub(super) struct Aborted;

/// See the module.
pub(super) struct AnswerBody {
    pieces: VecDeque<Bytes>,
    coming: mpsc::Receiver<Piece>,
    state: State,
    /// What is sent is counted in each.
    sent: [Counter; 2],
}

#[derive(PartialEq)]
enum State {
    Open,
    /// Everything is here; the trailers have yet to go.
    Closing(Duration),
    Ended,
    Aborted,
}

impl AnswerBody {
    pub(super) fn new(coming: mpsc::Receiver<Piece>, sent: [Counter; 2]) -> Self {
        Self {
            pieces: VecDeque::new(),
            coming,
            state: State::Open,
            sent,
        }
    }

    fn piece(&mut self) -> Option<Bytes> {
        let mut piece = self.pieces.pop_front()?;
        if piece.len() > FRAME {
            let frame = piece.split_to(FRAME);
            self.pieces.push_front(piece);
            return Some(frame);
        }
        Some(piece)
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        loop {
            if let Some(piece) = self.piece() {
                for counter in &self.sent {
                    counter.inc_by(piece.len() as u64);
                }
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            match self.state {
                State::Open => {}
                State::Closing(work) => {
                    self.state = State::Ended;
                    return Poll::Ready(Some(Ok(Frame::trailers(server_timing(work)))));
                }
                State::Ended | State::Aborted => return Poll::Ready(None),
            }
            match futures::ready!(self.coming.poll_recv(cx)) {
                Some(Piece::Rows(pieces)) => self.pieces = joined(pieces),
                Some(Piece::End(pieces, work)) => {
                    self.pieces = joined(pieces);
                    self.state = State::Closing(work);
                }
                None => {
                    self.state = State::Aborted;
                    return Poll::Ready(Some(Err(Aborted)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty() && self.state == State::Ended
    }
}

/// Tells the client how long the answer took to make, so that it can tell a slow host from a slow link.
/// <https://www.w3.org/TR/server-timing/>
fn server_timing(work: Duration) -> HeaderMap {
    let value = format!("work;dur={:.3}", work.as_secs_f64() * 1e3);
    HeaderValue::try_from(value)
        .map(|value| HeaderMap::from_iter([(SERVER_TIMING, value)]))
        .unwrap_or_default()
}

/// The same bytes in fewer pieces; large ones stay uncopied.
fn joined(pieces: Vec<Bytes>) -> VecDeque<Bytes> {
    let mut joined = VecDeque::new();
    let mut small = BytesMut::new();
    for piece in pieces {
        if piece.len() < SMALL {
            small.extend_from_slice(&piece);
        } else {
            joined.push_back(small.split().freeze());
            joined.push_back(piece);
        }
    }
    joined.push_back(small.freeze());
    joined.retain(|piece: &Bytes| !piece.is_empty());
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn body() -> (mpsc::Sender<Piece>, AnswerBody) {
        let (sender, coming) = mpsc::channel(4);
        (sender, AnswerBody::new(coming, Default::default()))
    }

    #[tokio::test]
    async fn all_pieces_arrive_in_order_then_the_end() {
        let (sender, body) = body();
        let large = Bytes::from(vec![7; FRAME + 5]);
        let rows = vec![
            Bytes::from_static(b"a"),
            Bytes::from_static(b"b"),
            large.clone(),
            Bytes::from_static(b"c"),
        ];
        sender.send(Piece::Rows(rows)).await.unwrap();
        sender
            .send(Piece::End(
                vec![Bytes::from_static(b"d")],
                Duration::from_millis(1500),
            ))
            .await
            .unwrap();
        let expected = [b"ab".as_slice(), &large, b"cd"].concat();
        let collected = body.collect().await.unwrap();
        assert_eq!(collected.trailers().unwrap()[SERVER_TIMING], "work;dur=1500.000");
        assert_eq!(collected.to_bytes(), expected);
    }

    #[tokio::test]
    async fn without_an_end_it_is_aborted() {
        let (sender, body) = body();
        sender
            .send(Piece::Rows(vec![Bytes::from_static(b"a")]))
            .await
            .unwrap();
        drop(sender);
        assert!(body.collect().await.is_err());
    }
}
