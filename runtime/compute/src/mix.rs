use crate::error::ComputeError;
use frostline_tensor::Tensor;
use std::ops::Range;

/// Mixes each row of a batch with the previous row, like `RandomMixUp` and `RandomCutMix` of torchvision. The
/// first row wraps around to the last.
#[derive(Debug, Clone, PartialEq)]
pub enum Mix {
    /// MixUp: `own·row + (1 - own)·other`.
    Up {
        /// Weight of the original row, between 0 and 1.
        own: f32,
    },
    /// CutMix: a box in the feature map is replaced by the same box of the other row.
    Cut {
        /// Remaining fraction of the area if the box is not clipped at the edges.
        own: f64,
        /// Center of the box, relative to width and height.
        center: [f64; 2],
    },
}

impl Mix {
    /// Mixes rows and the corresponding targets, `[rows, classes]`.
    ///
    /// # Errors
    /// Returns [`ComputeError::CutMix`] for CutMix if rows are not feature maps `[channels, height, width]`.
    pub(crate) fn apply(&self, rows: &Tensor, targets: &Tensor) -> Result<[Tensor; 2], ComputeError> {
        match self {
            Self::Up { own } => Ok([blend(rows, *own)?, blend(targets, *own)?]),
            Self::Cut { own, center } => cut(rows, targets, *own, *center),
        }
    }
}

/// Pairs each row with the previous row, with wraparound.
fn pairs(values: &[f32], rows: usize) -> impl Iterator<Item = (&[f32], &[f32])> {
    let row = (values.len() / rows.max(1)).max(1);
    let others = values
        .chunks(row)
        .skip(rows.saturating_sub(1))
        .chain(values.chunks(row));
    values.chunks(row).zip(others)
}

fn blend(tensor: &Tensor, own: f32) -> Result<Tensor, ComputeError> {
    let mut mixed = Vec::with_capacity(tensor.as_f32().unwrap_or_default().len());
    for (row, other) in pairs(tensor.as_f32().unwrap_or_default(), tensor.rows()?) {
        mixed.extend(
            row.iter()
                .zip(other)
                .map(|(own_part, other)| own * own_part + (1.0 - own) * other),
        );
    }
    Ok(Tensor::f32(tensor.shape().clone(), mixed)?)
}

fn cut(rows: &Tensor, targets: &Tensor, own: f64, center: [f64; 2]) -> Result<[Tensor; 2], ComputeError> {
    let &[_, _, height, width] = rows.shape().dims() else {
        return Err(ComputeError::CutMix {
            shape: rows.shape().dims().to_vec(),
        });
    };
    let half = 0.5 * (1.0 - own).sqrt();
    let across = span(width, center.first().copied().unwrap_or_default(), half);
    let down = span(height, center.last().copied().unwrap_or_default(), half);
    let share = (across.len() * down.len()) as f32 / (width * height).max(1) as f32;
    let mut mixed = Vec::with_capacity(rows.as_f32().unwrap_or_default().len());
    for (row, other) in pairs(rows.as_f32().unwrap_or_default(), rows.rows()?) {
        for (place, (own, other)) in row.iter().zip(other).enumerate() {
            let line = place / width % height;
            let column = place % width;
            let inside = down.contains(&line) && across.contains(&column);
            mixed.push(if inside { *other } else { *own });
        }
    }
    let mixed = Tensor::f32(rows.shape().clone(), mixed)?;
    Ok([mixed, blend(targets, 1.0 - share)?])
}

/// Returns the indices of `0..length` covered by a box. `center` and `half` (half a side) are relative to
/// `length`.
fn span(length: usize, center: f64, half: f64) -> Range<usize> {
    let center = (center * length as f64) as usize;
    let half = (half * length as f64) as usize;
    center.saturating_sub(half)..(center + half).min(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Tensor {
        Tensor::f32([3, 1, 2, 4], (0..24).map(|value| value as f32).collect()).unwrap()
    }

    fn targets() -> Tensor {
        Tensor::f32([3, 3], vec![1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]).unwrap()
    }

    #[test]
    fn rows_are_blended_with_the_ones_before_them() {
        let [mixed, shares] = Mix::Up { own: 0.75 }.apply(&rows(), &targets()).unwrap();
        assert_eq!(
            mixed.as_f32().unwrap()[..2],
            [0.75 * 0.0 + 0.25 * 16.0, 0.75 + 0.25 * 17.0]
        );
        assert_eq!(mixed.as_f32().unwrap()[8], 0.75 * 8.0);
        let expected = [0.75, 0.0, 0.25, 0.25, 0.75, 0.0, 0.0, 0.25, 0.75];
        assert_eq!(shares.as_f32().unwrap(), expected);
    }

    #[test]
    fn a_box_comes_from_the_row_before_and_targets_follow_its_area() {
        // Half a side spans half of the map, so a box at the center covers the whole map.
        let wide = Mix::Cut {
            own: 0.0,
            center: [0.5, 0.5],
        };
        let [mixed, shares] = wide.apply(&rows(), &targets()).unwrap();
        assert_eq!(mixed.as_f32().unwrap()[..8], rows().as_f32().unwrap()[16..]);
        assert_eq!(shares.as_f32().unwrap()[..3], [0.0, 0.0, 1.0]);
        let corner = Mix::Cut {
            own: 0.0,
            center: [0.0, 0.0],
        };
        let [mixed, shares] = corner.apply(&rows(), &targets()).unwrap();
        assert_eq!(
            mixed.as_f32().unwrap()[..8],
            [16.0, 17.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
        );
        assert_eq!(shares.as_f32().unwrap()[..3], [0.75, 0.0, 0.25]);
    }

    #[test]
    fn rows_that_are_no_maps_are_refused_for_cutmix() {
        let cut = Mix::Cut {
            own: 0.5,
            center: [0.5, 0.5],
        };
        let error = cut.apply(&targets(), &targets()).unwrap_err();
        assert!(error.to_string().contains("mixup_alpha"), "{error}");
    }
}
