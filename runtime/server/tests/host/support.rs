//! A host with data, a client for it, and the small network.

use bytes::Bytes;
use frostline_graph::onnx::GraphProto;
use frostline_graph::{Model, build};
use frostline_server::{Host, HostConfig, HostSettings, RunningHost};
use frostline_tensor::{OpError, Tensor};
use frostline_wire::{
    ActivationReader, Encoding, ErrorBody, ExtractionRequest, FrameError, Load, Pin, RequestedSample,
    RowFormat, RowValue, SampleRef, Split,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::UnixStream;

/// How long anything may take before a test is called stuck.
pub(crate) const STUCK: Duration = Duration::from_secs(60);

pub(crate) struct TestHost {
    pub(crate) host: Option<RunningHost>,
    pub(crate) folder: TempDir,
    pub(crate) client: Client,
}

impl TestHost {
    pub(crate) async fn start() -> Self {
        Self::with(|_| ()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut HostSettings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        Self::on(folder, change).await
    }

    /// A host on state and data that are there.
    pub(crate) async fn on(folder: TempDir, change: impl FnOnce(&mut HostSettings)) -> Self {
        Self::configured(folder, change, |_| ()).await
    }

    /// A host with limits that no configuration file sets.
    pub(crate) async fn limited(
        change: impl FnOnce(&mut HostSettings),
        limit: impl FnOnce(&mut HostConfig),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        Self::configured(folder, change, limit).await
    }

    async fn configured(
        folder: TempDir,
        change: impl FnOnce(&mut HostSettings),
        limit: impl FnOnce(&mut HostConfig),
    ) -> Self {
        let mut settings = HostSettings {
            listen: "127.0.0.1:0".to_owned(),
            state: folder.path().join("state").to_str().unwrap().to_owned(),
            data: vec![folder.path().join("data").to_str().unwrap().to_owned()],
            admin_socket: Some(folder.path().join("admin.sock")),
            ..HostSettings::default()
        };
        settings.extractions.grant = 4;
        change(&mut settings);
        let mut config = settings.check().unwrap();
        limit(&mut config);
        let host = Host::start(config).await.unwrap();
        let token = std::fs::read_to_string(host.token_file())
            .unwrap()
            .trim()
            .to_owned();
        let client = Client::new(format!("http://{}", host.address()), token, false);
        Self {
            host: Some(host),
            folder,
            client,
        }
    }

    pub(crate) fn http2(&self) -> Client {
        Client::new(self.client.base.clone(), self.client.token.clone(), true)
    }

    /// A client of another tenant.
    pub(crate) fn client_of(&self, token: &str) -> Client {
        Client::new(self.client.base.clone(), token.to_owned(), false)
    }

    /// Asks as an admin.
    pub(crate) async fn admin(&self, method: Method, path: &str, body: &impl Serialize) -> Value {
        let socket = self.folder.path().join("admin.sock");
        let stream = UnixStream::connect(socket).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "admin")
            .body(Full::new(Bytes::from(serde_json::to_vec(body).unwrap())));
        let answer = sender.send_request(request.unwrap()).await.unwrap();
        let (status, bytes) = (answer.status(), self::body(answer).await);
        assert!(status.is_success(), "{path}: {status} {bytes:?}");
        connection.abort();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Adds a tenant that may read the data; its token, and the token's id.
    pub(crate) async fn add(&self, name: &str) -> (String, String) {
        let new = serde_json::json!({"name": name, "data": [self.root()]});
        let given = self.admin(Method::POST, "/v1/tenants", &new).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&given["token"]), text(&given["tenant"]["tokens"][0]["id"]))
    }

    /// How many extractions run, as an admin is told.
    pub(crate) async fn running(&self) -> u64 {
        let activity = self.admin(Method::GET, "/v1/activity", &Value::Null).await;
        activity["running"].as_u64().unwrap()
    }

    /// Waits until an admin is told that no extraction runs.
    pub(crate) async fn ended(&self) {
        let ended = async {
            while self.running().await > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(STUCK, ended)
            .await
            .expect("an extraction kept its place");
    }

    /// Objects that no socket buffer holds, so that an answer nobody reads stays open.
    pub(crate) fn large(&self) -> ExtractionRequest {
        self.write("large", &vec![7; 1 << 20]);
        let mut request = self.request("none", 0);
        request.samples = (0..64).map(|position| sample(position, "large")).collect();
        request
    }

    pub(crate) fn root(&self) -> String {
        self.folder.path().join("data").to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, key: &str, bytes: &[u8]) {
        let path = self.folder.path().join("data").join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Photos `0.png` and on, each different; their bytes.
    pub(crate) fn photos(&self, count: u32) -> Vec<Bytes> {
        let photos: Vec<Bytes> = (0..count).map(photo).collect();
        photos
            .iter()
            .enumerate()
            .for_each(|(index, photo)| self.write(&format!("{index}.png"), photo));
        photos
    }

    pub(crate) async fn upload(&self) -> (Pin, Pin) {
        self.client.upload().await
    }

    pub(crate) async fn load(&self) -> Load {
        self.client.get("/v1/load").await.1
    }

    /// Waits until no extraction runs.
    pub(crate) async fn idle(&self) {
        let idle = async {
            while self.load().await.running > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(STUCK, idle)
            .await
            .expect("an extraction kept running");
    }

    pub(crate) fn request(&self, split: &str, samples: u32) -> ExtractionRequest {
        ExtractionRequest {
            root: self.root(),
            split: Split::from(split),
            guest: None,
            model: None,
            parameters: String::new(),
            encoding: Encoding::F32,
            samples: (0..samples)
                .map(|index| sample(index * 10, &format!("{index}.png")))
                .collect(),
        }
    }
}

pub(crate) fn sample(position: u32, key: &str) -> RequestedSample {
    RequestedSample {
        position,
        sample: SampleRef::new(key),
    }
}

#[derive(Clone)]
pub(crate) struct Client {
    pool: Pool<HttpConnector, Full<Bytes>>,
    pub(crate) base: String,
    pub(crate) token: String,
}

impl Client {
    pub(crate) fn new(base: String, token: String, http2: bool) -> Self {
        let pool = Pool::builder(TokioExecutor::new()).http2_only(http2).build_http();
        Self { pool, base, token }
    }

    /// Uploads the stock guest and the small network.
    pub(crate) async fn upload(&self) -> (Pin, Pin) {
        let guest = stock_guest();
        let model = network().to_bytes().unwrap();
        for (path, bytes) in [("/v1/guests/prefix", &guest), ("/v1/models/tiny", &model)] {
            let answer = self.send(Method::PUT, path, bytes.clone()).await;
            assert_eq!(answer.status(), StatusCode::CREATED, "{:?}", body(answer).await);
        }
        (pin("prefix", &guest), pin("tiny", &model))
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        self.send_with(method, path, &[], body).await
    }

    pub(crate) async fn send_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("authorization", format!("Bearer {}", self.token));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        tokio::time::timeout(STUCK, self.pool.request(request))
            .await
            .expect("no answer")
            .unwrap()
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> (StatusCode, T) {
        let answer = self.send(Method::GET, path, "").await;
        (
            answer.status(),
            serde_json::from_slice(&body(answer).await).unwrap(),
        )
    }

    pub(crate) async fn refused(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> (StatusCode, ErrorBody) {
        let answer = self.send(method, path, body).await;
        let status = answer.status();
        (status, serde_json::from_slice(&self::body(answer).await).unwrap())
    }

    pub(crate) async fn extract(&self, request: &ExtractionRequest) -> Response<Incoming> {
        self.send(
            Method::POST,
            "/v1/extractions",
            serde_json::to_vec(request).unwrap(),
        )
        .await
    }

    pub(crate) async fn extract_refused(&self, request: &ExtractionRequest) -> (StatusCode, ErrorBody) {
        self.refused(
            Method::POST,
            "/v1/extractions",
            serde_json::to_vec(request).unwrap(),
        )
        .await
    }
}

pub(crate) async fn body(answer: Response<Incoming>) -> Bytes {
    tokio::time::timeout(STUCK, answer.into_body().collect())
        .await
        .expect("the body stopped")
        .unwrap()
        .to_bytes()
}

/// Rows of an answer by position: bytes, little-endian, or the error.
pub(crate) type Rows = BTreeMap<u32, Result<Vec<u8>, OpError>>;

/// How an answer ended.
#[derive(Debug, PartialEq)]
pub(crate) enum End {
    Clean,
    Aborted,
    Bad(FrameError),
}

/// Reads an answer as a trainer would.
pub(crate) async fn rows(
    format: RowFormat,
    request: &ExtractionRequest,
    answer: Response<Incoming>,
) -> (Rows, End) {
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["content-type"], frostline_wire::ARROW_STREAM);
    let positions = request.samples.iter().map(|sample| sample.position);
    let reader = ActivationReader::new(format, positions, 64 << 20);
    let mut reader = reader.compressed(request.encoding.compression);
    let (mut rows, mut body) = (Rows::new(), answer.into_body());
    while let Some(frame) = tokio::time::timeout(STUCK, body.frame())
        .await
        .expect("the body stopped")
    {
        let Ok(frame) = frame else {
            return (rows, End::Aborted);
        };
        // Trailers come last, and say how long the host worked.
        let Ok(data) = frame.into_data() else { continue };
        let batches = match reader.push(data) {
            Ok(batches) => batches,
            Err(error) => return (rows, End::Bad(error)),
        };
        for row in batches.iter().flat_map(|batch| batch.rows()) {
            let row = row.unwrap();
            rows.insert(row.position, row.outcome.map(bytes_of));
        }
    }
    (rows, reader.finish().map_or_else(End::Bad, |()| End::Clean))
}

fn bytes_of(value: RowValue<'_>) -> Vec<u8> {
    let elements = match value {
        RowValue::U8(bytes) | RowValue::Object(bytes) => return bytes.to_vec(),
        RowValue::F32(values) => values.len(),
        RowValue::F16(values) => values.len(),
        RowValue::Int8 { values, .. } => values.len(),
    };
    let mut decoded = vec![0.0; elements];
    assert!(value.read_into(&mut decoded));
    decoded.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub(crate) fn stock_guest() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/prefix/prefix.wasm")).unwrap()
}

pub(crate) fn pin(name: &str, bytes: &[u8]) -> Pin {
    Pin {
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

fn photo(seed: u32) -> Bytes {
    let (width, height) = (12, 10);
    let shade = |x: u32, y: u32, factor: u32| ((x * factor + y * 7 + seed * 31) % 256) as u8;
    let pixel = |at: u32| [3, 11, 19].map(|factor| shade(at % width, at / width, factor));
    let pixels: Vec<u8> = (0..width * height).flat_map(pixel).collect();
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    file.into()
}
