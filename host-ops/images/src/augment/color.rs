//! Color operations with the same results as Pillow's.

use super::{Canvas, Rgb};

/// Lookup table for the values of a channel.
pub(super) type Table = [u8; 256];

/// Number of pixels for each value of a channel.
pub(super) type Histogram = [u32; 256];

/// Computes a lookup table from a function.
pub(super) fn table(of: impl Fn(u8) -> u8) -> Table {
    std::array::from_fn(|value| of(value as u8))
}

/// Replaces each value using the lookup table of its channel.
pub(super) fn look_up(pixels: &mut [Rgb], tables: &[Table; 3]) {
    for pixel in pixels {
        for (value, table) in pixel.iter_mut().zip(tables) {
            *value = table.get(usize::from(*value)).copied().unwrap_or_default();
        }
    }
}

/// Interpolates like Pillow's `Image.blend`. A factor of 0 returns `from` and 1 returns `to`; larger factors
/// extrapolate. The result is truncated and clipped to 0..255.
pub(super) fn blend(from: u8, to: u8, factor: f32) -> u8 {
    if factor == 1.0 {
        return to;
    }
    (f32::from(from) + factor * (f32::from(to) - f32::from(from))) as u8
}

/// Computes a gray value like Pillow's `convert("L")`, using ITU-R 601-2 in 16-bit fixed point.
fn gray(&[red, green, blue]: &Rgb) -> u8 {
    let sum = u32::from(red) * 19595 + u32::from(green) * 38470 + u32::from(blue) * 7471;
    ((sum + 0x8000) >> 16) as u8
}

/// Returns the rounded mean of the gray image.
pub(super) fn mean(pixels: &[Rgb]) -> u8 {
    let sum: u64 = pixels.iter().map(|pixel| u64::from(gray(pixel))).sum();
    (sum as f64 / pixels.len().max(1) as f64 + 0.5) as u8
}

/// Blends from the gray image by `factor`.
pub(super) fn saturate(pixels: &mut [Rgb], factor: f32) {
    for pixel in pixels {
        let gray = gray(pixel);
        *pixel = pixel.map(|value| blend(gray, value, factor));
    }
}

/// Blends from a smoothed image by `factor`. The filter is `ImageFilter.SMOOTH` (1 1 1, 1 5 1, 1 1 1, divided
/// by 13). It does not affect the border.
pub(super) fn sharpen(canvas: &mut Canvas, factor: f32) {
    let width = canvas.width.max(1);
    let before = canvas.pixels.clone();
    let rows: Vec<&[Rgb]> = before.chunks(width).collect();
    let inner = canvas.pixels.chunks_mut(width).skip(1);
    for (row, three) in inner.zip(rows.windows(3)) {
        let &[above, here, below] = three else {
            continue;
        };
        let around = above.windows(3).zip(here.windows(3)).zip(below.windows(3));
        for (pixel, ((above, here), below)) in row.iter_mut().skip(1).zip(around) {
            let mut smooth = [6_u32; 3];
            for near in above.iter().chain(here).chain(below) {
                for (sum, value) in smooth.iter_mut().zip(near) {
                    *sum += u32::from(*value);
                }
            }
            for (value, sum) in pixel.iter_mut().zip(smooth) {
                let smooth = (sum + 4 * u32::from(*value)) / 13;
                *value = blend(smooth as u8, *value, factor);
            }
        }
    }
    // The border is not smoothed, so blending would not change it.
}

/// Counts the values of each channel.
pub(super) fn histograms(pixels: &[Rgb]) -> [Histogram; 3] {
    let mut histograms = [[0; 256]; 3];
    for pixel in pixels {
        for (histogram, value) in histograms.iter_mut().zip(pixel) {
            if let Some(count) = histogram.get_mut(usize::from(*value)) {
                *count += 1;
            }
        }
    }
    histograms
}

/// Computes the lookup table of `ImageOps.autocontrast` for a channel.
pub(super) fn stretched(histogram: Histogram) -> Table {
    let there = |count: &u32| *count > 0;
    let least = histogram.iter().position(there).unwrap_or(0);
    let most = histogram.iter().rposition(there).unwrap_or(0);
    if most <= least {
        return table(|value| value);
    }
    let scale = 255.0 / (most - least) as f64;
    let offset = -(least as f64) * scale;
    table(|value| (f64::from(value) * scale + offset) as u8)
}

/// Computes the lookup table of `ImageOps.equalize` for a channel.
pub(super) fn equalized(histogram: Histogram) -> Table {
    let total: u32 = histogram.iter().sum();
    let last = histogram.iter().rev().find(|count| **count > 0);
    let step = (total - last.copied().unwrap_or(0)) / 255;
    if step == 0 {
        return table(|value| value);
    }
    let mut sum = step / 2;
    histogram.map(|count| {
        let value = (sum / step).min(255);
        sum += count;
        value as u8
    })
}

/// Rotates hues like `adjust_hue`, through Pillow's 8-bit HSV and with the same rounding.
pub(super) fn rotate_hue(pixels: &mut [Rgb], turns: f64) {
    // The hue wraps around, so negative rotations are converted to a byte as well.
    let turn = ((turns * 255.0) as i32) as u8;
    for pixel in pixels {
        let [hue, saturation, value] = to_hsv(*pixel);
        *pixel = from_hsv([hue.wrapping_add(turn), saturation, value]);
    }
}

/// Equal to Pillow's `rgb2hsv_row`.
fn to_hsv([red, green, blue]: Rgb) -> [u8; 3] {
    let most = red.max(green).max(blue);
    let least = red.min(green).min(blue);
    if most == least {
        return [0, 0, most];
    }
    let range = f32::from(most - least);
    let away = |value: u8| f32::from(most - value) / range;
    let r = away(red);
    let g = away(green);
    let b = away(blue);
    let sixth = if red == most {
        f64::from(b - g)
    } else if green == most {
        2.0 + f64::from(r) - f64::from(b)
    } else {
        4.0 + f64::from(g) - f64::from(r)
    };
    let hue = (f64::from(sixth as f32) / 6.0 + 1.0) % 1.0;
    let saturation = range / f32::from(most);
    [
        (f64::from(hue as f32) * 255.0) as u8,
        (f64::from(saturation) * 255.0) as u8,
        most,
    ]
}

/// Equal to Pillow's `hsv2rgb`.
fn from_hsv([hue, saturation, value]: [u8; 3]) -> Rgb {
    if saturation == 0 {
        return [value; 3];
    }
    let place = (f64::from(hue) * 6.0 / 255.0) as f32;
    let share = f64::from((f64::from(saturation) / 255.0) as f32);
    let sixth = place.floor();
    let past = f64::from(place - sixth);
    let scaled = |by: f64| (f64::from(value) * by).round() as u8;
    let p = scaled(1.0 - share);
    let q = scaled(1.0 - share * past);
    let t = scaled(1.0 - share * (1.0 - past));
    match sixth as u8 % 6 {
        0 => [value, t, p],
        1 => [q, value, p],
        2 => [p, value, t],
        3 => [p, q, value],
        4 => [t, p, value],
        _ => [value, p, q],
    }
}
