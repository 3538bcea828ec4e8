//! What libjpeg reads from a JPEG's markers before it decodes: the size, how colours are coded, and whether the data is
//! whole. The decoder's own idea of the colour space differs from libjpeg's (and so Pillow's) on some files.

/// How the components of a frame code colour, by libjpeg's rules (`default_decompress_parms` in its `jdapimin.c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColourCoding {
    Grey,
    YCbCr,
    Rgb,
    Cmyk,
    Ycck,
}

/// The parts of the markers that matter here.
#[derive(Debug, Default)]
pub(crate) struct JpegHeader {
    pub(crate) width: u16,
    pub(crate) height: u16,
    /// The components' identifiers, in order; empty until a frame header is seen.
    pub(crate) components: Vec<u8>,
    jfif: bool,
    adobe_transform: Option<u8>,
    /// Where the text `Adobe` stands in APP14 segments.
    pub(crate) adobe_markers: Vec<usize>,
    /// Whether an end-of-image marker follows.
    pub(crate) complete: bool,
}

impl JpegHeader {
    /// Walks the segments of `bytes` to the end-of-image marker or the end of the data.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let mut header = Self::default();
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
                    header.segment(marker, segment, after + 2);
                    position = after + 2 + segment.len();
                }
            }
        }
        header
    }

    fn segment(&mut self, marker: u8, segment: &[u8], start: usize) {
        match marker {
            // Every start-of-frame marker: C0 to CF without DHT, JPG and DAC.
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) && self.components.is_empty() => {
                self.frame(segment);
            }
            0xe0 if segment.starts_with(b"JFIF\0") => self.jfif = true,
            0xee if segment.starts_with(b"Adobe") => {
                self.adobe_markers.push(start);
                self.adobe_transform = segment.get(11).copied().or(self.adobe_transform);
            }
            _ => {}
        }
    }

    fn frame(&mut self, segment: &[u8]) {
        if let [_precision, h1, h0, w1, w0, _count, components @ ..] = segment {
            self.height = u16::from_be_bytes([*h1, *h0]);
            self.width = u16::from_be_bytes([*w1, *w0]);
            self.components = components
                .chunks_exact(3)
                .filter_map(|c| c.first().copied())
                .collect();
        }
    }

    /// The colour coding; `None` for a number of components that Pillow refuses too.
    pub(crate) fn colour_coding(&self) -> Option<ColourCoding> {
        Some(match (self.components.as_slice(), self.adobe_transform) {
            ([_], _) => ColourCoding::Grey,
            ([_, _, _], _) if self.jfif => ColourCoding::YCbCr,
            ([_, _, _], Some(0)) => ColourCoding::Rgb,
            ([_, _, _], Some(_)) => ColourCoding::YCbCr,
            ([b'R', b'G', b'B'], None) => ColourCoding::Rgb,
            ([_, _, _], None) => ColourCoding::YCbCr,
            ([_, _, _, _], None | Some(0)) => ColourCoding::Cmyk,
            ([_, _, _, _], Some(_)) => ColourCoding::Ycck,
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
