//! What libjpeg reads from a JPEG's markers before it decodes: how colors are coded, which segments decide about the pixels, and
//! whether the data is whole. The decoder sees those segments only, so that both read the same, and nothing else can cost it
//! time or memory.

use crate::orientation::Orientation;

/// How the components of a frame code color, by libjpeg's rules (`default_decompress_parms` in its `jdapimin.c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColorCoding {
    Gray,
    YCbCr,
    Rgb,
    Cmyk,
    Ycck,
}

/// The parts of the markers that matter here.
#[derive(Debug)]
pub(crate) struct JpegHeader<'a> {
    /// The components' identifiers, in order; empty until a frame header is seen.
    pub(crate) components: Vec<u8>,
    jfif: bool,
    adobe_transform: Option<u8>,
    /// The first segment of EXIF data, and the last of XMP.
    exif: Option<&'a [u8]>,
    xmp: Option<&'a [u8]>,
    /// The data up to where the first scan's header ends, without segments that say nothing about the pixels.
    pub(crate) essential: Vec<u8>,
    /// Where the first scan's data starts; `None` until its header is seen.
    pub(crate) scan_start: Option<usize>,
    /// Components of the first scan.
    pub(crate) scan_components: usize,
    /// Scans in all.
    pub(crate) scans: usize,
    /// Whether an end-of-image marker follows.
    pub(crate) complete: bool,
}

impl<'a> JpegHeader<'a> {
    /// Walks the segments of `bytes` to the end-of-image marker or the end of the data.
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
                // Markers without a segment: restarts, start of image, and TEM.
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
            // Every start-of-frame marker: C0 to CF without DHT, JPG and DAC.
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

    /// As Pillow does, which reads none after the first scan's header.
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

    /// Which way up the pixels are seen.
    pub(crate) fn orientation(&self) -> Orientation {
        Orientation::from_metadata(self.exif, self.xmp)
    }

    /// Keeps what stands before the first scan's data if pixels depend on it: frame and scan headers, tables, restart intervals, and what the
    /// decoder has to refuse. Neither profiles nor Adobe's marker: [`Self::color_coding`] decides what components mean.
    fn keep(&mut self, marker: u8, segment: &[u8], end: usize) {
        if !matches!(marker, 0xc0..=0xcf | 0xda..=0xdf) {
            return;
        }
        // A segment comes from 16 bits of length.
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

    /// The color coding; `None` for a number of components that Pillow refuses too.
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

/// The next marker at or after `position` and where it ends; skips entropy-coded data and fill bytes.
fn next_marker(bytes: &[u8], mut position: usize) -> Option<(u8, usize)> {
    loop {
        position += bytes.get(position..)?.iter().position(|&byte| byte == 0xff)? + 1;
        match bytes.get(position)? {
            0x00 | 0xff => {}
            &marker => return Some((marker, position + 1)),
        }
    }
}

/// The body of the segment whose length field starts at `position`.
fn segment(bytes: &[u8], position: usize) -> Option<&[u8]> {
    let rest = bytes.get(position..)?;
    let length = usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?]));
    rest.get(2..length.max(2))
}
