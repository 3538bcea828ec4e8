//! The small network, the stock guest and photos.

use bytes::Bytes;
use frostline_graph::onnx::GraphProto;
use frostline_graph::{Model, build};
use frostline_tensor::{SampleRef, Tensor};
use frostline_wire::{RequestedSample, UploadRef};
use sha2::{Digest, Sha256};
use std::path::Path;

pub(crate) fn sample(position: u32, key: &str) -> RequestedSample {
    RequestedSample {
        position,
        sample: SampleRef::new(key),
    }
}

pub(crate) fn stock_guest() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/prefix/prefix.wasm")).unwrap()
}

pub(crate) fn upload_ref(name: &str, bytes: &[u8]) -> UploadRef {
    UploadRef {
        name: name.to_owned(),
        sha256: hex::encode(Sha256::digest(bytes)),
    }
}

/// `pixels[n,3,8,8] -> Relu "active" -> GlobalAveragePool "pooled" -> Flatten "flat" -> Gemm "classes"`
pub(crate) fn network() -> Model {
    let weights = (0..12_u8).map(|value| f32::from(value) / 7.0 - 0.5).collect();
    let graph = GraphProto {
        name: "tiny".to_owned(),
        node: vec![
            build::node("Relu", &["pixels"], &["active"]),
            build::node("GlobalAveragePool", &["active"], &["pooled"]),
            build::node("Flatten", &["pooled"], &["flat"]),
            build::node("Gemm", &["flat", "weight"], &["classes"]),
        ],
        initializer: vec![build::initializer(
            "weight",
            &Tensor::f32([3, 4], weights).unwrap(),
        )],
        input: vec![build::batched("pixels", &[3, 8, 8])],
        output: vec![build::batched("classes", &[4])],
        ..GraphProto::default()
    };
    Model::from_proto(build::model(17, graph)).unwrap()
}

pub(crate) fn photo(seed: u32) -> Bytes {
    let width = 12;
    let height = 10;
    let shade = |x: u32, y: u32, factor: u32| ((x * factor + y * 7 + seed * 31) % 256) as u8;
    let pixel = |at: u32| [3, 11, 19].map(|factor| shade(at % width, at / width, factor));
    let pixels: Vec<u8> = (0..width * height).flat_map(pixel).collect();
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    file.into()
}
