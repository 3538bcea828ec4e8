//! Body of an extraction answer. The body ends cleanly only after the last piece.

use super::pace::RowPace;
use crate::extraction::{Piece, Timing};
use bytes::{Bytes, BytesMut};
use frostline_wire::JobStage;
use h2::Reason;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame};
use prometheus_client::metrics::counter::Counter;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Pieces smaller than this are joined. Most pieces of a record batch have only a few bytes.
const JOIN_BELOW: usize = 16 << 10;

/// Maximum frame size in bytes. Larger pieces are split to let a slow client hold back the rest.
const FRAME: usize = 256 << 10;

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Error that aborts a body.
#[derive(Debug, thiserror::Error)]
pub(super) enum Aborted {
    /// The extraction failed during the answer.
    #[error("the extraction failed during the answer")]
    Failed,
    /// The client does not read fast enough. HTTP/2 streams are reset with `ENHANCE_YOUR_CALM` to notify the
    /// client.
    #[error("the client reads too slowly")]
    TooSlow(#[source] h2::Error),
}

/// Body of an extraction answer.
pub(super) struct AnswerBody {
    pieces: VecDeque<Bytes>,
    receiver: mpsc::Receiver<Piece>,
    state: BodyState,
    pace: RowPace,
    /// Counter of sent bytes of all tenants.
    sent: Counter,
}

#[derive(PartialEq)]
enum BodyState {
    Open,
    /// All pieces have been received, and only the trailers are missing.
    Closing(Timing),
    Ended,
    Aborted,
}

impl AnswerBody {
    pub(super) fn new(receiver: mpsc::Receiver<Piece>, pace: RowPace, sent: Counter) -> Self {
        Self {
            pieces: VecDeque::new(),
            receiver,
            state: BodyState::Open,
            pace,
            sent,
        }
    }

    fn set_pieces(&mut self, pieces: Vec<Bytes>) {
        self.pieces = joined(pieces);
    }

    /// Drops the unread pieces, because the client did not read them in time.
    fn abort(&mut self) -> Aborted {
        tracing::info!(
            unread = self.pieces.iter().map(Bytes::len).sum::<usize>(),
            "aborted the answer: the client reads too slowly"
        );
        self.pieces.clear();
        self.receiver.close();
        self.state = BodyState::Aborted;
        Aborted::TooSlow(Reason::ENHANCE_YOUR_CALM.into())
    }

    fn next_piece(&mut self) -> Option<Bytes> {
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
            if self.pace.is_late() && !self.pieces.is_empty() {
                return Poll::Ready(Some(Err(self.abort())));
            }
            if let Some(piece) = self.next_piece() {
                self.pace.hand(piece.len() as u64);
                self.sent.inc_by(piece.len() as u64);
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            match self.state {
                BodyState::Open => {}
                BodyState::Closing(timing) => {
                    self.state = BodyState::Ended;
                    return Poll::Ready(Some(Ok(Frame::trailers(server_timing(&timing)))));
                }
                BodyState::Ended | BodyState::Aborted => return Poll::Ready(None),
            }
            match futures::ready!(self.receiver.poll_recv(cx)) {
                Some(Piece::Rows(pieces)) => self.set_pieces(pieces),
                Some(Piece::End(pieces, timing)) => {
                    self.set_pieces(pieces);
                    self.state = BodyState::Closing(timing);
                }
                None => {
                    self.state = BodyState::Aborted;
                    return Poll::Ready(Some(Err(Aborted::Failed)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty() && self.state == BodyState::Ended
    }
}

/// Creates the `Server-Timing` trailer: the time for the whole answer, which distinguishes a slow host from a
/// slow link, and the time that the images spent in each stage. See <https://www.w3.org/TR/server-timing/>.
fn server_timing(timing: &Timing) -> HeaderMap {
    let mut value = format!("work;dur={:.3}", timing.work.as_secs_f64() * 1e3);
    for stage in JobStage::all() {
        let milliseconds = timing.stages.seconds_in(stage) * 1e3;
        value.push_str(&format!(", {};dur={milliseconds:.3}", <&str>::from(stage)));
    }
    HeaderValue::try_from(value)
        .map(|value| HeaderMap::from_iter([(SERVER_TIMING, value)]))
        .unwrap_or_default()
}

/// Joins small pieces. Large pieces are not copied.
fn joined(pieces: Vec<Bytes>) -> VecDeque<Bytes> {
    let mut joined = VecDeque::new();
    let mut small = BytesMut::new();
    for piece in pieces {
        if piece.len() < JOIN_BELOW {
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
    use frostline_batching::{Budget, Kind, Memory};
    use frostline_wire::StageSeconds;
    use futures::poll;
    use http_body_util::BodyExt;
    use std::pin::pin;
    use std::time::Duration;
    use tokio::time::advance;

    const STALL: Duration = Duration::from_secs(60);

    fn body_within(memory: &Memory) -> (mpsc::Sender<Piece>, AnswerBody) {
        let (sender, receiver) = mpsc::channel(4);
        let pace = RowPace::new(memory, "slow", STALL);
        (sender, AnswerBody::new(receiver, pace, Default::default()))
    }

    fn body() -> (mpsc::Sender<Piece>, AnswerBody) {
        body_within(&Memory::unbounded())
    }

    /// Returns the number of minutes until a client with 60 MiB of rows is aborted if it reads a frame per
    /// minute, or `None` if it can read all of them.
    async fn minutes(memory: &Memory) -> Option<u32> {
        let (sender, mut body) = body_within(memory);
        let rows = vec![Bytes::from(vec![7; 60 << 20])];
        sender.send(Piece::Rows(rows)).await.unwrap();
        for minutes in 0..240 {
            if let Err(aborted) = body.frame().await.unwrap() {
                assert!(matches!(aborted, Aborted::TooSlow(_)), "{aborted}");
                assert!(
                    sender.is_closed() && body.pieces.is_empty(),
                    "the pieces are dropped"
                );
                return Some(minutes);
            }
            advance(STALL).await;
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_is_aborted_when_others_need_memory() {
        let memory = Memory::new(Budget {
            bytes: 100,
            ..Budget::default()
        });
        assert_eq!(
            minutes(&memory).await,
            None,
            "the connection enforces the minimum rate"
        );
        let _held = memory.try_reserve("slow", Kind::Grant, 60).unwrap();
        let mut own = pin!(memory.reserve("slow", Kind::Grant, 50));
        assert!(poll!(&mut own).is_pending());
        assert_eq!(
            minutes(&memory).await,
            None,
            "work of the same tenant does not count"
        );
        let mut others = pin!(memory.reserve("other", Kind::Grant, 50));
        assert!(poll!(&mut others).is_pending());
        assert_eq!(minutes(&memory).await, Some(2));
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
                Timing {
                    work: Duration::from_millis(1500),
                    stages: StageSeconds {
                        decode: 0.25,
                        ..StageSeconds::default()
                    },
                },
            ))
            .await
            .unwrap();
        let expected = [b"ab".as_slice(), &large, b"cd"].concat();
        let collected = body.collect().await.unwrap();
        let timing = collected.trailers().unwrap()[SERVER_TIMING].to_str().unwrap();
        assert!(
            timing.starts_with("work;dur=1500.000, place;dur=0.000, "),
            "{timing}"
        );
        assert!(timing.contains(", decode;dur=250.000, "), "{timing}");
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
