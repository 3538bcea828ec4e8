use super::transport::Transport;
use super::{ByteMeter, ClientError};
use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use sha2::{Digest, Sha256};
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::watch;

/// Bytes handed to the connection at once: small enough that a slow link shows progress well within a deadline.
const PIECE: usize = 256 << 10;
/// The host confirms an upload with a JSON object: names and shapes of a model's cuts, of which there are hundreds.
const MAX_CONFIRMATION: usize = 1 << 20;

/// What an upload came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uploaded {
    /// SHA-256 of the bytes, lower-case hex.
    pub sha256: String,
    /// Their number.
    pub bytes: u64,
    /// Whether the host had them, so that nothing was sent.
    pub skipped: bool,
}

/// Sends `bytes` unless `present` is their SHA-256.
pub(super) async fn push(
    transport: &Transport,
    path: &str,
    media_type: &'static str,
    bytes: Bytes,
    present: Option<String>,
    meter: &ByteMeter,
) -> Result<Uploaded, ClientError> {
    let sha256 = hex::encode(Sha256::digest(&bytes));
    let size = bytes.len() as u64;
    let skipped = present.as_ref() == Some(&sha256);
    if !skipped {
        send(transport, path, media_type, bytes, meter).await?;
    }
    Ok(Uploaded {
        sha256,
        bytes: size,
        skipped,
    })
}

async fn send(
    transport: &Transport,
    path: &str,
    media_type: &'static str,
    bytes: Bytes,
    meter: &ByteMeter,
) -> Result<(), ClientError> {
    let (progress, watched) = watch::channel(0_usize);
    let pieces = stream::unfold((bytes, progress), |(mut rest, progress)| async move {
        if rest.is_empty() {
            return None;
        }
        let piece = rest.split_to(PIECE.min(rest.len()));
        progress.send_modify(|pieces| *pieces += 1);
        Some((Ok::<_, Infallible>(Frame::data(piece)), (rest, progress)))
    });
    let body = BodyExt::boxed(StreamBody::new(pieces));
    let answer = async {
        let response = transport.upload(path, media_type, body, meter).await?;
        transport
            .read(response.into_body(), MAX_CONFIRMATION, meter)
            .await
    };
    tokio::select! {
        answered = answer => answered.map(|_| ()),
        () = stalled(watched, transport.deadlines.idle, transport.deadlines.answer) => {
            Err(transport.silent("taking an upload", transport.deadlines.idle))
        }
    }
}

/// Ends when no piece was taken for `idle`, or when all were and nothing followed for `answer`.
async fn stalled(mut pieces: watch::Receiver<usize>, idle: Duration, answer: Duration) {
    loop {
        match tokio::time::timeout(idle, pieces.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return tokio::time::sleep(answer).await,
            Err(_) => return,
        }
    }
}
