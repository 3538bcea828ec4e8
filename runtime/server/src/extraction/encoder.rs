//! Rows to the bytes of an answer, away from the threads that serve HTTP where it takes long.

use super::work::CallRows;
use crate::caller::Caller;
use crate::refusal::Refusal;
use bytes::Bytes;
use frostline_images::DecodePool;
use frostline_wire::{ActivationWriter, Encoding, FrameError, QuotaKey, RowFormat};

/// Encodes the rows of one extraction, in turn. It goes along with the rows to the thread that encodes them, and comes back.
pub(super) struct Encoder {
    writer: ActivationWriter,
    /// Where to convert and compress; `None` when the values travel as they are, which takes no time.
    threads: Option<DecodePool>,
    output: Output,
}

/// How much an answer may still weigh.
pub(super) struct Output {
    caller: Caller,
    bytes: u64,
}

impl Output {
    pub(super) fn new(caller: Caller) -> Self {
        Self { caller, bytes: 0 }
    }

    fn count(&mut self, pieces: &[Bytes]) -> Result<(), Refusal> {
        let more: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.bytes = self.bytes.saturating_add(more);
        self.caller.within(QuotaKey::OutputBytes, self.bytes)
    }
}

impl Encoder {
    pub(super) fn new(rows: RowFormat, encoding: Encoding, output: Output) -> Result<Self, FrameError> {
        let as_they_are = matches!(encoding, Encoding::F32 | Encoding::U8);
        let caller = &output.caller;
        Ok(Self {
            writer: ActivationWriter::compressed(rows, encoding.compression)?,
            threads: (!as_they_are).then(|| caller.machine().decoders.for_tenant(&caller.tenant().name)),
            output,
        })
    }

    /// The bytes of these rows in the answer.
    ///
    /// # Errors
    /// [`Refusal::Quota`] where they make the answer larger than it may be.
    pub(super) async fn rows(self, rows: CallRows) -> Result<(Vec<Bytes>, Self), Refusal> {
        let (pieces, mut encoder) = self.encoded(rows).await?;
        encoder.output.count(&pieces)?;
        Ok((pieces, encoder))
    }

    async fn encoded(mut self, rows: CallRows) -> Result<(Vec<Bytes>, Self), Refusal> {
        let Some(threads) = self.threads.clone() else {
            return Ok((rows.encode(&mut self.writer)?, self));
        };
        let encode = move || rows.encode(&mut self.writer).map(|pieces| (pieces, self));
        let encoded = threads.run(encode).await;
        Ok(encoded.map_err(|lost| Refusal::host(format!("rows could not be encoded: {lost}")))??)
    }

    /// The end of the answer.
    pub(super) fn finish(self) -> Result<Vec<Bytes>, FrameError> {
        self.writer.finish()
    }
}
