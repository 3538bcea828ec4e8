//! Samples that are not photos or claim to be very large. Each is requested between valid photos, which must
//! succeed.

use crate::case::{Action, AttackKind, Case, CaseResult, Expected};
use crate::neighbor::{sample, upload_ref};
use crate::scene::{Scene, backbone};
use anyhow::Result;
use frostline_graph::Model;
use frostline_trainer::Guest;
use frostline_wire::{Encoding, ExtractionRequest, RowFormat, Split, Terms, Values};
use std::fs;
use std::path::Path;

/// File below the data root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Image {
    key: &'static str,
    bytes: fn() -> Vec<u8>,
}

/// Description, file and a word of the row's error.
const IMAGES: [(&str, Image, &str); 9] = [
    (
        "a JPEG with a frame header of 20,000 pixels per side that some decoders miss",
        Image {
            key: "hidden.jpg",
            bytes: frostline_hostile::hidden_frame,
        },
        "",
    ),
    (
        "a JPEG of 16 megapixels with 100 scans in 36 KiB",
        Image {
            key: "scans.jpg",
            bytes: frostline_hostile::many_scans,
        },
        "100 scans",
    ),
    (
        "a PNG of two billion pixels per side in a hundred bytes",
        Image {
            key: "bomb.png",
            bytes: png_bomb,
        },
        "",
    ),
    (
        "a JPEG of 65,500 pixels per side in a hundred bytes",
        Image {
            key: "bomb.jpg",
            bytes: jpeg_bomb,
        },
        "",
    ),
    (
        "a JPEG with an incomplete header",
        Image {
            key: "cut-off.jpg",
            bytes: cut_off,
        },
        "",
    ),
    (
        "text",
        Image {
            key: "text.jpg",
            bytes: || b"this is no image".to_vec(),
        },
        "",
    ),
    (
        "nothing",
        Image {
            key: "empty.jpg",
            bytes: Vec::new,
        },
        "",
    ),
    (
        "a PNG with only a signature",
        Image {
            key: "signature.png",
            bytes: || SIGNATURE.to_vec(),
        },
        "",
    ),
    (
        "128 KiB of noise",
        Image {
            key: "noise.png",
            bytes: noise,
        },
        "",
    ),
];

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

pub(crate) fn all() -> Vec<Case> {
    let case = |(does, image, words): (&str, Image, &'static str)| Case {
        name: image.key.to_owned(),
        description: format!("is {does}"),
        class: AttackKind::Image,
        expected: Expected::new("row", &[image.key, words]),
        act: Action::Image(image),
    };
    IMAGES.into_iter().map(case).collect()
}

/// Writes the files below the data root.
pub(crate) fn write(root: &Path) -> Result<()> {
    for (_, image, _) in IMAGES {
        fs::write(root.join(image.key), (image.bytes)())?;
    }
    Ok(())
}

/// Extracts the file between two photos with the stock guest.
pub(crate) async fn run(scene: &Scene, image: Image) -> Result<CaseResult> {
    let client = scene.client()?;
    let model = backbone()?;
    let shape = Model::from_bytes(model.clone())?
        .network()?
        .cut("features")?
        .shape
        .dims()
        .to_vec();
    let guest = client.push_guest("prefix", Guest::stock().bytes).await?;
    let model = client.push_model("backbone", model).await?;
    let mut keys: Vec<&str> = scene.photos().iter().take(2).map(String::as_str).collect();
    keys.insert(1, image.key);
    let request = ExtractionRequest {
        root: scene.root()?,
        split: Split::Cut("features".to_owned()),
        guest: Some(upload_ref("prefix", &guest.sha256)),
        model: Some(upload_ref("backbone", &model.sha256)),
        parameters: String::new(),
        encoding: Encoding::F32,
        terms: Terms::default(),
        view: None,
        samples: (0..)
            .zip(keys)
            .map(|(position, key)| sample(position, key))
            .collect(),
        digests: false,
    };
    let mut answer = match client
        .extract(&request, RowFormat::Tensor(Values::F32, shape), 64 << 20)
        .await
    {
        Ok(answer) => answer,
        Err(error) => return Ok(CaseResult::refused(&error)),
    };
    let mut rows = Vec::new();
    while let Some(batches) = answer.next().await? {
        for row in batches.iter().flat_map(|batch| batch.rows()) {
            let row = row?;
            rows.push((row.position, row.outcome.err().map(|error| error.message)));
        }
    }
    rows.sort();
    Ok(match rows.as_slice() {
        [(0, None), (1, Some(message)), (2, None)] => CaseResult::new("row", message),
        other => CaseResult::new("other rows", format!("{other:?}")),
    })
}

/// Creates a PNG header with the maximum size and no pixels.
fn png_bomb() -> Vec<u8> {
    let mut png = SIGNATURE.to_vec();
    png.extend([0, 0, 0, 13]);
    let header = [
        b"IHDR".as_slice(),
        &[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff],
        &[8, 2, 0, 0, 0],
    ]
    .concat();
    png.extend(&header);
    png.extend(crc32(&header).to_be_bytes());
    png
}

/// Creates a JPEG with a frame header of 65,500 pixels per side but no scan.
fn jpeg_bomb() -> Vec<u8> {
    let [high, low] = 65_500_u16.to_be_bytes();
    let frame = [
        0xff, 0xc0, 0, 17, 8, high, low, high, low, 3, 1, 0x22, 0, 2, 0x11, 0, 3, 0x11, 0,
    ];
    [&[0xff, 0xd8], frame.as_slice(), &[0xff, 0xd9]].concat()
}

fn cut_off() -> Vec<u8> {
    let mut jpeg = jpeg_bomb();
    jpeg.truncate(9);
    jpeg
}

/// Creates a PNG signature followed by pseudorandom bytes.
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()
    };
    let words: Vec<u8> = (0..1 << 15).flat_map(|_| next()).collect();
    [SIGNATURE, &words].concat()
}

/// Computes the checksum of a PNG chunk: <https://www.w3.org/TR/png-3/#D-CRCAppendix>.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |mut crc: u32, byte: &u8| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                0xedb8_8320 ^ (crc >> 1)
            } else {
                crc >> 1
            };
        }
        crc
    };
    !bytes.iter().fold(u32::MAX, step)
}
