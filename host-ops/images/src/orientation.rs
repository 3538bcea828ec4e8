//! Image orientation from EXIF or XMP metadata, following Pillow's `ImageOps.exif_transpose`.

use crate::byte_order::{big_endian, little_endian};

/// Operations that turn stored pixels upright. If set, they are applied in this order: transpose about the
/// main diagonal, rotate by 180 degrees, mirror from left to right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Orientation {
    transposed: bool,
    rotated: bool,
    mirrored: bool,
}

/// The TIFF tag `Orientation`.
const TAG: u32 = 0x0112;

impl Orientation {
    /// Rows stored from the bottom.
    pub(crate) const BOTTOM_UP: Self = Self {
        transposed: false,
        rotated: true,
        mirrored: true,
    };

    /// Returns the orientation from metadata. XMP is used if EXIF contains no orientation. Broken metadata is
    /// ignored.
    pub(crate) fn from_metadata(exif: Option<&[u8]>, xmp: Option<&[u8]>) -> Self {
        let number = exif.and_then(from_exif).or_else(|| xmp.and_then(from_xmp));
        Self::from_number(number.unwrap_or(1))
    }

    /// Converts a TIFF orientation number. Reserved numbers are treated as upright.
    pub(crate) fn from_number(number: u32) -> Self {
        Self {
            transposed: matches!(number, 5..=8),
            rotated: matches!(number, 3 | 4 | 7 | 8),
            mirrored: matches!(number, 2 | 4 | 6 | 8),
        }
    }

    /// Returns width and height of the upright image, given the stored width and height.
    pub(crate) fn sides(self, (width, height): (u32, u32)) -> (u32, u32) {
        if self.transposed {
            (height, width)
        } else {
            (width, height)
        }
    }

    /// Returns the maximum bytes that [`Self::turn`] needs for RGB pixels of this size, including the pixels.
    pub(crate) fn memory_needed(self, bytes: u64) -> u64 {
        if self.transposed { 2 * bytes } else { bytes }
    }

    /// Applies the orientation to RGB pixels with the given stored width and height.
    pub(crate) fn turn(self, pixels: Vec<u8>, (width, height): (u32, u32)) -> Vec<u8> {
        let mut pixels = if self.transposed {
            transposed(&pixels, width as usize, height as usize)
        } else {
            pixels
        };
        if self.rotated {
            pixels.as_chunks_mut::<3>().0.reverse();
        }
        if self.mirrored {
            let (width, _) = self.sides((width, height));
            for row in pixels.as_chunks_mut::<3>().0.chunks_mut(width.max(1) as usize) {
                row.reverse();
            }
        }
        pixels
    }
}

fn transposed(pixels: &[u8], width: usize, height: usize) -> Vec<u8> {
    /// Number of rows to process together. A cache line contains this many pixels, so each line is written in
    /// up to two passes.
    const BAND: usize = 21;
    let source = pixels.as_chunks::<3>().0;
    let mut turned = vec![[0; 3]; source.len()];
    for (band, rows) in source.chunks(width.max(1) * BAND).enumerate() {
        for (column, line) in turned.chunks_exact_mut(height.max(1)).enumerate() {
            let line = line.get_mut(band * BAND..).unwrap_or_default();
            for (target, row) in line.iter_mut().zip(rows.chunks_exact(width.max(1))) {
                *target = row.get(column).copied().unwrap_or_default();
            }
        }
    }
    turned.into_flattened()
}

/// Reads the tag from the first directory of EXIF data, which has the format of a TIFF file. Entries with
/// several values or another type than an integer are ignored.
fn from_exif(exif: &[u8]) -> Option<u32> {
    let tiff = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    let number = match tiff.get(..2)? {
        b"II" => little_endian,
        b"MM" => big_endian,
        _ => return None,
    };
    let directory = tiff.get(number(tiff.get(4..8)?) as usize..)?;
    let count = number(directory.get(..2)?);
    let entries = directory.get(2..)?.as_chunks().0.iter().take(count as usize);
    let mut values = entries.filter_map(|&[t0, t1, k0, k1, c0, c1, c2, c3, v0, v1, v2, v3]| {
        match (number(&[t0, t1]), number(&[k0, k1]), number(&[c0, c1, c2, c3])) {
            (TAG, 3, 1) => Some(number(&[v0, v1])),
            (TAG, 4, 1) => Some(number(&[v0, v1, v2, v3])),
            _ => None,
        }
    });
    values.next_back()
}

/// Finds `tiff:Orientation="6"` or `tiff:Orientation>6` at any position.
fn from_xmp(xmp: &[u8]) -> Option<u32> {
    const NAME: &[u8] = b"tiff:Orientation";
    let named = xmp
        .windows(NAME.len())
        .enumerate()
        .filter(|(_, name)| *name == NAME);
    let values = named.filter_map(|(place, _)| {
        let rest = xmp.get(place + NAME.len()..)?;
        let value = rest.strip_prefix(b"=\"").or_else(|| rest.strip_prefix(b">"))?;
        value.first().filter(|digit| digit.is_ascii_digit())
    });
    values.map(|digit| u32::from(digit - b'0')).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns EXIF data with a single entry.
    fn exif(order: &[u8], kind: u16, count: u32, value: &[u8; 4]) -> Vec<u8> {
        let big = order == b"MM";
        let short = |value: u16| {
            if big {
                value.to_be_bytes()
            } else {
                value.to_le_bytes()
            }
        };
        let long = |value: u32| {
            if big {
                value.to_be_bytes()
            } else {
                value.to_le_bytes()
            }
        };
        let [start, count] = [8, count].map(long);
        let [magic, entries, tag, kind] = [42, 1, 0x0112, kind].map(short);
        [order, &magic, &start, &entries, &tag, &kind, &count, value].concat()
    }

    #[test]
    fn exif_says_it_in_either_byte_order() {
        assert_eq!(from_exif(&exif(b"II", 3, 1, &[6, 0, 0, 0])), Some(6));
        assert_eq!(from_exif(&exif(b"MM", 3, 1, &[0, 8, 0, 0])), Some(8));
        let prefixed = [&b"Exif\0\0"[..], &exif(b"MM", 4, 1, &[0, 0, 0, 3])].concat();
        assert_eq!(from_exif(&prefixed), Some(3));
    }

    #[test]
    fn broken_metadata_says_nothing() {
        let whole = exif(b"II", 3, 1, &[6, 0, 0, 0]);
        for length in 0..whole.len() {
            assert_eq!(from_exif(&whole[..length]), None, "{length}");
        }
        assert_eq!(from_exif(&exif(b"II", 2, 1, &[6, 0, 0, 0])), None);
        assert_eq!(from_exif(&exif(b"II", 3, 2, &[6, 0, 0, 0])), None);
        assert_eq!(from_exif(b"II*\0\xff\xff\xff\xff"), None);
        for number in [0, 1, 9, u32::MAX] {
            assert_eq!(Orientation::from_number(number), Orientation::default());
        }
    }

    #[test]
    fn xmp_counts_where_exif_says_nothing() {
        let six = Orientation::from_number(6);
        let attribute = &b"<x tiff:Orientation=\"6\"/>"[..];
        let element = &b"<tiff:Orientation>6</tiff:Orientation>"[..];
        for xmp in [attribute, element, b"tiff:Orientation tiff:Orientation>6"] {
            assert_eq!(Orientation::from_metadata(None, Some(xmp)), six);
        }
        let three = exif(b"II", 3, 1, &[3, 0, 0, 0]);
        assert_eq!(
            Orientation::from_metadata(Some(&three), Some(attribute)),
            Orientation::from_number(3)
        );
        assert_eq!(
            Orientation::from_metadata(None, Some(b"tiff:Orientation=")),
            Orientation::default()
        );
    }

    /// Returns the pixels `ab`, `cd`, `ef` after applying an orientation.
    fn turned(number: u32) -> String {
        let pixels: Vec<u8> = b"abcdef".iter().flat_map(|&pixel| [pixel; 3]).collect();
        let orientation = Orientation::from_number(number);
        let turned = orientation.turn(pixels, (2, 3));
        let (width, _) = orientation.sides((2, 3));
        let rows = turned.as_chunks::<3>().0.chunks(width as usize);
        let rows = rows.map(|row| row.iter().map(|pixel| char::from(pixel[0])).collect::<String>());
        rows.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_eight_orientations() {
        let all: Vec<String> = (1..=8).map(turned).collect();
        assert_eq!(
            all,
            [
                "ab cd ef", "ba dc fe", "fe dc ba", "ef cd ab", "ace bdf", "eca fdb", "fdb eca", "bdf ace"
            ]
        );
    }

    #[test]
    fn more_rows_than_a_band_are_transposed() {
        let width = 5;
        let height = 47;
        let pixels: Vec<u8> = (0..width * height * 3).map(|value| (value % 251) as u8).collect();
        let turned = transposed(&pixels, width, height);
        for (x, y) in (0..width).flat_map(|x| (0..height).map(move |y| (x, y))) {
            assert_eq!(
                turned[(x * height + y) * 3..][..3],
                pixels[(y * width + x) * 3..][..3]
            );
        }
    }
}
