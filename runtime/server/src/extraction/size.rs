//! How many samples a grant has, and the memory they take.

use frostline_batching::device::{QUANTUM, StageFigures};
use frostline_tensor::{Shape, Stage, Terms};
use frostline_wire::{Encoding, ExtractionRequest, Values};

/// Samples of a grant of a network whose time is not known yet: to a CPU the size hardly matters (SqueezeNet on one thread: 6.3 ms a sample
/// alone, 7.0 in a batch of 16), so what counts is that a call's own cost, tens of microseconds, vanishes beside 0.1 s of work.
pub(crate) const DEFAULT_GRANT: usize = 16;

/// What a call takes beside its samples: its stack, the handles, and the linear memory of a guest like the stock one (1 MiB).
const CALL: u64 = 2 << 20;

/// What a grant asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GrantSize {
    /// Most samples.
    most: usize,
    terms: Terms,
    /// What is computed, where anything is.
    pub(super) stage: Option<Stage>,
    /// Bytes of a call, whatever its samples.
    pub(super) fixed: u64,
    /// Bytes of a sample: what goes in, what comes out, and that encoded.
    pub(super) per_sample: u64,
    /// Whether rows are encoded beside what they were.
    copies: bool,
}

impl GrantSize {
    /// For rows of `row` made from `input` bytes a sample by `stage`, that travel and are computed as the `request` says; of `most` samples.
    pub(super) fn new(
        stage: Option<Stage>,
        input: u64,
        row: &[usize],
        request: &ExtractionRequest,
        most: usize,
    ) -> Self {
        let (encoding, terms) = (request.encoding, request.terms);
        let copies = !is_zero_copy(encoding);
        let width = if encoding.values == Values::U8 { 1 } else { 4 };
        let row = bytes(row, width);
        let rows = if copies { row.saturating_mul(2) } else { row };
        Self {
            most,
            terms,
            stage,
            fixed: CALL,
            per_sample: input.saturating_add(rows),
            copies,
        }
    }

    /// Samples of the next grant, at least 1, by what is known of its stage: as many as a lane takes a quantum for (so that it is not given
    /// less than it would take, and no tenant holds memory for more), in whole batches, which are fixed or the knee.
    pub(super) fn samples(&self, known: Option<StageFigures>) -> usize {
        let knee = known.map_or(1, |known| known.knee.max(1));
        let seconds = known.and_then(|known| known.seconds_per_row);
        let quantum = seconds.map_or(DEFAULT_GRANT, |seconds| {
            (QUANTUM.as_secs_f64() / seconds.max(1e-6)) as usize
        });
        let target = quantum.max(knee).clamp(1, self.most.max(1));
        let batch = self.terms.fixed_batch.unwrap_or(knee).max(1);
        match target / batch {
            0 if self.terms.fixed_batch.is_none() => target,
            batches => batches.max(1).saturating_mul(batch),
        }
    }

    /// What rows of so many bytes take until they are sent.
    pub(super) fn row_memory(&self, bytes: usize) -> u64 {
        let bytes = bytes as u64;
        if self.copies {
            bytes.saturating_mul(2)
        } else {
            bytes
        }
    }
}

/// Whether rows are sent as they were computed, uncopied.
pub(super) fn is_zero_copy(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::F32 | Encoding::U8)
}

/// Bytes of one sample of `shape`, whose elements have so many.
pub(super) fn bytes(shape: &[usize], width: usize) -> u64 {
    // A shape that is too large to count was refused before.
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
            samples: Vec::new(),
        };
        GrantSize::new(None, 1000, &[10, 10], &request, 64)
    }

    fn known(seconds: f64, knee: usize) -> Option<StageFigures> {
        Some(StageFigures {
            seconds_per_row: Some(seconds),
            knee,
            session: 0,
            fixed: 0,
            per_row: 0,
            margin: 0.0,
            lanes: 0,
            waiting: 0,
        })
    }

    #[test]
    fn a_grant_has_what_goes_in_comes_out_and_is_encoded() {
        let of = |encoding: &str, bytes| {
            (
                size(encoding, None).per_sample,
                size(encoding, None).row_memory(bytes),
            )
        };
        assert_eq!(of("f32", 400), (1400, 400));
        assert_eq!(of("f16", 400), (1800, 800));
        assert_eq!(of("u8", 100), (1100, 100));
    }

    #[test]
    fn a_grant_keeps_a_lane_busy_for_a_quantum_in_whole_batches() {
        let samples = |known| size("f32", None).samples(known);
        assert_eq!(samples(None), DEFAULT_GRANT);
        assert_eq!(samples(known(0.2, 1)), 2, "VGG19");
        assert_eq!(samples(known(0.02, 4)), 24, "six batches of four");
        assert_eq!(samples(known(0.2, 8)), 8, "the knee, though it takes longer");
        assert_eq!(samples(known(1e-9, 1)), 64);
        assert_eq!(samples(known(10.0, 1)), 1);
        assert_eq!(samples(known(10.0, 100)), 64);
    }

    #[test]
    fn a_fixed_batch_is_granted_whole() {
        let samples = |rows, known| size("f32", Some(rows)).samples(known);
        assert_eq!(
            (samples(5, None), samples(16, None), samples(40, None)),
            (15, 16, 40)
        );
        assert_eq!(samples(6, known(0.02, 4)), 24);
    }
}
