//! Parses the markers of a JPEG like libjpeg before decoding. This covers the color coding, the segments that
//! affect pixels, and the end of the image. The decoder only receives these segments. Both therefore
//! interpret the same data, and other segments cannot cost the decoder time or memory.
//!
//! The decoder treats missing image data as zeros. libjpeg would paint the rest gray, and neither is the
//! photo. [`JpegHeader::decoder_input`] therefore follows all image data with an invalid code, so that decoding
//! fails if data is missing.

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
    scan_components: usize,
    /// True for sequential coding, false for progressive coding.
    sequential: bool,
    /// Total number of scans.
    pub(crate) scans: usize,
    /// Total bytes of Huffman and quantization tables.
    pub(crate) table_bytes: usize,
    /// True if there is an end-of-image marker.
    pub(crate) complete: bool,
    /// Offset at which the image data ends: that of the end-of-image marker, or of the first marker after the
    /// data if there is a single scan.
    pub(crate) data_end: usize,
    /// Number of restart markers that [`Self::decoder_input`] copies.
    restarts: usize,
    /// Restart interval in MCUs. 0 disables restarts.
    restart_interval: u16,
    /// The next restart marker of the current scan.
    next_restart: u8,
    /// Offset of the first unexpected restart marker.
    pub(crate) stray_restart: Option<usize>,
}

/// Image data that is not a valid Huffman code: the standard reserves codes of ones. 8 bytes are as many as
/// zune-jpeg reads ahead.
const INVALID_CODE: [u8; 16] = [
    0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0,
];

const END_OF_IMAGE: [u8; 2] = [0xff, 0xd9];

impl<'a> JpegHeader<'a> {
    /// Parses the segments up to the end-of-image marker or the end of the data. If the first scan contains
    /// the whole image, the first marker after it ends the image, like in libjpeg.
    pub(crate) fn read(bytes: &'a [u8]) -> Self {
        let mut header = Self {
            data_end: bytes.len(),
            ..Self::empty()
        };
        let mut position = 2;
        while let Some((marker, after)) = next_marker(bytes, position) {
            position = after;
            match marker {
                0xd0..=0xd7 if header.restart(marker, after - 2) => {}
                _ if marker == 0xd9 || header.is_single_scan() => {
                    header.complete = marker == 0xd9;
                    header.data_end = after - 2;
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

    /// Returns true if the first scan contains the whole image.
    pub(crate) fn is_single_scan(&self) -> bool {
        self.sequential && self.scan_start.is_some() && self.scan_components == self.components.len()
    }

    /// Returns the maximum size of [`Self::decoder_input`] in bytes, for a file with `size` bytes.
    pub(crate) fn decoder_input_size(&self, size: usize) -> usize {
        size + (self.restarts + self.scans + 1) * INVALID_CODE.len()
    }

    /// Returns the segments that affect pixels and the image data of `bytes` for the decoder.
    pub(crate) fn decoder_input(&self, bytes: &[u8]) -> Vec<u8> {
        let mut input = Vec::with_capacity(self.decoder_input_size(bytes.len()));
        input.extend(&self.essential);
        let bytes = bytes.get(..self.data_end).unwrap_or(bytes);
        let mut copied = self.scan_start.unwrap_or(bytes.len());
        let mut position = copied;
        let mut scans = 1;
        let mut in_scan = true;
        while let Some((marker, after)) = next_marker(bytes, position) {
            let is_restart = matches!(marker, 0xd0..=0xd7);
            // zune-jpeg requires that it meets the marker after these scans while reading ahead.
            let is_guarded = is_restart || (!self.sequential && scans > 1);
            if in_scan && is_guarded {
                input.extend(bytes.get(copied..after - 2).unwrap_or_default());
                input.extend(INVALID_CODE);
                copied = after - 2;
            }
            position = after;
            if !is_restart && !matches!(marker, 0x01 | 0xd8) {
                position += 2 + segment(bytes, after).map_or(0, <[u8]>::len);
                in_scan = marker == 0xda;
                scans += usize::from(in_scan);
            }
        }
        input.extend(bytes.get(copied..).unwrap_or_default());
        if self.sequential || scans > 1 {
            input.extend(INVALID_CODE);
        }
        input.extend(END_OF_IMAGE);
        input
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
            sequential: false,
            scans: 0,
            table_bytes: 0,
            complete: false,
            data_end: 0,
            restarts: 0,
            restart_interval: 0,
            next_restart: 0xd0,
            stray_restart: None,
        }
    }

    fn segment(&mut self, marker: u8, segment: &'a [u8], end: usize) {
        match (marker, segment) {
            (0xda, _) => {
                self.scans += 1;
                self.next_restart = 0xd0;
            }
            (0xc4 | 0xdb, _) => self.table_bytes += segment.len(),
            (0xdd, [high, low, ..]) => self.restart_interval = u16::from_be_bytes([*high, *low]),
            _ => {}
        }
        if self.scan_start.is_some() {
            return;
        }
        match marker {
            // Start-of-frame markers, which are C0 to CF except DHT, JPG and DAC.
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) && self.components.is_empty() => {
                self.sequential = matches!(marker, 0xc0 | 0xc1);
                self.frame(segment);
            }
            0xe0 if segment.starts_with(b"JFIF\0") => self.jfif = true,
            0xee if segment.starts_with(b"Adobe") => {
                self.adobe_transform = segment.get(11).copied().or(self.adobe_transform);
            }
            _ => {}
        }
        self.note_metadata(marker, segment);
        self.keep(marker, segment, end);
    }

    /// Returns true if the restart marker is the expected one. libjpeg searches for the right position after
    /// others.
    fn restart(&mut self, marker: u8, offset: usize) -> bool {
        let is_expected = self.restart_interval > 0 && marker == self.next_restart;
        if self.scans > 0 && !is_expected {
            self.stray_restart.get_or_insert(offset);
        }
        self.restarts += 1;
        self.next_restart = 0xd0 | ((self.next_restart + 1) & 7);
        is_expected
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
