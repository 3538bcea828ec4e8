//! Rows to the bytes of an answer, away from the threads that serve HTTP where it takes long.

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

/// Encodes the rows of one extraction, in turn. It goes along with the rows to the thread that encodes them, and comes back.
pub(super) struct Encoder {
    writer: ActivationWriter,
    /// Where to convert and compress; `None` when the values travel as they are, which takes no time.
    threads: Option<DecodePool>,
    caller: Caller,
    /// Of the answer so far.
    bytes: u64,
}

impl Encoder {
    pub(super) fn new(
        caller: Caller,
        rows: RowFormat,
        encoding: Encoding,
        checksums: bool,
    ) -> Result<Self, FrameError> {
        let open = if checksums {
            ActivationWriter::checked
        } else {
            ActivationWriter::compressed
        };
        let decoders = &caller.machine().decoders;
        Ok(Self {
            writer: open(rows, encoding.compression)?,
            threads: (!is_zero_copy(encoding)).then(|| decoders.for_tenant(&caller.tenant().name)),
            caller,
            bytes: 0,
        })
    }

    /// The bytes of these rows in the answer. What they take is given back when the last of them is sent or dropped.
    ///
    /// # Errors
    /// [`Refusal::Quota`] where they make the answer larger than it may be.
    pub(super) async fn rows(self, mut rows: CallRows) -> Result<(Vec<Bytes>, Self), Refusal> {
        let memory = rows.memory.take();
        let (mut pieces, mut encoder) = self.encode(rows).await?;
        let more: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        if let Some(mut memory) = memory {
            // Less is never refused.
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
        let encode = move || rows.encode(&mut self.writer).map(|pieces| (pieces, self));
        let encoded = threads.run(encode).await;
        Ok(encoded.map_err(|error| Refusal::host(format!("cannot encode rows: {error}")))??)
    }

    /// The end of the answer.
    pub(super) fn finish(self) -> Result<Vec<Bytes>, FrameError> {
        self.writer.finish()
    }
}

/// The same pieces, each of which keeps `memory` until it is dropped, wherever it waits by then.
fn attach_reservation(pieces: Vec<Bytes>, memory: &Arc<Reserved>) -> Vec<Bytes> {
    pieces
        .into_iter()
        .map(|piece| with_reservation(piece, memory))
        .collect()
}
