//! How many samples a grant has, and the memory they take.

use frostline_tensor::{Shape, Terms};
use frostline_wire::{Encoding, Values};

/// Samples of a grant of a network whose time is not known yet: to a CPU the size hardly matters (SqueezeNet on one thread: 6.3 ms a sample
/// alone, 7.0 in a batch of 16), so what counts is that a call's own cost, tens of microseconds, vanishes beside 0.1 s of work.
pub(crate) const UNKNOWN: usize = 16;

/// What a call takes beside its samples: its stack, the handles, and the linear memory of a guest like the stock one (1 MiB).
const CALL: u64 = 2 << 20;

/// What a grant asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GrantSize {
    /// Most samples; at least 1.
    pub(super) samples: usize,
    /// Bytes of a call, whatever its samples.
    pub(super) fixed: u64,
    /// Bytes of a sample: what goes in, what comes out, and that encoded.
    pub(super) each: u64,
    /// Whether rows are encoded beside what they were.
    copies: bool,
}

impl GrantSize {
    /// For rows of `row` made from `input` bytes a sample, that travel as `encoding`; of `most` samples.
    pub(super) fn new(input: u64, row: &[usize], encoding: Encoding, terms: Terms, most: usize) -> Self {
        let copies = !travels_as_it_is(encoding);
        let width = if encoding.values == Values::U8 { 1 } else { 4 };
        let row = bytes(row, width);
        let rows = if copies { row.saturating_mul(2) } else { row };
        Self {
            samples: samples(terms, most),
            fixed: CALL,
            each: input.saturating_add(rows),
            copies,
        }
    }

    /// What rows of so many bytes take until they are sent.
    pub(super) fn of_rows(self, bytes: usize) -> u64 {
        let bytes = bytes as u64;
        if self.copies {
            bytes.saturating_mul(2)
        } else {
            bytes
        }
    }
}

/// Whole fixed batches where the request has one, as no run is joined then.
fn samples(terms: Terms, most: usize) -> usize {
    let most = most.clamp(1, UNKNOWN);
    match terms.fixed_batch {
        Some(rows) if rows > 0 => (most / rows).max(1).saturating_mul(rows),
        _ => most,
    }
}

/// Whether rows are sent as they were computed, uncopied.
pub(super) fn travels_as_it_is(encoding: Encoding) -> bool {
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

    #[test]
    fn a_grant_has_what_goes_in_comes_out_and_is_encoded() {
        let of = |encoding: &str| {
            let encoding = encoding.parse().unwrap();
            GrantSize::new(1000, &[10, 10], encoding, Terms::default(), 64)
        };
        assert_eq!((of("f32").each, of("f32").samples), (1400, UNKNOWN));
        assert_eq!((of("f16").each, of("f16").of_rows(400)), (1800, 800));
        assert_eq!((of("u8").each, of("u8").of_rows(100)), (1100, 100));
    }

    #[test]
    fn a_fixed_batch_is_granted_whole() {
        let of = |rows, most| {
            let terms = Terms {
                fixed_batch: Some(rows),
                ..Terms::default()
            };
            samples(terms, most)
        };
        assert_eq!((of(5, 64), of(16, 64), of(40, 64), of(3, 2)), (15, 16, 40, 3));
        assert_eq!(samples(Terms::default(), 0), 1);
    }
}
