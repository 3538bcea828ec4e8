use crate::ppm::Picture;

/// Scales a picture to `height` by `width` (bilinear, with aligned pixel centers) and values to -1..1.
/// Returns three planes.
pub(crate) fn to_planes(picture: &Picture<'_>, height: u32, width: u32) -> Vec<f32> {
    let rows: Vec<Between> = (0..height).map(|y| between(y, height, picture.height)).collect();
    let columns: Vec<Between> = (0..width).map(|x| between(x, width, picture.width)).collect();
    let mut planes = Vec::with_capacity(3 * rows.len() * columns.len());
    for channel in 0..3 {
        let at = |y: usize, x: usize| f32::from(picture.pixels[y * picture.width as usize + x][channel]);
        for row in &rows {
            for column in &columns {
                let upper = column.mix(at(row.first, column.first), at(row.first, column.second));
                let lower = column.mix(at(row.second, column.first), at(row.second, column.second));
                planes.push(row.mix(upper, lower) / 127.5 - 1.0);
            }
        }
    }
    planes
}

/// Two neighbors along an axis and the weight of the second.
struct Between {
    first: usize,
    second: usize,
    share: f32,
}

impl Between {
    fn mix(&self, first: f32, second: f32) -> f32 {
        first + (second - first) * self.share
    }
}

/// Returns the position of pixel `to` of `of` in a row or column of `from` pixels.
fn between(to: u32, of: u32, from: u32) -> Between {
    let at = ((to as f32 + 0.5) * from as f32 / of as f32 - 0.5).clamp(0.0, from as f32 - 1.0);
    let first = at as usize;
    Between {
        first,
        second: (first + 1).min(from as usize - 1),
        share: at - first as f32,
    }
}
