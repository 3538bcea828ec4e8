//! Encoding of rows. Slow encodings run on decode threads instead of the threads that serve HTTP.

use super::size::is_zero_copy;
use super::work::CallRows;
use crate::caller::Caller;
use crate::refusal::Refusal;
use crate::scheduling::with_reservation;
use bytes::Bytes;
use frostline_batching::Reserved;
use frostline_images::DecodePool;
use frostline_wire::{ActivationWriter, Encoding, FrameError, QuotaKey, RowFormat};
use std::sync::Arc;

/// Encodes the rows of an extraction sequentially. For slow encodings, the encoder moves to a decode thread
/// together with the rows, and is returned with the result.
pub(super) struct Encoder {
    writer: ActivationWriter,
    /// Threads for conversion and compression. `None` if values are sent unchanged, which needs almost no
    /// time.
    threads: Option<DecodePool>,
    caller: Caller,
    /// Encoded bytes of the answer so far.
    bytes: u64,
}

impl Encoder {
    pub(super) fn new(caller: Caller, rows: RowFormat, encoding: Encoding) -> Result<Self, FrameError> {
        let is_sent_unchanged = is_zero_copy(&rows, encoding);
        Ok(Self {
            writer: ActivationWriter::new(rows, encoding.compression)?,
            threads: (!is_sent_unchanged).then(|| caller.decoders()),
            caller,
            bytes: 0,
        })
    }

    /// Encodes rows. Their memory is released when the last of the returned pieces is sent or dropped.
    ///
    /// # Errors
    /// Returns [`Refusal::Quota`] if the answer exceeds the tenant's quota of output bytes, and a refusal
    /// caused by the host if the rows cannot be encoded.
    pub(super) async fn rows(self, mut rows: CallRows) -> Result<(Vec<Bytes>, Self), Refusal> {
        let memory = rows.memory.take();
        let (mut pieces, mut encoder) = self.encode(rows).await?;
        let more: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        if let Some(mut memory) = memory {
            // Shrinking a reservation never fails.
            memory.resize(more.min(memory.bytes())).ok();
            pieces = attach_reservation(pieces, &Arc::new(memory));
        }
        encoder.bytes = encoder.bytes.saturating_add(more);
        encoder.caller.check_quota(QuotaKey::OutputBytes, encoder.bytes)?;
        Ok((pieces, encoder))
    }

    async fn encode(mut self, rows: CallRows) -> Result<(Vec<Bytes>, Self), Refusal> {
        let Some(threads) = self.threads.clone() else {
            return Ok((rows.encode(&mut self.writer)?, self));
        };
        let encoded = threads
            .run(move || rows.encode(&mut self.writer).map(|pieces| (pieces, self)))
            .await;
        Ok(encoded.map_err(|error| Refusal::host(format!("failed to encode rows: {error}")))??)
    }

    /// Returns the end of the answer.
    pub(super) fn finish(self) -> Result<Vec<Bytes>, FrameError> {
        self.writer.finish()
    }
}

/// Attaches `memory` to the pieces. The memory is released after the last piece is dropped.
fn attach_reservation(pieces: Vec<Bytes>, memory: &Arc<Reserved>) -> Vec<Bytes> {
    pieces
        .into_iter()
        .map(|piece| with_reservation(piece, memory))
        .collect()
}
