//! Compares the results of `frostline guest run` with the results of the engine on the same input.

use super::check;
use super::run::extract;
use crate::arguments::{CheckGuest, InterfaceFlags, RunGuest};
use frostline_engine::{Session, SessionOptions};
use frostline_graph::Model;
use frostline_images::{DecodeLimits, load, normalize};
use frostline_needs::{built_guest, stock_guest};
use frostline_tensor::{ChannelOrder, Data, Interpolation, PixelSpec, ResizeMode, Tensor};
use std::path::{Path, PathBuf};

const PHOTOS: [&str; 3] = ["train/cat/00.jpg", "train/coffee/01.jpg", "train/stars/02.jpg"];
const CUT: &str = "stage3.0";
/// Height and width of the bundled network's input.
const SIDE: u32 = 128;
/// Preprocessing of the example guests that do not use ImageNet's.
const HALVES: PixelSpec = PixelSpec {
    resize: SIDE,
    crop_height: SIDE,
    crop_width: SIDE,
    mean: [0.5; 3],
    std: [0.5; 3],
    interpolation: Interpolation::Bilinear,
    resize_mode: ResizeMode::Short,
    fill: [0; 3],
    channels: ChannelOrder::Rgb,
};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn backbone() -> PathBuf {
    repository("models/zoo/demo/backbone.onnx")
}

fn photos() -> PathBuf {
    repository("models/zoo/demo/photos")
}

fn flags(guest: PathBuf, data: &Path, keys: &[&str], parameters: &str) -> RunGuest {
    RunGuest {
        file: guest,
        data: text(data),
        keys: keys.iter().map(|&key| key.to_owned()).collect(),
        model: backbone(),
        interface: InterfaceFlags::default(),
        split: Some(CUT.to_owned()),
        parameters: parameters.to_owned(),
        device: "cpu".to_owned(),
        out: None,
    }
}

/// Loads photos as input for the network.
fn network_input(keys: &[&str], spec: &PixelSpec) -> Tensor {
    let crop = |key: &&str| {
        let bytes = std::fs::read(photos().join(key)).unwrap();
        load(&bytes, spec, &DecodeLimits::default()).unwrap()
    };
    let crops: Vec<u8> = keys.iter().flat_map(crop).collect();
    let side = SIDE as usize;
    let crops = Tensor::new([keys.len(), 3, side, side], Data::U8(crops)).unwrap();
    normalize(&crops, spec).unwrap()
}

/// Returns the activations at the cut, computed directly by the engine.
fn directly(input: &Tensor) -> Vec<f32> {
    let prefix = Model::read(backbone()).unwrap().slice(None, Some(CUT)).unwrap();
    let mut session = Session::open(&prefix.to_bytes().unwrap(), &SessionOptions::default()).unwrap();
    let name = session.inputs()[0].name.clone();
    let outputs = session.run(&[(&name, input)]).unwrap();
    outputs[0].1.as_f32().unwrap().to_vec()
}

fn assert_close(activations: &Tensor, expected: &[f32]) {
    let values = activations.as_f32().unwrap();
    assert_eq!(values.len(), expected.len());
    let largest = expected.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    assert!(largest > 0.0);
    for (value, expected) in values.iter().zip(expected) {
        assert!(
            (value - expected).abs() <= 1e-5 * largest,
            "{value} against {expected}"
        );
    }
}

/// Checks that a guest that uses the host's decoder returns the activations of the network.
async fn gives_the_networks_own(guest: PathBuf, spec: &PixelSpec, parameters: &str) {
    let flags = flags(guest, &photos(), &PHOTOS, parameters);
    let (_, extracted) = extract(&flags).await.unwrap();
    assert!(extracted.failed.is_empty(), "{:?}", extracted.failed);
    assert_close(&extracted.activations, &directly(&network_input(&PHOTOS, spec)));
}

#[tokio::test]
async fn the_stock_guest_gives_the_networks_own_activations() {
    gives_the_networks_own(stock_guest(), &PixelSpec::imagenet(SIDE, SIDE), "").await;
}

/// Interleaved RGB as a binary PPM picture.
fn ppm(side: usize, pixels: &[[u8; 3]]) -> Vec<u8> {
    let mut file = format!("P6\n# made by a test\n{side} {side}\n255\n").into_bytes();
    file.extend(pixels.iter().flatten());
    file
}

#[tokio::test]
async fn a_network_that_no_host_takes_is_refused_when_a_guest_is_checked() {
    let file = stock_guest();
    let folder = tempfile::tempdir().unwrap();
    let foreign = folder.path().join("foreign.onnx");
    let mut proto = Model::read(backbone()).unwrap().into_proto();
    proto.graph.as_mut().unwrap().node[0].domain = "com.example".to_owned();
    Model::from_proto(proto).unwrap().write(&foreign).unwrap();
    let check = |model| CheckGuest {
        file: file.clone(),
        model: Some(model),
        interface: InterfaceFlags::default(),
        parameters: String::new(),
    };
    check::run(&check(backbone()), true).await.unwrap();
    let refused = check::run(&check(foreign), true).await.unwrap_err().to_string();
    // The reason is in the printed results.
    assert_eq!(refused, "a host would refuse this model");
}

mod needs_guests {
    use super::*;

    mod needs_clang {
        use super::*;

        #[tokio::test]
        async fn a_guest_in_c_does_what_the_stock_guest_does_and_names_what_fails() {
            gives_the_networks_own(built_guest("c-prefix"), &PixelSpec::imagenet(SIDE, SIDE), "").await;
            let ours = built_guest("c-prefix");
            let stock = stock_guest();
            let keys = ["train/cat/00.jpg", "no/such.jpg", "train/grass/03.jpg"];
            let (_, ours) = extract(&flags(ours, &photos(), &keys, "")).await.unwrap();
            let (_, stock) = extract(&flags(stock, &photos(), &keys, "")).await.unwrap();
            assert_eq!(ours, stock);
            assert_eq!(ours.failed.len(), 1);
        }
    }

    #[tokio::test]
    async fn guests_of_authors_give_the_networks_own_activations() {
        gives_the_networks_own(built_guest("starter"), &PixelSpec::imagenet(SIDE, SIDE), "").await;
        gives_the_networks_own(built_guest("two-stage"), &HALVES, "stem").await;
    }

    #[tokio::test]
    async fn a_guest_that_decodes_and_scales_itself_agrees_with_the_network() {
        let guest = built_guest("own-pixels");
        let side = SIDE as usize;
        // At twice the size, every pixel of the network's input is the mean of four.
        let large: Vec<[u8; 3]> = (0..4 * side * side)
            .map(|i| [(i * 7 % 256) as u8, (i * i % 251) as u8, (i / 97 % 256) as u8])
            .collect();
        let same = &large[..side * side];
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("same.ppm"), ppm(side, same)).unwrap();
        std::fs::write(folder.path().join("large.ppm"), ppm(2 * side, &large)).unwrap();
        std::fs::write(folder.path().join("short.ppm"), ppm(side, &same[1..])).unwrap();
        let keys = ["same.ppm", "short.ppm", "large.ppm", "missing.ppm"];
        let (report, extracted) = extract(&flags(guest, folder.path(), &keys, "")).await.unwrap();

        let mut input = Vec::new();
        for channel in [0, 1, 2] {
            input.extend(same.iter().map(|pixel| f32::from(pixel[channel]) / 127.5 - 1.0));
        }
        for channel in [0, 1, 2] {
            for (y, x) in (0..side).flat_map(|y| (0..side).map(move |x| (y, x))) {
                let at =
                    |dy: usize, dx: usize| f32::from(large[(2 * y + dy) * 2 * side + 2 * x + dx][channel]);
                input.push((at(0, 0) + at(0, 1) + at(1, 0) + at(1, 1)) / 4.0 / 127.5 - 1.0);
            }
        }
        let input = Tensor::f32([2, 3, side, side], input).unwrap();
        assert_close(&extracted.activations, &directly(&input));
        let failed: Vec<usize> = extracted.failed.iter().map(|failure| failure.index).collect();
        assert_eq!(failed, [1, 3]);
        let report = serde_json::to_value(&report).unwrap();
        assert_eq!(report["rows"][1]["key"], "large.ppm");
        assert_eq!(report["failed"][0]["code"], "invalid-encoding");
        assert_eq!(report["failed"][1]["code"], "not-found");
    }

    #[tokio::test]
    async fn a_guest_of_plain_wasi_nn_computes_on_stored_tensors() {
        let guest = built_guest("plain-nn");
        let input = network_input(&PHOTOS, &HALVES);
        let folder = tempfile::tempdir().unwrap();
        let keys = ["a.f32", "b.f32", "c.f32"];
        for (key, row) in keys.iter().zip(input.as_bytes().chunks(input.byte_len() / 3)) {
            std::fs::write(folder.path().join(key), row).unwrap();
        }
        let (report, extracted) = extract(&flags(guest, folder.path(), &keys, "")).await.unwrap();
        assert_close(&extracted.activations, &directly(&input));

        // The reported usage is correct: three inputs are read, and are stored in the guest's memory and in a
        // tensor.
        let report = serde_json::to_value(&report).unwrap();
        let used = |limit: &str| {
            let limits = report["limits"].as_array().unwrap();
            let found = limits.iter().find(|used| used["limit"] == limit).unwrap();
            found["used"].as_u64().unwrap()
        };
        let bytes = input.byte_len() as u64;
        assert_eq!((used("object bytes"), used("object reads")), (bytes, 6));
        assert!(used("guest memory") > bytes && used("tensors at once") >= bytes);
        assert_eq!(used("output bytes"), extracted.activations.byte_len() as u64);
        let cpu = used("guest CPU time");
        assert!(cpu <= 300_000, "{cpu} ms");
        assert_eq!(report["shape"][0], 3);
        let first = extracted.activations.as_f32().unwrap()[0];
        assert_eq!(report["rows"][0]["key"], "a.f32");
        assert_eq!(report["rows"][0]["values"][0].as_f64().unwrap() as f32, first);
    }
}
