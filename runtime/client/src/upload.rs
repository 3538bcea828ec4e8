use crate::blocking::blocking;
use crate::retry::{Attempts, Retry, RetryPolicy};
use crate::transport::{Body, Call, CallBody, Transport};
use crate::{ClientError, Notice, Notices, UploadKind};
use bytes::{Buf, Bytes};
use frostline_wire::{ErrorClass, REPR_DIGEST, UPLOAD_COMPLETE, UPLOAD_OFFSET, repr_digest};
use futures::stream;
use http::header::CONTENT_LENGTH;
use http::{Method, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use sha2::{Digest, Sha256};
use std::convert::Infallible;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::timeout_at;

/// Bytes handed to the connection at a time: small enough that a slow link shows progress well within a
/// deadline.
const PIECE: usize = 256 << 10;
/// Maximum size of a host's confirmation in bytes. A host confirms an upload with a JSON object that lists
/// the names and shapes of a model's cuts, possibly hundreds.
const MAX_CONFIRMATION: u64 = 1 << 20;

/// Outcome of an upload.
#[derive(Debug, Clone, PartialEq)]
pub struct Uploaded {
    /// SHA-256 of the bytes, lower-case hex.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
    /// True if the host already had the bytes, so that nothing was sent.
    pub skipped: bool,
    /// Seconds from the first request to the host's confirmation, including waits between attempts; 0 if
    /// nothing was sent.
    pub seconds: f64,
    /// Offset in bytes at which the last attempt resumed, or `None` if the attempt began at the first byte.
    pub resumed_at: Option<u64>,
}

impl Uploaded {
    /// Result for bytes that the host already has.
    pub(crate) fn skipped(sha256: String, bytes: usize) -> Self {
        Self {
            sha256,
            bytes: bytes as u64,
            skipped: true,
            seconds: 0.0,
            resumed_at: None,
        }
    }
}

pub(crate) struct Upload<'a> {
    pub(crate) what: UploadKind,
    pub(crate) name: &'a str,
    pub(crate) path: String,
    pub(crate) bytes: Bytes,
}

/// Sends an upload, unless `present`, the SHA-256 stored under this name on the host, matches.
pub(crate) async fn push(
    transport: &Transport,
    upload: Upload<'_>,
    present: Option<String>,
    notices: &Notices,
) -> Result<Uploaded, ClientError> {
    let part = "hashing of an upload";
    let bytes = upload.bytes.clone();
    let sha256 = blocking(part, move || hex::encode(Sha256::digest(&bytes))).await?;
    let mut uploaded = Uploaded::skipped(sha256, upload.bytes.len());
    if present.as_ref() == Some(&uploaded.sha256) {
        return Ok(uploaded);
    }
    let sending = UploadTransfer {
        digest: repr_digest(&uploaded.sha256).ok_or(ClientError::Ended { part })?,
        transport,
        upload,
        notices,
    };
    let started = Instant::now();
    if let Some(last) = sending.send().await? {
        uploaded.skipped = false;
        uploaded.seconds = started.elapsed().as_secs_f64();
        uploaded.resumed_at = Some(last).filter(|offset| *offset > 0);
    }
    Ok(uploaded)
}

struct UploadTransfer<'a> {
    transport: &'a Transport,
    upload: Upload<'a>,
    /// Digest header of the complete upload.
    digest: String,
    notices: &'a Notices,
}

impl UploadTransfer<'_> {
    /// Sends the bytes that the host does not have. If an attempt breaks off, the next one continues at the
    /// offset that the host reports. Returns the offset of the last attempt, or `None` if nothing had to be
    /// sent.
    async fn send(&self) -> Result<Option<u64>, ClientError> {
        let mut attempts = Attempts::new(RetryPolicy::default(), self.transport.seen());
        let mut reached = None;
        let mut progress_at = 0;
        let mut left = self
            .transport
            .peer()
            .deadlines
            .upload_of(self.upload.bytes.len() as u64);
        loop {
            let outcome = match self.stored().await {
                Ok(None) => return Ok(reached),
                Ok(Some(offset)) => {
                    // Smaller steps do not count as progress, because they could go on for days.
                    if offset >= progress_at + PIECE as u64 {
                        progress_at = offset;
                        attempts.reset();
                    }
                    reached = Some(offset);
                    let token = self.transport.token();
                    match self.put(offset, &mut left).await {
                        // The transport cannot repeat a streamed body, so the retry with the new token starts
                        // here.
                        Err(error) if error.is_unauthorized() && self.transport.token() != token => {
                            continue;
                        }
                        ended => ended,
                    }
                }
                Err(error) => Err(error),
            };
            match outcome {
                Ok(()) => return Ok(reached),
                Err(error @ ClientError::SlowUpload { .. }) => return Err(self.named(error)),
                Err(error) => self.wait(&mut attempts, error, reached.unwrap_or(0)).await?,
            }
        }
    }

    /// Queries the upload offset on the host. Returns `None` if the host has all bytes, and offset 0 if it does not
    /// support the request.
    async fn stored(&self) -> Result<Option<u64>, ClientError> {
        let call = Call {
            headers: &[(REPR_DIGEST, self.digest.clone())],
            ..Call::new(Method::HEAD, &self.upload.path)
        };
        let answer = match self.transport.send(call).await {
            Err(ClientError::Refused {
                class: ErrorClass::NotFound | ErrorClass::Request,
                ..
            }) => return Ok(Some(0)),
            answer => answer?,
        };
        if answer.header(UPLOAD_COMPLETE) == Some("?1") {
            return Ok(None);
        }
        let offset = answer.header(UPLOAD_OFFSET).and_then(|text| text.parse().ok());
        let size = self.upload.bytes.len() as u64;
        Ok(Some(offset.filter(|offset| *offset <= size).unwrap_or(0)))
    }

    /// Sends the bytes from `offset` on within `left`, which decreases by the duration, and waits for the host's
    /// confirmation.
    async fn put(&self, offset: u64, left: &mut Duration) -> Result<(), ClientError> {
        let transport = self.transport;
        let (progress, watched) = watch::channel(0_usize);
        let mut rest = self.upload.bytes.clone();
        rest.advance(usize::try_from(offset).map_or(rest.len(), |offset| offset.min(rest.len())));
        let headers = [
            (REPR_DIGEST, self.digest.clone()),
            (UPLOAD_OFFSET, offset.to_string()),
            (CONTENT_LENGTH.as_str(), rest.len().to_string()),
        ];
        let media_type = match self.upload.what {
            UploadKind::Guest => "application/wasm",
            UploadKind::Model => "application/octet-stream",
        };
        let call = Call {
            headers: &headers,
            body: Some((media_type, CallBody::Pieces(self.pieces(rest, progress)))),
            answer_limit: MAX_CONFIRMATION,
            ..Call::new(Method::PUT, &self.upload.path)
        };
        let answer = async { transport.upload(call).await?.whole().await };
        let begun = tokio::time::Instant::now();
        let mut taken = None;
        let answered = tokio::select! {
            answered = answer => answered.map(drop),
            error = self.stalled(watched, begun + *left, &mut taken) => Err(error),
        };
        let ended = taken.unwrap_or_else(tokio::time::Instant::now);
        *left = left.saturating_sub(ended.duration_since(begun));
        answered
    }

    /// Completes with an error if no piece is taken for a while, if some are not taken `until` then, or if the
    /// host does not answer after all pieces were `taken`.
    async fn stalled(
        &self,
        mut pieces: watch::Receiver<usize>,
        until: tokio::time::Instant,
        taken: &mut Option<tokio::time::Instant>,
    ) -> ClientError {
        let peer = self.transport.peer();
        loop {
            let idle = tokio::time::Instant::now() + peer.deadlines.idle;
            match timeout_at(idle.min(until), pieces.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => {
                    *taken = Some(tokio::time::Instant::now());
                    tokio::time::sleep(peer.deadlines.answer).await;
                    return peer.silent("receiving an upload", peer.deadlines.answer);
                }
                Err(_) if idle < until => return peer.silent("receiving an upload", peer.deadlines.idle),
                Err(_) => {
                    let bytes = self.upload.bytes.len() as u64;
                    return ClientError::SlowUpload {
                        host: peer.name.clone(),
                        bytes,
                        seconds: peer.deadlines.upload_of(bytes).as_secs(),
                    };
                }
            }
        }
    }

    /// Builds a body that sends `rest` in pieces. `progress` and the notices are updated as each piece is
    /// handed to the connection.
    fn pieces(&self, rest: Bytes, progress: watch::Sender<usize>) -> Body {
        let what = self.upload.what;
        let name = self.upload.name.to_owned();
        let bytes = self.upload.bytes.len() as u64;
        let notices = self.notices.clone();
        let mut source = Some((rest, progress));
        let pieces = std::iter::from_fn(move || {
            // Dropping the sender at the end tells `stalled` that all pieces were taken.
            let (mut rest, progress) = source.take().filter(|(rest, _)| !rest.is_empty())?;
            let piece = rest.split_to(PIECE.min(rest.len()));
            progress.send_modify(|pieces| *pieces += 1);
            notices(Notice::Uploading {
                what,
                name: name.clone(),
                sent: bytes - rest.len() as u64,
                bytes,
            });
            source = Some((rest, progress));
            Some(Ok::<_, Infallible>(Frame::data(piece)))
        });
        BodyExt::boxed(StreamBody::new(stream::iter(pieces)))
    }

    /// Adds the kind and name of the upload to the message of a refusal.
    fn named(&self, mut error: ClientError) -> ClientError {
        if let ClientError::Refused { message, .. } = &mut error {
            *message = format!("the {} {}: {message}", self.upload.what, self.upload.name);
        }
        error
    }

    /// Waits before the next attempt, or returns the error that ends the upload. Does not wait for a draining
    /// host, because another host may accept the upload immediately. `sent` is the offset of the failed
    /// attempt.
    async fn wait(&self, attempts: &mut Attempts, error: ClientError, sent: u64) -> Result<(), ClientError> {
        if error.is_stopping() {
            return Err(self.named(error));
        }
        let seen = self.transport.seen();
        let may_differ = may_differ(&error, sent);
        let decision = if may_differ {
            attempts.passing(seen)
        } else {
            attempts.after(&error, 0, seen)
        };
        let host = self.transport.peer().name.clone();
        let what = self.upload.what;
        let bytes = self.upload.bytes.len() as u64;
        let fruitless = attempts.fruitless();
        match decision {
            Retry::Again(wait) => {
                (self.notices)(Notice::UploadRetry {
                    host,
                    what,
                    name: self.upload.name.to_owned(),
                    bytes,
                    attempt: fruitless,
                    wait_seconds: wait.as_secs_f64(),
                    left_seconds: attempts
                        .outage_time_left(seen.observed)
                        .map(|left| left.as_secs_f64()),
                    reason: error.to_string(),
                });
                tokio::time::sleep(wait).await;
                Ok(())
            }
            Retry::GiveUp if fruitless > 0 && (may_differ || error.may_pass_later()) => {
                Err(ClientError::Upload {
                    host,
                    what,
                    sent,
                    bytes,
                    attempts: fruitless,
                    source: Box::new(error),
                })
            }
            Retry::GiveUp => Err(self.named(error)),
        }
    }
}

/// True if a refusal concerns the offset of the attempt, so that the next one may succeed: the host has a
/// different number of bytes, or the bytes it had were wrong and have been discarded.
fn may_differ(error: &ClientError, offset: u64) -> bool {
    match error {
        ClientError::Refused {
            status: StatusCode::CONFLICT,
            ..
        } => true,
        ClientError::Refused {
            class: ErrorClass::Request,
            ..
        } => offset > 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Address;
    use crate::{Deadlines, Trust};
    use tokio::time::{Instant, sleep};

    /// Returns the error of an upload of 1 MiB if the host takes a piece after each `pause`.
    async fn taken_every(pause: Duration) -> ClientError {
        let address = Address::from_url("http://127.0.0.1:1");
        let transport = Transport::new(address, None, &Trust::default(), Deadlines::default()).unwrap();
        let notices: Notices = std::sync::Arc::new(|_| ());
        let sending = UploadTransfer {
            transport: &transport,
            upload: Upload {
                what: UploadKind::Model,
                name: "model",
                path: String::new(),
                bytes: vec![0; 1 << 20].into(),
            },
            digest: String::new(),
            notices: &notices,
        };
        let (progress, pieces) = watch::channel(0);
        let taking = async {
            loop {
                sleep(pause).await;
                progress.send_modify(|pieces| *pieces += 1);
            }
        };
        let until = Instant::now() + Deadlines::default().upload_of(1 << 20);
        let mut taken = None;
        tokio::select! {
            error = sending.stalled(pieces, until, &mut taken) => error,
            () = taking => unreachable!("the loop never ends"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_that_is_taken_slowly_ends() {
        let begun = Instant::now();
        let error = taken_every(Duration::from_secs(1)).await;
        assert!(
            matches!(error, ClientError::SlowUpload { seconds: 76, .. }),
            "{error}"
        );
        assert_eq!(begun.elapsed().as_secs(), 60 + 16, "60 s and 1 s per 64 KiB");
    }
}
