//! Checks that decoding an image does not exceed the estimated memory. This must be the only test in the
//! process, because the allocator counts all threads.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use frostline_fuzz::{Mutator, TARGETS, fix_png_checksums};
use frostline_images::{DecodeLimits, Undecoded};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const LIMITS: DecodeLimits = DecodeLimits {
    max_pixels: 1 << 22,
    max_bytes: 1 << 30,
    max_work: 1 << 30,
};
/// Number of mutations, for original and for enlarged images.
const MUTATIONS: usize = 4000;
/// Seed of the mutator.
const START: u64 = 7;
/// Memory for reading headers, in addition to copies of their data: tables and error messages.
const HEADERS: u64 = 512 << 10;

#[test]
fn decoding_stays_within_the_estimate() {
    let target = TARGETS
        .iter()
        .find(|target| target.name == "image_decoder")
        .unwrap();
    let seeds = (target.seeds)();
    let large: Vec<Vec<u8>> = seeds.iter().flat_map(|seed| enlarged(seed)).collect();
    let mut tightest = 0.0_f64;
    for seed in seeds.iter().chain(&large) {
        tightest = tightest.max(check(seed));
    }
    check(&many_codes());
    assert!(
        tightest > 0.25,
        "the estimates are too high; the largest used fraction is {tightest}"
    );
    let mut mutator = Mutator::new(START);
    for _ in 0..MUTATIONS {
        let mut input = mutator.next(&seeds);
        check(&input);
        fix_png_checksums(&mut input);
        check(&input);
        check(&mutator.next(&large));
    }
}

/// Decodes an image and returns the used fraction of the estimate, or 0 for small images and errors.
fn check(bytes: &[u8]) -> f64 {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let Ok(image) = Undecoded::read(bytes, &LIMITS) else {
        assert_peak(
            bytes,
            before,
            2 * bytes.len() as u64 + HEADERS,
            "reading its headers",
        );
        return 0.0;
    };
    assert_peak(
        bytes,
        before,
        2 * bytes.len() as u64 + HEADERS,
        "reading its headers",
    );
    let (width, height, takes) = (image.width(), image.height(), image.memory_needed());
    MEMORY.reset_peak_usage();
    let whole = image.decode().is_ok();
    let what = format!("decoding {width}x{height} ({whole})");
    let taken = assert_peak(bytes, before, takes + HEADERS, &what);
    if takes < 4 << 20 {
        return 0.0;
    }
    println!("{what}: peak {taken}, estimate {takes} bytes");
    taken as f64 / takes as f64
}

fn assert_peak(bytes: &[u8], before: usize, most: u64, what: &str) -> u64 {
    let taken = (MEMORY.peak_usage() - before) as u64;
    if taken > most {
        let file = std::env::temp_dir().join(format!("frostline-memory-{}", std::process::id()));
        std::fs::write(&file, bytes).unwrap();
        panic!(
            "{what} used {taken} of {most} bytes; see the image {}",
            file.display()
        );
    }
    taken
}

/// Returns copies of an image with larger sides in the header.
fn enlarged(image: &[u8]) -> Vec<Vec<u8>> {
    let sides = [(2048_u16, 2048_u16), (16_384, 256), (64, 16_383)];
    sides
        .into_iter()
        .filter_map(|(w, h)| resized(image, w, h))
        .collect()
}

fn resized(image: &[u8], width: u16, height: u16) -> Option<Vec<u8>> {
    let mut bytes = image.to_vec();
    let place = |sign: &[u8]| image.windows(sign.len()).position(|window| window == sign);
    if image.starts_with(&[0xff, 0xd8]) {
        let frame = place(&[0xff, 0xc0]).or(place(&[0xff, 0xc2]))?;
        bytes[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
        bytes[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
    } else if image.starts_with(b"\x89PNG") {
        bytes[16..20].copy_from_slice(&u32::from(width).to_be_bytes());
        bytes[20..24].copy_from_slice(&u32::from(height).to_be_bytes());
        fix_png_checksums(&mut bytes);
    } else if image.starts_with(b"BM") {
        bytes[18..22].copy_from_slice(&u32::from(width).to_le_bytes());
        bytes[22..26].copy_from_slice(&u32::from(height).to_le_bytes());
    } else if image.starts_with(b"GIF8") {
        bytes[6..8].copy_from_slice(&width.to_le_bytes());
        bytes[8..10].copy_from_slice(&height.to_le_bytes());
    } else {
        // The canvas and the frames of both formats.
        if let Some(canvas) = place(b"VP8X") {
            bytes[canvas + 12..canvas + 15].copy_from_slice(&(u32::from(width) - 1).to_le_bytes()[..3]);
            bytes[canvas + 15..canvas + 18].copy_from_slice(&(u32::from(height) - 1).to_le_bytes()[..3]);
        }
        if let Some(frame) = place(b"ANMF") {
            bytes[frame + 14..frame + 17].copy_from_slice(&(u32::from(width) - 1).to_le_bytes()[..3]);
            bytes[frame + 17..frame + 20].copy_from_slice(&(u32::from(height) - 1).to_le_bytes()[..3]);
        }
        if let Some(lossy) = place(&[0x9d, 0x01, 0x2a]) {
            bytes[lossy + 3..lossy + 5].copy_from_slice(&width.to_le_bytes());
            bytes[lossy + 5..lossy + 7].copy_from_slice(&height.to_le_bytes());
        }
        if let Some(lossless) = place(b"VP8L") {
            let sides = (u32::from(width) - 1) | ((u32::from(height) - 1) << 14);
            let rest = image[lossless + 12] & 0xf0;
            bytes[lossless + 9..lossless + 13].copy_from_slice(&sides.to_le_bytes());
            bytes[lossless + 12] |= rest;
        }
    }
    Some(bytes)
}

/// Creates a lossless WebP of 4 x 4 pixels with 1,024 groups of five codes. Each code has 12 bytes here and 4
/// KiB in the decoder.
fn many_codes() -> Vec<u8> {
    let mut bits = Bits::default();
    bits.push(0x2f, 8);
    // 4 x 4 pixels, no alpha, version 0; no transforms, no color cache, one group per block of 4 x 4.
    [(3, 14), (3, 14), (0, 4), (0, 1), (0, 1), (1, 1), (0, 3)]
        .into_iter()
        .for_each(|(value, count)| bits.push(value, count));
    // The group image has no color cache. Its codes contain one symbol each: 255 for green, 3 for red and 0
    // for the others. The only pixel is 1,023.
    bits.push(0, 1);
    for symbol in [255, 3] {
        [(1, 1), (0, 1), (1, 1), (symbol, 8)]
            .into_iter()
            .for_each(|(value, count)| bits.push(value, count));
    }
    (0..3).for_each(|_| bits.push(1, 4));
    for _ in 0..1024 * 5 {
        // Lengths 1 to 10 have codes of three and four bits.
        bits.push(0, 1);
        bits.push(10, 4);
        [0, 0, 0, 3, 3, 3, 3, 3, 0, 3, 4, 4, 4, 4]
            .into_iter()
            .for_each(|length| bits.push(length, 3));
        // 11 symbols with lengths 1, 2, .. 9, 10, 10.
        [(1, 1), (1, 3), (9, 4)]
            .into_iter()
            .for_each(|(value, count)| bits.push(value, count));
        for length in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10_u32] {
            let (code, count) = if length <= 6 {
                (length - 1, 3)
            } else {
                (length + 5, 4)
            };
            (0..count).rev().for_each(|bit| bits.push(code >> bit, 1));
        }
    }
    let size = bits.bytes.len() as u32;
    let sizes = [size + 12, size].map(u32::to_le_bytes);
    [b"RIFF", &sizes[0][..], b"WEBPVP8L", &sizes[1], &bits.bytes].concat()
}

/// Bit stream, lowest bit of each byte first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    place: usize,
}

impl Bits {
    fn push(&mut self, value: u32, count: usize) {
        for bit in 0..count {
            if self.place.is_multiple_of(8) {
                self.bytes.push(0);
            }
            *self.bytes.last_mut().unwrap() |= ((value >> bit & 1) as u8) << (self.place % 8);
            self.place += 1;
        }
    }
}
