use super::{Canvas, Rgb};

/// A rectangle in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Offset from the left.
    pub left: u32,
    /// Offset from the top.
    pub top: u32,
    /// Number of columns.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
}

/// Affine matrix `(a, b, c, d, e, f)` in the format of Pillow's `Image.transform`: the position `(x, y)` is mapped to
/// `(a x + b y + c, d x + e y + f)`.
pub type Matrix = [f64; 6];

/// Returns the matrix that applies `first` and then `second`.
pub(super) fn composed(first: Matrix, second: Matrix) -> Matrix {
    let [a, b, c, d, e, f] = second;
    let [first_a, first_b, first_c, first_d, first_e, first_f] = first;
    [
        a * first_a + b * first_d,
        a * first_b + b * first_e,
        a * first_c + b * first_f + c,
        d * first_a + e * first_d,
        d * first_b + e * first_e,
        d * first_c + e * first_f + f,
    ]
}

/// Mirrors an image horizontally.
pub(super) fn flip(canvas: &mut Canvas) {
    for row in canvas.pixels.chunks_mut(canvas.width.max(1)) {
        row.reverse();
    }
}

pub(super) fn fill(canvas: &mut Canvas, area: Area, color: Rgb) {
    let left = area.left as usize;
    let width = area.width as usize;
    let rows = canvas.pixels.chunks_mut(canvas.width.max(1));
    for row in rows.skip(area.top as usize).take(area.height as usize) {
        if let Some(part) = row.get_mut(left..left.saturating_add(width)) {
            part.fill(color);
        }
    }
}

/// Returns the matrix of `Image.rotate`, which rotates counterclockwise around the center.
pub(super) fn rotation(degrees: f64, width: u32, height: u32) -> Matrix {
    let angle = -degrees.to_radians();
    let sin = libm::sin(angle);
    let cos = libm::cos(angle);
    let x = f64::from(width) / 2.0;
    let y = f64::from(height) / 2.0;
    [cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y]
}

/// Transforms like `Image.transform` with an affine matrix and nearest pixels, in Pillow's 16-bit fixed point
/// (`affine_fixed`). Pixels from outside of the image are black.
pub(super) fn transform(canvas: &mut Canvas, [a, b, c, d, e, f]: Matrix) {
    let fixed = |value: f64| (value * 65536.0 + 0.5).floor() as i64;
    let right = [fixed(a), fixed(d)];
    let down = [fixed(b), fixed(e)];
    let mut start = [fixed(c + a * 0.5 + b * 0.5), fixed(f + d * 0.5 + e * 0.5)];
    let width = canvas.width.max(1);
    let height = canvas.pixels.len() / width;
    let mut turned = Vec::with_capacity(canvas.pixels.len());
    for _ in 0..height {
        let mut at = start;
        for _ in 0..width {
            let [x, y] = at.map(|place| usize::try_from(place >> 16).unwrap_or(usize::MAX));
            let inside = x < width && y < height;
            let from = inside.then(|| canvas.pixels.get(y * width + x)).flatten();
            turned.push(from.copied().unwrap_or_default());
            at = [at[0] + right[0], at[1] + right[1]];
        }
        start = [start[0] + down[0], start[1] + down[1]];
    }
    canvas.pixels = turned;
}
