//! Processing of batches in parts with bounded memory.

use crate::tape::Tape;

/// Maximum size of an unrolled matrix in bytes. Larger batches are processed in parts. Matrix products are
/// equally efficient with 16 MiB and 64 MiB. Without parts, the matrix for a 56 x 56 layer would need half a
/// gigabyte.
const UNROLLED_BYTES: usize = 16 << 20;

/// Gathers along axis 1 of `[n, length, c]`. The index `length` selects zeros.
pub(super) fn gather_padded(tape: &mut Tape, tensor: &str, pattern: &[usize], length: usize) -> String {
    let padded = if pattern.contains(&length) {
        tape.emit.append_zeros(tensor)
    } else {
        tensor.to_owned()
    };
    tape.emit.gather(&padded, pattern.iter().copied(), 1)
}

/// Splits rows `[n·positions, c]` into `[images, positions, c]` for all parts of the batch.
pub(super) fn split(
    tape: &mut Tape,
    rows: &str,
    parts: &[usize],
    positions: usize,
    channels: usize,
) -> Vec<String> {
    let whole = tape
        .emit
        .reshape(rows, &[parts.iter().sum(), positions, channels]);
    if parts.len() == 1 {
        vec![whole]
    } else {
        tape.emit.split(&whole, parts, 0)
    }
}

pub(super) fn join(tape: &mut Tape, mut parts: Vec<String>) -> String {
    if parts.len() == 1 {
        parts.swap_remove(0)
    } else {
        tape.emit.concat(&parts, 0)
    }
}

/// Divides `batch` images into parts of equal size (the last may be smaller), each with up to
/// [`UNROLLED_BYTES`] unrolled. A single image can exceed the limit.
pub(super) fn parts(batch: usize, bytes_per_image: usize) -> Vec<usize> {
    let most = (UNROLLED_BYTES / bytes_per_image.max(1)).clamp(1, batch.max(1));
    let even = batch.div_ceil(batch.div_ceil(most).max(1)).max(1);
    (0..batch)
        .step_by(even)
        .map(|start| even.min(batch - start))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_batch_within_the_limit() {
        assert_eq!(parts(64, 1), [64]);
        assert_eq!(parts(3, usize::MAX), [1, 1, 1]);
        for batch in 1..20 {
            for most in 1..20 {
                let parts = parts(batch, UNROLLED_BYTES / most);
                assert_eq!(parts.iter().sum::<usize>(), batch);
                assert!(
                    parts.iter().all(|part| (1..=most).contains(part)),
                    "{batch} in {most}: {parts:?}"
                );
            }
        }
    }
}
