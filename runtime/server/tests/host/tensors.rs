//! Rows with several tensors.

use crate::client::{End, rows};
use crate::fixtures::upload_ref;
use crate::support::TestHost;
use bytes::Bytes;
use frostline_engine::{Session, SessionOptions};
use frostline_graph::onnx::{GraphProto, data_type};
use frostline_graph::{Model, build};
use frostline_images::DecodeLimits;
use frostline_tensor::{DType, Data, PixelSpec, Tensor};
use frostline_wire::{CutInfo, Encoding, ExtractionRequest, ModelInfo, RowFormat, TensorInfo, Values};
use http::{Method, StatusCode};
use std::collections::BTreeMap;

const PHOTOS: u32 = 5;
/// Number of elements of a tensor.
const PIXELS: usize = 3 * 8 * 8;
const CUT: &str = "small,large,ids,mask";

/// Returns a network whose last layers read a tensor, the same tensor times 1,000, integers and booleans.
fn network() -> (Model, String) {
    let scalar = |name: &str, value: f32| build::initializer(name, &Tensor::f32([1], vec![value]).unwrap());
    let cast = |from: &str, to: &str, code: i32| {
        build::node("Cast", &[from], &[to]).with([build::int("to", code.into())])
    };
    let graph = GraphProto {
        node: vec![
            build::node("Mul", &["pixels", "one"], &["small"]),
            build::node("Mul", &["pixels", "thousand"], &["large"]),
            build::node("Mul", &["pixels", "many"], &["scaled"]),
            cast("scaled", "ids", data_type::INT64),
            build::node("Greater", &["pixels", "zero"], &["mask"]),
            build::node("Add", &["small", "large"], &["sum"]),
            cast("ids", "numbers", data_type::FLOAT),
            cast("mask", "kept", data_type::FLOAT),
            build::node("Add", &["sum", "numbers"], &["all"]),
            build::node("Mul", &["all", "kept"], &["y"]),
        ],
        initializer: vec![
            scalar("one", 1.0),
            scalar("thousand", 1000.0),
            scalar("many", 40_000.0),
            scalar("zero", 0.0),
        ],
        input: vec![build::batched("pixels", &[3, 8, 8])],
        output: vec![build::batched("y", &[3, 8, 8])],
        ..GraphProto::default()
    };
    let model = Model::from_proto(build::model(17, graph)).unwrap();
    let (model, cut) = model.with_cut(CUT).unwrap();
    (model.slice(None, Some(&cut)).unwrap(), cut)
}

fn tensors() -> Vec<TensorInfo> {
    let tensor = |name: &str, dtype| TensorInfo {
        name: name.to_owned(),
        dtype,
        shape: vec![3, 8, 8],
    };
    vec![
        tensor("small", DType::F32),
        tensor("large", DType::F32),
        tensor("ids", DType::I64),
        tensor("mask", DType::U8),
    ]
}

/// Returns the expected row, computed without a host.
fn expected(model: &Model, photo: &Bytes) -> Vec<f32> {
    let spec = PixelSpec::imagenet(8, 8);
    let crop = frostline_images::load(photo, &spec, &DecodeLimits::default()).unwrap();
    let batch = Tensor::new([1, 3, 8, 8], Data::U8(crop)).unwrap();
    let pixels = frostline_images::normalize(&batch, &spec).unwrap();
    let mut session = Session::open(&model.to_bytes().unwrap(), &SessionOptions::default()).unwrap();
    let row = session.run(&[("pixels", &pixels)]).unwrap().remove(0).1;
    row.as_f32().unwrap().to_vec()
}

struct JointHost {
    test: TestHost,
    model: Model,
    photos: Vec<Bytes>,
    request: ExtractionRequest,
}

impl JointHost {
    async fn start() -> Self {
        let test = TestHost::start().await;
        let photos = test.photos(PHOTOS);
        let (guest, _) = test.upload().await;
        let (model, cut) = network();
        assert_eq!(cut, CUT);
        let bytes = model.to_bytes().unwrap();
        let answer = test
            .client
            .send(Method::PUT, "/v1/models/joint", bytes.clone())
            .await;
        assert_eq!(answer.status(), StatusCode::CREATED);
        let mut request = test.request(CUT, PHOTOS);
        request.guest = Some(guest);
        request.model = Some(upload_ref("joint", &bytes));
        Self {
            test,
            model,
            photos,
            request,
        }
    }

    /// Returns the rows by position.
    async fn rows(&self, encoding: Encoding, format: RowFormat) -> BTreeMap<u32, Vec<f32>> {
        let request = ExtractionRequest {
            encoding,
            ..self.request.clone()
        };
        let body = serde_json::to_vec(&request).unwrap();
        let client = &self.test.client;
        let answer = client.send(Method::POST, "/v1/extractions", body).await;
        let (rows, end) = rows(format, &request, answer).await;
        assert_eq!(end, End::Clean);
        assert_eq!(rows.len(), PHOTOS as usize);
        let floats = |bytes: Vec<u8>| {
            let (words, _) = bytes.as_chunks::<4>();
            words.iter().map(|word| f32::from_le_bytes(*word)).collect()
        };
        let rows = rows.into_iter();
        rows.map(|(position, row)| (position, floats(row.unwrap())))
            .collect()
    }

    /// Returns the largest error of each tensor, relative to the range of its values.
    fn errors(&self, rows: &BTreeMap<u32, Vec<f32>>) -> [f32; 4] {
        let mut errors = [0.0_f32; 4];
        for (index, photo) in self.photos.iter().enumerate() {
            let row = &rows[&(index as u32 * 10)];
            let wanted = expected(&self.model, photo);
            assert_eq!(row.len(), 4 * PIXELS);
            let tensors = row.chunks(PIXELS).zip(wanted.chunks(PIXELS));
            for (error, (actual, wanted)) in errors.iter_mut().zip(tensors) {
                let range = wanted.iter().copied().fold(f32::MIN, f32::max)
                    - wanted.iter().copied().fold(f32::MAX, f32::min);
                let pairs = actual.iter().zip(wanted);
                let largest = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                *error = error.max(largest / range);
            }
        }
        errors
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_tensor_has_its_own_scale_and_integers_are_exact() {
    let host = JointHost::start().await;
    for (values, tolerance) in [
        (Values::F32, 0.0),
        (Values::F16, 5e-4),
        (Values::Int8, 0.51 / 255.0),
    ] {
        for compression in ["", "+lz4", "+zstd"] {
            let encoding: Encoding = format!("{}{compression}", values.as_ref()).parse().unwrap();
            let format = values.rows_of(vec![4 * PIXELS], &tensors());
            assert!(format.is_divided());
            let rows = host.rows(encoding, format).await;
            let largest = rows.values().map(|row| row[2 * PIXELS..3 * PIXELS].to_vec());
            assert!(largest.flatten().fold(0.0, f32::max) > 65_504.0);
            let [small, large, ids, mask] = host.errors(&rows);
            assert!(
                small <= tolerance && large <= tolerance,
                "{encoding}: {small} {large}"
            );
            assert_eq!((ids, mask), (0.0, 0.0), "{encoding}");
        }
    }
    host.test.wait_until_idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_shows_the_tensors_of_its_joint_cuts() {
    let host = JointHost::start().await;
    let (_, info): (_, ModelInfo) = host.test.client.get("/v1/models/joint").await;
    let joint: Vec<&CutInfo> = info.cuts.iter().filter(|cut| !cut.tensors.is_empty()).collect();
    let [joint] = joint.as_slice() else {
        panic!("{joint:?}");
    };
    assert_eq!((joint.name.as_str(), &joint.tensors), (CUT, &tensors()));
}
