//! Rows to the bytes of an answer, away from the threads that serve HTTP where it takes long.

use super::work::Rows;
use crate::http::Refusal;
use bytes::Bytes;
use frostline_images::DecodePool;
use frostline_wire::{ActivationWriter, Encoding, FrameError, RowFormat};

/// Encodes the rows of one extraction, in turn. It goes along with the rows to the thread that encodes them, and comes back.
pub(super) struct Encoder {
    writer: ActivationWriter,
    /// Where to convert and compress; `None` when the values travel as they are, which takes no time.
    threads: Option<DecodePool>,
}

impl Encoder {
    pub(super) fn new(rows: RowFormat, encoding: Encoding, threads: &DecodePool) -> Result<Self, FrameError> {
        let as_they_are = matches!(encoding, Encoding::F32 | Encoding::U8);
        Ok(Self {
            writer: ActivationWriter::compressed(rows, encoding.compression)?,
            threads: (!as_they_are).then(|| threads.clone()),
        })
    }

    /// The bytes of these rows in the answer.
    pub(super) async fn rows(mut self, rows: Rows) -> Result<(Vec<Bytes>, Self), Refusal> {
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
