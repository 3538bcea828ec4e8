//! Number of samples per grant, and the memory to reserve for them.

use frostline_batching::device::{OwnRate, TIME_SLICE};
use frostline_tensor::{Shape, Stage, Terms};
use frostline_wire::{Compression, Encoding, ExtractionRequest, RowFormat, Values};

/// Samples per grant for a stage without measurements. On a CPU, the number has little effect on the rate:
/// SqueezeNet on one thread needs 6.3 ms for a single sample, and 7.0 ms per sample in a batch of 16. The
/// work for 16 samples is about 0.1 s, compared with tens of microseconds for a call.
pub(crate) const DEFAULT_GRANT: usize = 16;

/// Bytes of a call without samples, for the stack, the handles, and linear memory similar to the stock guest
/// (1 MiB).
pub(super) const BYTES_PER_CALL: u64 = 2 << 20;

/// Size of the grants of an extraction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GrantSize {
    /// Maximum number of samples.
    max_samples: usize,
    terms: Terms,
    /// The executed stage, if any.
    pub(super) stage: Option<Stage>,
    /// Bytes per sample: the input, the row and the encoded row.
    pub(super) bytes_per_sample: u64,
    /// Copies of a row in memory, including the encoded one.
    copies: u64,
}

impl GrantSize {
    /// Creates the size for rows of the format `rows` that `stage` computes from `input` bytes per sample. The
    /// `request` determines the compression and the terms, and `max_samples` is the maximum number of samples.
    pub(super) fn new(
        stage: Option<Stage>,
        input: u64,
        rows: &RowFormat,
        request: &ExtractionRequest,
        max_samples: usize,
    ) -> Self {
        let encoding = request.encoding;
        let width = if encoding.values == Values::U8 { 1 } else { 4 };
        let row = sample_bytes(&rows.shape().unwrap_or_default(), width);
        let copies = match rows {
            // A tensor is copied before it is encoded.
            RowFormat::Tensors(_) => 3,
            rows if is_zero_copy(rows, encoding) => 1,
            _ => 2,
        };
        Self {
            max_samples,
            terms: request.terms,
            stage,
            bytes_per_sample: input.saturating_add(row.saturating_mul(copies)),
            copies,
        }
    }

    /// Returns the size of the next grant in samples, 1 or more. `known` is the rate of the tenant's own rows,
    /// so that the size does not show what other tenants run. A grant contains a time slice of work for a lane: less would leave the lane idle, and more
    /// would hold memory without benefit. The number is a multiple of the fixed batch size, or else of the
    /// efficient batch if that fits.
    pub(super) fn samples(&self, known: Option<OwnRate>) -> usize {
        let efficient = known.map_or(1, |known| known.efficient_batch.max(1));
        let time_slice = known.map_or(DEFAULT_GRANT, |known| {
            (TIME_SLICE.as_secs_f64() / known.seconds_per_row.max(1e-6)) as usize
        });
        let target = time_slice.max(efficient).clamp(1, self.max_samples.max(1));
        let batch = self.terms.fixed_batch.unwrap_or(efficient).max(1);
        match target / batch {
            0 if self.terms.fixed_batch.is_none() => target,
            batches => batches.max(1).saturating_mul(batch),
        }
    }

    /// Returns the bytes to reserve until `bytes` bytes of rows are sent.
    pub(super) fn row_memory(&self, bytes: usize) -> u64 {
        (bytes as u64).saturating_mul(self.copies)
    }
}

/// True if rows are sent as computed, without a copy.
pub(super) fn is_zero_copy(rows: &RowFormat, encoding: Encoding) -> bool {
    rows.is_zero_copy() && encoding.compression == Compression::None
}

/// Returns the size in bytes of a sample of `shape`, with `width` bytes per element.
pub(super) fn sample_bytes(shape: &[usize], width: usize) -> u64 {
    // Larger shapes are rejected before this point.
    Shape::new(shape.to_vec())
        .bytes(width)
        .map_or(u64::MAX, |bytes| bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_wire::Split;

    fn size(encoding: &str, fixed_batch: Option<usize>) -> GrantSize {
        let request = ExtractionRequest {
            root: String::new(),
            split: Split::None,
            guest: None,
            model: None,
            parameters: String::new(),
            encoding: encoding.parse().unwrap(),
            terms: Terms {
                fixed_batch,
                ..Terms::default()
            },
            view: None,
            digests: false,
            samples: Vec::new(),
        };
        let rows = request.encoding.values.rows(vec![10, 10]);
        GrantSize::new(None, 1000, &rows, &request, 64)
    }

    fn known(seconds: f64, efficient: usize) -> Option<OwnRate> {
        Some(OwnRate {
            seconds_per_row: seconds,
            efficient_batch: efficient,
        })
    }

    #[test]
    fn grant_memory_includes_input_rows_and_encoded_rows() {
        let of = |encoding: &str, bytes| {
            (
                size(encoding, None).bytes_per_sample,
                size(encoding, None).row_memory(bytes),
            )
        };
        assert_eq!(of("f32", 400), (1400, 400));
        assert_eq!(of("f16", 400), (1800, 800));
        assert_eq!(of("u8", 100), (1100, 100));
    }

    #[test]
    fn a_grant_fills_a_time_slice_with_complete_batches() {
        let samples = |known| size("f32", None).samples(known);
        assert_eq!(samples(None), DEFAULT_GRANT);
        assert_eq!(samples(known(0.2, 1)), 2, "VGG19");
        assert_eq!(samples(known(0.02, 4)), 24, "six batches of four");
        assert_eq!(
            samples(known(0.2, 8)),
            8,
            "the efficient batch, although it exceeds a time slice"
        );
        assert_eq!(samples(known(1e-9, 1)), 64);
        assert_eq!(samples(known(10.0, 1)), 1);
        assert_eq!(samples(known(10.0, 100)), 64);
    }

    #[test]
    fn grants_are_multiples_of_a_fixed_batch() {
        let samples = |rows, known| size("f32", Some(rows)).samples(known);
        assert_eq!(
            (samples(5, None), samples(16, None), samples(40, None)),
            (15, 16, 40)
        );
        assert_eq!(samples(6, known(0.02, 4)), 24);
    }
}
