//! Checks that arbitrary bytes result in an image or a clear error, and never in a panic.

use crate::{fixture, images};
use frostline_images::{DecodeLimits, ImageError, Undecoded, decode, load};
use frostline_tensor::PixelSpec;
use proptest::prelude::*;

const LIMITS: DecodeLimits = DecodeLimits {
    max_pixels: 1 << 16,
    max_bytes: 1 << 30,
    max_work: 1 << 30,
};

fn decoded(bytes: &[u8]) -> Result<Vec<u8>, ImageError> {
    decode(bytes, &LIMITS).map(|image| image.pixels().to_vec())
}

#[test]
fn unrecognized_data_is_described() {
    assert_eq!(decoded(b""), Err(ImageError::Empty));
    let error = decoded(b"II? and more").unwrap_err().to_string();
    assert!(
        error.contains("not a JPEG, PNG, WebP, GIF or BMP")
            && error.contains("II?")
            && error.contains("49 49 3f"),
        "{error}"
    );
    assert!(matches!(
        decoded(b"\xff\xd8\xff"),
        Err(ImageError::Truncated { .. })
    ));
    assert!(matches!(
        decoded(b"\xff\xd8\xff\xd9"),
        Err(ImageError::Malformed { .. })
    ));
    assert!(matches!(
        decoded(b"\x89PNG\r\n\x1a\n"),
        Err(ImageError::Truncated { .. })
    ));
}

#[test]
fn files_that_stand_in_for_an_image_are_refused_with_the_next_step() {
    for (text, words) in [
        (
            "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n",
            "git lfs pull",
        ),
        (
            "<!DOCTYPE html>\n<html><head><title>403</title></head></html>",
            "an HTML page",
        ),
        ("bplist00\u{1}\u{2}", "an iCloud placeholder"),
        ("outs:\n- md5: 0\n", "dvc pull"),
        (
            "<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code></Error>",
            "an XML document",
        ),
        (
            "<?xml version=\"1.0\"?><svg xmlns=\"http://www.w3.org/2000/svg\"/>",
            "SVG is not supported",
        ),
    ] {
        let error = decoded(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn formats_that_are_not_decoded_are_refused_by_name() {
    let media = |brands: &[u8]| {
        let size = u32::try_from(brands.len() + 8).unwrap().to_be_bytes();
        [&size, &b"ftyp"[..], brands, b"\0\0\0\0meta"].concat()
    };
    let files = [
        ("HEIC", media(b"heic\0\0\0\0mif1heic")),
        ("HEIC", media(b"mif1\0\0\0\0mif1heix")),
        ("HEIF", media(b"mif1\0\0\0\0mif1miaf")),
        ("AVIF", media(b"avif\0\0\0\0avifmif1")),
        ("AVIF", media(b"mif1\0\0\0\0avif")),
        ("JPEG XL", b"\xff\x0a\xfa\x7f".to_vec()),
        ("JPEG XL", b"\0\0\0\x0cJXL \r\n\x87\n".to_vec()),
        ("JPEG 2000", b"\0\0\0\x0cjP  \r\n\x87\n".to_vec()),
        ("TIFF", b"II*\0\x08\0\0\0".to_vec()),
        ("DICOM", [&[0; 128], &b"DICM"[..]].concat()),
    ];
    for (name, bytes) in files {
        let error = decoded(&bytes).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{name} is not supported; convert it to JPEG or PNG")
        );
    }
    assert!(matches!(
        decoded(&media(b"isom\0\0\0\0mp42")),
        Err(ImageError::Unrecognized { .. })
    ));
}

#[test]
fn a_cut_image_is_refused_wherever_it_is_cut() {
    for name in [
        "color-420.jpg",
        "progressive.jpg",
        "color.png",
        "color-alpha-16-interlaced.png",
        "lossy.webp",
        "lossy-alpha.webp",
        "lossless.webp",
        "animated.webp",
        "color.gif",
        "interlaced.gif",
        "animated.gif",
        "color.bmp",
        "palette-4.bmp",
        "runs.bmp",
    ] {
        let whole = fixture(name);
        let pixels = decoded(&whole).unwrap();
        for length in 1..whole.len() {
            match decoded(&whole[..length]) {
                // Pillow also accepts these images. The end marker and checksums are missing, or data after
                // the first frame of a GIF.
                Ok(cut) => assert!(
                    cut == pixels
                        && (name.ends_with(".png") && length + 22 >= whole.len()
                            || name == "color-420.jpg" && length + 2 >= whole.len()
                            || name.starts_with("runs") && length + 2 >= whole.len()
                            || name.ends_with(".gif")),
                    "{name} {length}"
                ),
                Err(ImageError::DecoderFailed { .. }) => panic!("{name} cut to {length} bytes"),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
    for name in [
        "color-420.jpg",
        "color.png",
        "lossy.webp",
        "color.gif",
        "color.bmp",
    ] {
        let cut = fixture(name);
        let error = decoded(&cut[..cut.len() - 30]).unwrap_err();
        assert!(matches!(error, ImageError::Truncated { .. }), "{name}: {error}");
    }
}

#[test]
fn an_image_without_its_end_marker_is_decoded() {
    let trailer = b"\0\0\0\x18ftypmp42\xff\xd0\xff\xe1\xff\xffSEFT".as_slice();
    // The end-of-image marker of a JPEG, and the last chunk of a PNG with the preceding checksums.
    for (name, ends) in [
        ("color-420.jpg", [1, 2]),
        ("color-444.jpg", [1, 2]),
        ("gray.jpg", [1, 2]),
        ("color.png", [12, 20]),
        ("gray-2.png", [12, 20]),
        ("color-interlaced.png", [12, 20]),
        ("bilevel-interlaced.png", [12, 20]),
    ] {
        let whole = fixture(name);
        let pixels = decoded(&whole);
        assert!(pixels.is_ok(), "{name}: {pixels:?}");
        for end in ends {
            let cut = &whole[..whole.len() - end];
            assert_eq!(decoded(cut), pixels, "{name} without {end} bytes");
        }
        if name.ends_with(".jpg") {
            // Trailers of phones consist of data that is not part of the image.
            let cut = [&whole[..whole.len() - 2], trailer].concat();
            assert_eq!(decoded(&cut), pixels, "{name} with a trailer");
        }
    }
}

#[test]
fn damaged_image_data_is_refused_instead_of_painted_gray() {
    for name in ["color-420.jpg", "color-444.jpg", "gray.jpg", "progressive.jpg"] {
        let whole = fixture(name);
        let scan = whole
            .windows(2)
            .rposition(|marker| marker == [0xff, 0xda])
            .unwrap();
        let middle = scan + (whole.len() - scan) / 2;
        let with = |bytes: &[u8]| {
            let mut damaged = whole.clone();
            damaged[middle..middle + bytes.len()].copy_from_slice(bytes);
            decoded(&damaged).unwrap_err()
        };
        let stray = with(&[0xff, 0xd3]);
        assert!(
            stray
                .to_string()
                .contains(&format!("restart marker out of place at byte {middle}")),
            "{name}: {stray}"
        );
        // The rest of the data is missing, although the end-of-image marker exists.
        if name != "progressive.jpg" {
            let error = with(&[0xff, 0xd9]);
            assert!(error.to_string().contains("is damaged: "), "{name}: {error}");
        }
        let error = decoded(&whole[..middle]).unwrap_err();
        assert!(matches!(error, ImageError::Truncated { .. }), "{name}: {error}");
    }
}

#[test]
fn a_changed_bit_in_a_png_is_found_by_its_checksum() {
    for name in ["color.png", "color-interlaced.png"] {
        let mut image = fixture(name);
        let data = image.windows(4).rposition(|chunk| chunk == b"IDAT").unwrap();
        // The checksum of the last chunk with image data.
        let checksum = image.len() - 12 - 1;
        assert!(data < checksum);
        image[checksum] ^= 1;
        assert!(
            matches!(decoded(&image), Err(ImageError::Malformed { .. })),
            "{name}"
        );
    }
}

/// Returns a BMP of 2 x 1 pixels with masks.
fn masked_bmp(bits: u8, masks: [u32; 3], offset: u32, pixels: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 54];
    bytes[..2].copy_from_slice(b"BM");
    bytes[10..14].copy_from_slice(&offset.to_le_bytes());
    bytes[14] = 40;
    bytes[18] = 2;
    bytes[22] = 1;
    bytes[26] = 1;
    bytes[28] = bits;
    bytes[30] = 3;
    bytes.extend(masks.into_iter().flat_map(u32::to_le_bytes));
    bytes.extend(pixels);
    bytes
}

#[test]
fn bmp_masks_of_zero_are_those_of_32_bits_only() {
    let zero = |bits, pixels: &[u8]| decoded(&masked_bmp(bits, [0; 3], 66, pixels));
    assert_eq!(zero(32, &[1, 2, 3, 0, 4, 5, 6, 0]), Ok(vec![3, 2, 1, 6, 5, 4]));
    for bits in [16, 24] {
        let refused = zero(bits, &[0; 8]);
        assert!(
            matches!(refused, Err(ImageError::Unsupported { .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn a_bmp_without_the_offset_of_its_pixels_is_decoded() {
    let masks = [0xf800, 0x07e0, 0x001f];
    let pixels = [0x1f, 0xf8, 0xe0, 0x07];
    let image = |offset| decoded(&masked_bmp(16, masks, offset, &pixels));
    assert_eq!(image(66), Ok(vec![255, 0, 255, 0, 255, 0]));
    assert_eq!(image(0), image(66));
    assert!(matches!(image(20), Err(ImageError::Malformed { .. })));
    for name in ["color.bmp", "palette-4.bmp", "gray.bmp"] {
        let mut bytes = fixture(name);
        let expected = decoded(&bytes);
        bytes[10..14].fill(0);
        assert_eq!(decoded(&bytes), expected, "{name}");
    }
}

#[test]
fn a_size_over_the_limit_is_refused_before_it_is_allocated() {
    let mut jpeg = fixture("color-444.jpg");
    let frame = jpeg.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xff, 0xff, 0xff]);
    let mut png = fixture("color.png");
    png[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
    let expected = [(65_535, jpeg), (0x7fff_ffff, png)];
    for (side, bytes) in expected {
        match decode(&bytes, &DecodeLimits::default()) {
            Err(ImageError::TooManyPixels { width, height, .. }) => assert_eq!((width, height), (side, side)),
            // The change invalidates the checksum of the PNG header.
            Err(ImageError::Malformed { .. }) if side == 0x7fff_ffff => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_webp_or_gif_over_the_limit_is_refused_before_it_is_allocated() {
    let mut screen = fixture("color.gif");
    screen[6..10].fill(0xff);
    let mut place = fixture("color.gif");
    let frame = place
        .windows(5)
        .rposition(|start| start == [0x2c, 0, 0, 0, 0])
        .unwrap();
    place[frame + 1..frame + 5].fill(0xff);
    let mut canvas = fixture("lossy-alpha.webp");
    canvas[24..30].copy_from_slice(&[0xff, 0x3f, 0, 0xff, 0x3f, 0]);
    let mut lossy = fixture("lossy.webp");
    lossy[26..30].copy_from_slice(&[0xff, 0x3f, 0xff, 0x3f]);
    let mut lossless = fixture("lossless.webp");
    lossless[21..25].copy_from_slice(&[0xfe, 0xbf, 0xff, 0x0f]);
    // The canvas has its original size, but the inner frame declares a large one.
    let mut inner = fixture("lossy-alpha.webp");
    let start = inner
        .windows(3)
        .position(|start| start == [0x9d, 0x01, 0x2a])
        .unwrap()
        + 3;
    inner[start..start + 4].copy_from_slice(&[0xff, 0x3f, 0xff, 0x3f]);
    for (what, bytes) in [
        ("screen", screen),
        ("place", place),
        ("canvas", canvas),
        ("lossy", lossy),
        ("lossless", lossless),
        ("inner", inner),
    ] {
        let error = decode(&bytes, &DecodeLimits::new(Some(64 << 20))).unwrap_err();
        assert!(
            matches!(error, ImageError::TooManyPixels { .. }),
            "{what}: {error}"
        );
    }
}

#[test]
fn images_over_the_memory_limit_are_refused_with_both_numbers() {
    let image = fixture("progressive.jpg");
    let takes = Undecoded::read(&image, &LIMITS).unwrap().memory_needed();
    let limits = |max_bytes| DecodeLimits { max_bytes, ..LIMITS };
    assert!(decode(&image, &limits(takes)).is_ok());
    let error = decode(&image, &limits(takes - 1)).unwrap_err();
    let words = error.to_string();
    assert!(
        words.contains(&takes.to_string()) && words.contains(&(takes - 1).to_string()),
        "{words}"
    );
}

#[test]
fn a_jpeg_of_very_many_scans_is_refused() {
    let image = fixture("progressive.jpg");
    let scan = image
        .windows(2)
        .rposition(|marker| marker == [0xff, 0xda])
        .unwrap();
    let end = image.len() - 2;
    let scans = |times| [&image[..scan], &image[scan..end].repeat(times), &image[end..]].concat();
    assert!(Undecoded::read(&scans(10), &LIMITS).is_ok());
    let error = Undecoded::read(&scans(200), &LIMITS).err().unwrap();
    assert!(error.to_string().contains("scans"), "{error}");
}

#[test]
fn a_frame_header_that_only_some_readers_see_hides_no_size() {
    let image = fixture("color-444.jpg");
    let place = image
        .windows(2)
        .position(|marker| marker == [0xff, 0xc0])
        .unwrap();
    let frame = &image[place..place + 19];
    let mut large = frame.to_vec();
    large[5..9].copy_from_slice(&[0x4e, 0x20, 0x4e, 0x20]);
    // Some readers expect a length after this restart marker.
    let hidden = [&[0xff, 0xd0, 0, 21][..], frame].concat();
    for (first, second) in [(hidden.as_slice(), large.as_slice()), (&large, &hidden)] {
        let bytes = [&image[..place], first, second, &image[place + 19..]].concat();
        assert!(decode(&bytes, &LIMITS).is_err());
    }
}

/// Modification applied to a valid file.
#[derive(Debug, Clone)]
enum Change {
    Set(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Remove(prop::sample::Index, usize),
    Repeat(prop::sample::Index, usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(place, byte)| Change::Set(place, byte)),
        1 => any::<prop::sample::Index>().prop_map(Change::Cut),
        1 => (any::<prop::sample::Index>(), 1..20_usize).prop_map(|(place, length)| Change::Remove(place, length)),
        1 => (any::<prop::sample::Index>(), 1..20_usize).prop_map(|(place, length)| Change::Repeat(place, length)),
    ]
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    if bytes.is_empty() {
        return;
    }
    match change {
        Change::Set(place, byte) => {
            let place = place.index(bytes.len());
            bytes[place] = *byte;
        }
        Change::Cut(place) => bytes.truncate(place.index(bytes.len())),
        Change::Remove(place, length) => {
            let start = place.index(bytes.len());
            let end = (start + length).min(bytes.len());
            bytes.drain(start..end);
        }
        Change::Repeat(place, length) => {
            let start = place.index(bytes.len());
            let piece = bytes[start..(start + length).min(bytes.len())].to_vec();
            bytes.splice(start..start, piece);
        }
    }
}

/// Updates the checksums of a PNG to let modified data reach the decoder.
fn update_checksums(bytes: &mut [u8]) {
    let mut start = 8;
    while let Some(length) = bytes.get(start..start + 4) {
        let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
        let Some(body) = bytes.get(start + 4..start + 8 + length) else {
            return;
        };
        let checksum = crc32(body).to_be_bytes();
        let Some(place) = bytes.get_mut(start + 8 + length..start + 12 + length) else {
            return;
        };
        place.copy_from_slice(&checksum);
        start += 12 + length;
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |checksum, &byte| {
        (0..8).fold(checksum ^ u32::from(byte), |c, _| {
            if c & 1 == 1 {
                (c >> 1) ^ 0xedb8_8320
            } else {
                c >> 1
            }
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_image_never_panics(
        image in prop::sample::select(images()),
        changes in prop::collection::vec(change(), 1..4),
    ) {
        let (name, mut bytes) = image;
        for change in &changes {
            apply(&mut bytes, change);
        }
        if name.ends_with(".png") {
            update_checksums(&mut bytes);
        }
        let spec = PixelSpec { resize: 16, crop_height: 16, crop_width: 12, ..PixelSpec::imagenet(1, 1) };
        match load(&bytes, &spec, &LIMITS) {
            Ok(crop) => prop_assert_eq!(crop.len(), 3 * 16 * 12),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn bytes_of_any_kind_never_panic(start in prop::sample::select(vec![&b"\xff\xd8\xff"[..], b"\x89PNG\r\n\x1a\n", b"RIFF\xff\0\0\0WEBP", b"GIF89a", b"BM\0\0\0\0\0\0\0\0\0\0\0\0\x28\0\0\0", b""]), rest: Vec<u8>) {
        let bytes = [start, &rest].concat();
        prop_assert!(decoded(&bytes).is_err());
    }
}
