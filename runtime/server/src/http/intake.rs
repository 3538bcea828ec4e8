//! Reception of uploads. The body is written to a file, so that an interrupted upload can be resumed.

use super::answer::RequestStream;
use super::receive::{IncomingBody, declared_length};
use super::references::sha256;
use super::upload_room::{TenantUploadSlot, UploadRoom};
use crate::caller::Caller;
use crate::partials::{Claim, ClaimError};
use crate::refusal::Refusal;
use crate::scheduling::TenantMemory;
use crate::service::Service;
use axum::extract::Request;
use bytes::Bytes;
use frostline_batching::{Charge, Kind, Stop, run_blocking};
use frostline_state::{CheckedUpload, SHARED};
use frostline_wire::{ErrorClass, REPR_DIGEST, UPLOAD_OFFSET, digest_of};
use http::HeaderMap;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument;

/// Write buffer in bytes: a quarter of the default HTTP/2 stream window. A fast client is not delayed by a
/// write for each frame.
const WRITE_BUFFER: usize = 256 << 10;

/// Memory per byte of an upload during the check, for the upload itself and for the parsed form. Weights are
/// not copied.
const MEMORY_PER_BYTE: u64 = 2;

/// Deadline for writing the buffer.
const WRITE_DEADLINE: Duration = Duration::from_secs(60);

/// Deadline for reading an upload back, at 20 MB/s for the largest models.
const HASH_DEADLINE: Duration = Duration::from_secs(60);

/// Bytes hashed between two checks, in a few milliseconds.
const PIECE: usize = 1 << 20;

/// Complete upload in memory with SHA-256 and reservations.
pub(super) struct ReceivedUpload {
    pub(super) bytes: Bytes,
    pub(super) sha256: String,
    claim: Option<Claim>,
    /// Reservations, held until the upload is stored or refused and no task uses it.
    reserved: Arc<UploadReservation>,
}

/// Reserved disk space and memory.
type UploadReservation = (UploadRoom, frostline_batching::Reserved);

impl ReceivedUpload {
    /// Returns the reservations, for tasks that continue with the bytes after the client has disconnected.
    pub(super) fn reserved(&self) -> Arc<UploadReservation> {
        Arc::clone(&self.reserved)
    }

    /// Returns the upload with `facts` in the form that is stored.
    pub(super) fn content<F>(&self, facts: F) -> CheckedUpload<F> {
        CheckedUpload {
            sha256: self.sha256.clone(),
            bytes: self.bytes.clone(),
            facts,
        }
    }

    /// Completes the upload. The file is deleted unless a retry with the same bytes may succeed.
    pub(super) fn finish<T>(self, outcome: Result<T, Refusal>) -> Result<T, Refusal> {
        if let (Some(claim), false) = (
            self.claim,
            outcome.as_ref().is_err_and(|refusal| {
                matches!(
                    refusal.class(),
                    ErrorClass::Busy | ErrorClass::Stopping | ErrorClass::Host
                )
            }),
        ) {
            claim.discard();
        }
        outcome
    }
}

/// Returns the SHA-256 of the whole upload that the request declares, if any.
///
/// # Errors
///
/// Returns [`Refusal::Request`] if the header has no SHA-256.
pub(super) fn digest(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let Some(value) = headers.get(REPR_DIGEST) else {
        return Ok(None);
    };
    let sha256 = value.to_str().ok().and_then(digest_of);
    sha256.map(Some).ok_or_else(|| {
        Refusal::request(format!(
            "invalid {REPR_DIGEST}: expected the SHA-256 of the whole upload, as in sha-256=:<base64>:"
        ))
    })
}

/// Returns the position in the upload at which the body starts.
fn offset(headers: &HeaderMap) -> Result<u64, Refusal> {
    let Some(value) = headers.get(UPLOAD_OFFSET) else {
        return Ok(0);
    };
    let offset = value.to_str().ok().and_then(|text| text.parse().ok());
    offset.ok_or_else(|| Refusal::request(format!("invalid {UPLOAD_OFFSET}: expected a number of bytes")))
}

/// Receives an upload of up to `limit` bytes and computes the hash. Disk space is reserved before a byte is
/// read. `sender` is `None` for an admin.
///
/// The upload is received in a separate task, which also writes the received bytes to disk if the client
/// disconnects.
///
/// # Errors
///
/// - Returns [`Refusal::TooLarge`] if the upload exceeds `limit`.
/// - Returns [`Refusal::Stalled`] if the body makes no progress.
/// - Returns [`Refusal::Offset`] if the host has a different number of bytes.
/// - Returns [`Refusal::Busy`] if the sender has too many concurrent uploads, the space for uploads is full,
///   or another client uploads the same bytes.
/// - Returns [`Refusal::Stopping`] if the host is draining.
/// - Returns [`Refusal::Request`] if the hash differs from the expected one.
pub(super) async fn receive(
    service: &Arc<Service>,
    sender: Option<&Caller>,
    request: Request,
    what: &'static str,
    limit: u64,
) -> Result<ReceivedUpload, Refusal> {
    let expected = sha256(request.uri())?;
    let share = sender.map(TenantUploadSlot::acquire).transpose()?;
    if service.scheduling.is_draining() {
        return Err(Refusal::Stopping);
    }
    let digest = digest(request.headers())?;
    let offset = offset(request.headers())?;
    if digest.is_none() && offset > 0 {
        return Err(Refusal::request(format!(
            "resuming an upload at {offset} requires {REPR_DIGEST}"
        )));
    }
    let total = total_bytes(&request, what, offset, limit)?;
    let reserved = UploadRoom::reserve(service, share, total).await?;
    let partials = &service.library.partials;
    let (claim, file) = match digest {
        None => (None, partials.temporary_file().await?),
        Some(sha256) => {
            let owner = sender.map_or(SHARED, |sender| &sender.tenant().name);
            let (claim, file) = partials.claim(owner, &sha256, offset, total).await?;
            (Some(claim), file)
        }
    };
    let receiver = UploadReceiver {
        service: Arc::clone(service),
        sender: sender.cloned(),
        expected,
        what,
        limit,
        bytes: offset,
        file: BufferedFile::new(file),
        claim,
    };
    let body = request.into_body();
    let receiving = async move { receiver.receive(body, reserved).await };
    let receiving = service
        .scheduling
        .work
        .spawn(Charge::current().pay_for(receiving.in_current_span()));
    receiving.await?
}

/// Returns the size of the whole upload, including the `offset` bytes of earlier requests. Without a declared
/// length, this is the limit.
fn total_bytes(request: &Request, what: &str, offset: u64, limit: u64) -> Result<u64, Refusal> {
    let rest = declared_length(request, what, limit)?;
    match rest.map_or(limit.max(offset), |rest| offset.saturating_add(rest)) {
        bytes if bytes > limit => Err(Refusal::TooLarge {
            what: what.to_owned(),
            bytes,
            limit,
        }),
        bytes => Ok(bytes),
    }
}

/// Upload in progress.
struct UploadReceiver {
    service: Arc<Service>,
    /// Tenant that sends the upload, or `None` for an admin.
    sender: Option<Caller>,
    /// SHA-256 from the query.
    expected: Option<String>,
    what: &'static str,
    limit: u64,
    /// Number of received bytes, including earlier requests.
    bytes: u64,
    file: BufferedFile,
    claim: Option<Claim>,
}

impl UploadReceiver {
    async fn receive(mut self, body: RequestStream, reserved: UploadRoom) -> Result<ReceivedUpload, Refusal> {
        let received = self.write_body(body).await;
        // Write the received bytes to the file even after a failure.
        let written = self.file.flush().await;
        if let Err(refusal) = received.and(written) {
            self.interrupt(&refusal).await;
            return Err(refusal);
        }
        self.verify(reserved).await
    }

    /// Writes the body to the file.
    async fn write_body(&mut self, body: RequestStream) -> Result<(), Refusal> {
        let mut body = IncomingBody::new(body, self.service.config.limits.stall);
        let sender = self.sender.clone();
        let dismissed = async {
            match &sender {
                Some(sender) => sender.wait_until_refused(|| sender.check_access()).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(dismissed);
        loop {
            let stop = async {
                match &self.claim {
                    Some(claim) => claim.stop().cancelled().await,
                    None => std::future::pending().await,
                }
            };
            let frame = tokio::select! {
                frame = body.frame() => frame?,
                () = stop => return Err(ClaimError::Superseded.into()),
                () = self.service.scheduling.end.cancelled() => return Err(Refusal::Stopping),
                refusal = dismissed.as_mut() => return Err(refusal),
            };
            let Some(frame) = frame else { return Ok(()) };
            let what = self.what;
            let frame = frame
                .map_err(|error| Refusal::request(format!("uploading {what} was interrupted: {error}")))?;
            if let Ok(piece) = frame.into_data() {
                self.write_piece(&piece).await?;
            }
        }
    }

    async fn write_piece(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        self.bytes += piece.len() as u64;
        if self.bytes > self.limit {
            return Err(Refusal::TooLarge {
                what: self.what.to_owned(),
                bytes: self.bytes,
                limit: self.limit,
            });
        }
        self.service
            .operations
            .metrics
            .upload_bytes
            .inc_by(piece.len() as u64);
        if let Some(claim) = &self.claim {
            claim.record_progress();
        }
        self.file.write(piece).await
    }

    /// Keeps the received bytes for a resumed upload, within the limits for interrupted uploads.
    async fn interrupt(self, refusal: &Refusal) {
        let Some(claim) = self.claim else { return };
        let left_out = self
            .sender
            .as_ref()
            .map_or(Some(None), |sender| sender.tenant().log_lines.sample());
        if let Some(left_out) = left_out {
            tracing::info!(sha256 = claim.sha256(), bytes = self.bytes, %refusal, left_out, "upload interrupted");
        }
        if matches!(refusal, Refusal::TooLarge { .. }) {
            claim.discard();
        } else {
            drop(claim);
        }
        self.service.library.partials.sweep().await;
    }

    /// Reads the file back and compares the hash with the expected ones. The bytes in memory are hashed, so
    /// the hash covers exactly the bytes in use, no matter in which requests they arrived.
    async fn verify(self, reserved: UploadRoom) -> Result<ReceivedUpload, Refusal> {
        let tenant = self.sender.as_ref().map_or("", |sender| &sender.tenant().name);
        let room = TenantMemory::new(&self.service.scheduling.memory, tenant, Kind::Request);
        let stall = self.service.config.limits.stall;
        let memory = room
            .reserve(self.bytes.saturating_mul(MEMORY_PER_BYTE), stall)
            .await?;
        let file = self.file.file;
        let length = self.bytes;
        let reserved = Arc::new((reserved, memory));
        let read = run_blocking(
            Arc::clone(&reserved),
            HASH_DEADLINE,
            Charge::default(),
            move |stop| hashed(file, length, stop),
        )
        .await?;
        let (bytes, sha256) = read.map_err(disk)?;
        let digest = self.claim.as_ref().map(Claim::sha256);
        let mut expected = digest.into_iter().chain(self.expected.as_deref());
        let other = expected.find(|expected| **expected != sha256).map(str::to_owned);
        let upload = ReceivedUpload {
            bytes,
            sha256,
            claim: self.claim,
            reserved,
        };
        let Some(expected) = other else { return Ok(upload) };
        let refusal = Refusal::request(format!(
            "the upload has the SHA-256 {}, expected {expected}; nothing was stored, start the upload again",
            upload.sha256
        ));
        upload.finish(Err(refusal))
    }
}

/// File with a buffer of [`WRITE_BUFFER`]. The payer of the current task pays for writing, unlike with Tokio's files.
struct BufferedFile {
    file: Arc<File>,
    buffer: Vec<u8>,
}

impl BufferedFile {
    fn new(file: File) -> Self {
        Self {
            file: Arc::new(file),
            buffer: Vec::new(),
        }
    }

    async fn write(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        self.buffer.extend_from_slice(piece);
        match self.buffer.len() {
            ..WRITE_BUFFER => Ok(()),
            _ => self.flush().await,
        }
    }

    async fn flush(&mut self) -> Result<(), Refusal> {
        let file = Arc::clone(&self.file);
        let buffer = std::mem::take(&mut self.buffer);
        if buffer.is_empty() {
            return Ok(());
        }
        let written = run_blocking((), WRITE_DEADLINE, Charge::default(), move |_| {
            (&*file).write_all(&buffer).map(|()| buffer)
        })
        .await?;
        self.buffer = written.map_err(disk)?;
        self.buffer.clear();
        Ok(())
    }
}

fn hashed(mut file: Arc<File>, length: u64, stop: &Stop) -> io::Result<(Bytes, String)> {
    let mut bytes = Vec::with_capacity(usize::try_from(length).map_err(io::Error::other)?);
    let mut hash = Sha256::new();
    file.seek(SeekFrom::Start(0))?;
    loop {
        stop.check()?;
        let from = bytes.len();
        if (&mut file).take(PIECE as u64).read_to_end(&mut bytes)? == 0 {
            return Ok((bytes.into(), hex::encode(hash.finalize())));
        }
        hash.update(bytes.get(from..).unwrap_or_default());
    }
}

fn disk(error: io::Error) -> Refusal {
    Refusal::from(ClaimError::Disk(error))
}
