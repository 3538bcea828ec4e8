//! Parses the markers of a JPEG like libjpeg before decoding. This covers the color coding, the segments that
//! affect pixels, and the end of the image. The decoder only receives these segments. Both therefore
//! interpret the same data, and other segments cannot cost the decoder time or memory.

use crate::orientation::Orientation;

/// Color coding of the components, following libjpeg (`default_decompress_parms` in `jdapimin.c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColorCoding {
    Gray,
    YCbCr,
    Rgb,
    Cmyk,
    Ycck,
}

/// Marker data that affects decoding.
#[derive(Debug)]
pub(crate) struct JpegHeader<'a> {
    /// Component identifiers in order. Empty if there is no frame header.
    pub(crate) components: Vec<u8>,
    jfif: bool,
    adobe_transform: Option<u8>,
    /// First segment with EXIF data.
    exif: Option<&'a [u8]>,
    /// Last segment with XMP data.
    xmp: Option<&'a [u8]>,
    /// Segments up to and including the first scan header, without those that do not affect pixels.
    pub(crate) essential: Vec<u8>,
    /// Offset of the first scan's data. `None` if there is no scan.
    pub(crate) scan_start: Option<usize>,
    /// Number of components in the first scan.
    pub(crate) scan_components: usize,
    /// Total number of scans.
    pub(crate) scans: usize,
    /// True if there is an end-of-image marker.
    pub(crate) complete: bool,
}

impl<'a> JpegHeader<'a> {
    /// Parses the segments up to the end-of-image marker or the end of the data.
    pub(crate) fn read(bytes: &'a [u8]) -> Self {
        let mut header = Self::empty();
        let mut position = 2;
        while let Some((marker, after)) = next_marker(bytes, position) {
            position = after;
            match marker {
                0xd9 => {
                    header.complete = true;
                    break;
                }
                // Restart markers, start of image and TEM are not followed by a segment.
                0x01 | 0xd0..=0xd8 => {}
                _ => {
                    let Some(segment) = segment(bytes, after) else {
                        break;
                    };
                    position = after + 2 + segment.len();
                    header.segment(marker, segment, position);
                }
            }
        }
        header
    }

    fn empty() -> Self {
        Self {
            components: Vec::new(),
            jfif: false,
            adobe_transform: None,
            exif: None,
            xmp: None,
            essential: vec![0xff, 0xd8],
            scan_start: None,
            scan_components: 0,
            scans: 0,
            complete: false,
        }
    }

    fn segment(&mut self, marker: u8, segment: &'a [u8], end: usize) {
        match marker {
            // Start-of-frame markers, which are C0 to CF except DHT, JPG and DAC.
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) && self.components.is_empty() => {
                self.frame(segment);
            }
            0xda => self.scans += 1,
            0xe0 if segment.starts_with(b"JFIF\0") => self.jfif = true,
            0xee if segment.starts_with(b"Adobe") => {
                self.adobe_transform = segment.get(11).copied().or(self.adobe_transform);
            }
            _ => {}
        }
        if self.scan_start.is_none() {
            self.note_metadata(marker, segment);
            self.keep(marker, segment, end);
        }
    }

    /// Records EXIF and XMP. Only called up to the first scan header, because Pillow ignores metadata after
    /// it.
    fn note_metadata(&mut self, marker: u8, segment: &'a [u8]) {
        if marker != 0xe1 {
            return;
        }
        if segment.starts_with(b"Exif\0\0") {
            self.exif = self.exif.or(Some(segment));
        } else if segment.starts_with(b"http://ns.adobe.com/xap/1.0/\0") {
            self.xmp = Some(segment);
        }
    }

    /// Returns the orientation from the metadata.
    pub(crate) fn orientation(&self) -> Orientation {
        Orientation::from_metadata(self.exif, self.xmp)
    }

    /// Appends a segment to `essential` if it affects pixels. These are frame and scan headers, tables,
    /// restart intervals, and segments that the decoder must refuse. The Adobe marker is omitted because
    /// [`Self::color_coding`] evaluates it.
    fn keep(&mut self, marker: u8, segment: &[u8], end: usize) {
        if !matches!(marker, 0xc0..=0xcf | 0xda..=0xdf) {
            return;
        }
        // The length field of a segment has 16 bits, so the conversion succeeds.
        let length = u16::try_from(segment.len() + 2).unwrap_or(u16::MAX);
        self.essential.extend([0xff, marker]);
        self.essential.extend(length.to_be_bytes());
        self.essential.extend(segment);
        if marker == 0xda {
            self.scan_start = Some(end);
            self.scan_components = segment.first().copied().unwrap_or_default().into();
        }
    }

    fn frame(&mut self, segment: &[u8]) {
        if let [_precision, _h1, _h0, _w1, _w0, _count, components @ ..] = segment {
            self.components = components
                .chunks_exact(3)
                .filter_map(|c| c.first().copied())
                .collect();
        }
    }

    /// Returns the color coding. `None` if the number of components is not supported, as in Pillow.
    pub(crate) fn color_coding(&self) -> Option<ColorCoding> {
        Some(match (self.components.as_slice(), self.adobe_transform) {
            ([_], _) => ColorCoding::Gray,
            ([_, _, _], _) if self.jfif => ColorCoding::YCbCr,
            ([_, _, _], Some(0)) => ColorCoding::Rgb,
            ([_, _, _], Some(_)) => ColorCoding::YCbCr,
            ([b'R', b'G', b'B'], None) => ColorCoding::Rgb,
            ([_, _, _], None) => ColorCoding::YCbCr,
            ([_, _, _, _], None | Some(0)) => ColorCoding::Cmyk,
            ([_, _, _, _], Some(_)) => ColorCoding::Ycck,
            _ => return None,
        })
    }
}

/// Returns the next marker at or after `position` with its end offset. Skips entropy-coded data and fill
/// bytes.
fn next_marker(bytes: &[u8], mut position: usize) -> Option<(u8, usize)> {
    loop {
        position += bytes.get(position..)?.iter().position(|&byte| byte == 0xff)? + 1;
        match bytes.get(position)? {
            0x00 | 0xff => {}
            &marker => return Some((marker, position + 1)),
        }
    }
}

/// Returns the body of a segment. `position` is the offset of the length field.
fn segment(bytes: &[u8], position: usize) -> Option<&[u8]> {
    let rest = bytes.get(position..)?;
    let length = usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?]));
    rest.get(2..length.max(2))
}
