//! What comes over the network: JSON requests, the headers of uploads, and the Arrow frames of answers.

use bytes::Bytes;
use frostline_tensor::Tensor;
use frostline_wire::{
    ActivationReader, ActivationWriter, Compression, DescriptionRequest, Encoding, ExtractionRequest,
    ProfileRequest, RowFormat, Split, digest_of, repr_digest,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes one frame may take.
const FRAME: usize = 1 << 16;
/// Values of a row.
const ROW: usize = 4;
/// Rows the reader is told of.
const ROWS: u32 = 3;

/// Reads the bytes as every request, as a header, and as an answer that comes in two pieces.
///
/// # Panics
/// When what was read does not survive being written and read again, or an answer names rows nobody asked for.
pub fn request_parser(data: &[u8]) {
    json::<ExtractionRequest>(data);
    json::<DescriptionRequest>(data);
    json::<ProfileRequest>(data);
    if let Ok(text) = std::str::from_utf8(data) {
        header(text);
    }
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        answer(data, compression);
    }
}

fn json<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(data: &[u8]) {
    let Ok(request) = serde_json::from_slice::<T>(data) else {
        return;
    };
    let again = serde_json::to_vec(&request).and_then(|bytes| serde_json::from_slice::<T>(&bytes));
    assert_eq!(again.ok(), Some(request));
}

fn header(text: &str) {
    if let Some(sha256) = digest_of(text) {
        let written = repr_digest(&sha256).and_then(|value| digest_of(&value));
        assert_eq!(written, Some(sha256));
    }
    if let Ok(encoding) = text.parse::<Encoding>() {
        assert_eq!(encoding.to_string().parse().ok(), Some(encoding));
    }
    let split = Split::from(text);
    assert_eq!(Split::from(split.to_string()), split);
}

fn answer(data: &[u8], compression: Compression) {
    let mut reader = ActivationReader::new(RowFormat::F32(vec![ROW]), 0..ROWS, FRAME).compressed(compression);
    let (first, second) = data.split_at(data.len() / 2);
    for piece in [first, second] {
        let Ok(batches) = reader.push(Bytes::copy_from_slice(piece)) else {
            return;
        };
        for row in batches.iter().flat_map(|batch| batch.rows()).flatten() {
            assert!(row.position < ROWS, "a row nobody asked for");
        }
    }
    let _ = reader.finish();
}

/// Requests as trainers send them, headers, and whole answers.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let pin = r#"{"name":"m","sha256":"00"}"#;
    let samples = r#"[{"position":0,"key":"a/b.jpg","etag":"\"1\""},{"position":4294967295,"key":"c"}]"#;
    let texts = [
        format!(
            r#"{{"root":"s3://photos/acme/","split":"features","guest":{pin},"model":{pin},"parameters":"{{}}","encoding":"int8+zstd","samples":{samples}}}"#
        ),
        format!(r#"{{"root":"/data","split":"none","samples":{samples}}}"#),
        format!(r#"{{"guest":{pin},"model":{pin}}}"#),
        format!(r#"{{"root":"/data","guest":{pin},"model":{pin},"cuts":["a","b"],"samples":[]}}"#),
        repr_digest(&"0123456789abcdef".repeat(4)).unwrap_or_default(),
        "sha-512=:AAAA:, sha-256=:AAAA:".into(),
        "f16+lz4".into(),
        "[".repeat(4096),
        format!(r#"{{"samples":{}"#, "[".repeat(200)),
    ];
    let answers = [Compression::None, Compression::Lz4, Compression::Zstd];
    let answers = answers.into_iter().filter_map(whole_answer);
    texts.into_iter().map(String::into_bytes).chain(answers).collect()
}

fn whole_answer(compression: Compression) -> Option<Vec<u8>> {
    let mut writer = ActivationWriter::compressed(RowFormat::F32(vec![ROW]), compression).ok()?;
    let values = (0..ROWS).flat_map(|row| [row as f32; ROW]).collect();
    let rows = Tensor::f32(vec![ROWS as usize, ROW], values).ok()?;
    let positions: Vec<u32> = (0..ROWS).collect();
    let mut pieces = writer.tensor(&positions, rows).ok()?;
    pieces.extend(writer.finish().ok()?);
    Some(pieces.concat())
}
