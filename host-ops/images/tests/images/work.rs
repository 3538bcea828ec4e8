//! Images with few bytes or pixels that would occupy a decoder for long.

use crate::fixture;
use frostline_images::{DecodeLimits, ImageError, Undecoded};

fn refused(bytes: &[u8]) -> String {
    let read = Undecoded::read(bytes, &DecodeLimits::default()).map(drop);
    assert!(matches!(read, Err(ImageError::TooMuchWork { .. })), "{read:?}");
    read.unwrap_err().to_string()
}

/// Returns a JPEG with this size and number of scans. Only the headers are meaningful.
fn scanned(width: u16, height: u16, scans: usize) -> Vec<u8> {
    let mut jpeg = fixture("progressive.jpg");
    let frame = jpeg.windows(2).position(|marker| marker == [0xff, 0xc2]).unwrap();
    jpeg[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
    jpeg[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
    let first = jpeg.windows(2).position(|marker| marker == [0xff, 0xda]).unwrap();
    jpeg.truncate(first);
    for _ in 0..scans {
        jpeg.extend([0xff, 0xda, 0, 8, 1, 1, 0, 0, 0, 0, 0]);
    }
    jpeg.extend([0xff, 0xd9]);
    jpeg
}

#[test]
fn scans_cost_a_pass_over_the_image() {
    let error = refused(&scanned(4000, 3000, 100));
    assert!(error.contains("4000x3000 pixels with 100 scans"), "{error}");
    refused(&scanned(8192, 8192, 12));
    // 64 Mi pixels with the scans of usual encoders, and a small image with all scans.
    for (width, height, scans) in [(8192, 8192, 10), (2500, 2500, 100)] {
        let image = scanned(width, height, scans);
        Undecoded::read(&image, &DecodeLimits::default()).unwrap();
    }
}

#[test]
fn many_tables_are_refused() {
    let mut jpeg = scanned(16, 16, 1);
    let table = [&[0xff, 0xc4, 0, 20, 0, 1][..], &[0; 15], &[0]].concat();
    jpeg.splice(2..2, table.repeat(20_000));
    let error = Undecoded::read(&jpeg, &DecodeLimits::default())
        .map(drop)
        .unwrap_err();
    assert!(error.to_string().contains("tables of"), "{error}");
}

#[test]
fn narrow_images_cost_as_much_as_their_rows() {
    let tall = |width: u32, height: u32| {
        let mut png = Vec::new();
        let mut encoder = png::Encoder::new(&mut png, width, height);
        encoder.set_depth(png::BitDepth::One);
        // Without image data.
        drop(encoder.write_header().unwrap());
        png
    };
    refused(&tall(1, 200 << 20));
    Undecoded::read(&tall(8192, 8192), &DecodeLimits::default()).unwrap();
    Undecoded::read(&tall(1, 1 << 20), &DecodeLimits::default()).unwrap();
}
