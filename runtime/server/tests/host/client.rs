//! HTTP client for the tests.

use crate::fixtures::{network, stock_guest, upload_ref};
use bytes::Bytes;
use frostline_tensor::OpError;
use frostline_wire::{
    ActivationReader, ErrorBody, ExtractionRequest, FrameError, RowFormat, RowValue, UploadRef,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time after which a step of a test counts as stuck, however busy the machine is. Most steps take milliseconds.
pub(crate) const STUCK: Duration = Duration::from_secs(600);

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
    pub(crate) async fn upload(&self) -> (UploadRef, UploadRef) {
        let guest = stock_guest();
        let model = network().to_bytes().unwrap();
        for (path, bytes) in [("/v1/guests/prefix", &guest), ("/v1/models/tiny", &model)] {
            let answer = self.send(Method::PUT, path, bytes.clone()).await;
            assert_eq!(answer.status(), StatusCode::CREATED, "{:?}", body(answer).await);
        }
        (upload_ref("prefix", &guest), upload_ref("tiny", &model))
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

/// Rows by position. Values are little-endian bytes.
pub(crate) type Rows = BTreeMap<u32, Result<Vec<u8>, OpError>>;

/// End of an answer.
#[derive(Debug, PartialEq)]
pub(crate) enum End {
    Clean,
    Aborted,
    Bad(FrameError),
}

/// Reads an answer in the same way as a trainer.
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
    let mut rows = Rows::new();
    let mut body = answer.into_body();
    while let Some(frame) = tokio::time::timeout(STUCK, body.frame())
        .await
        .expect("the body stopped")
    {
        let Ok(frame) = frame else {
            return (rows, End::Aborted);
        };
        // The last frame contains the trailers with the time that the host needed.
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

fn elements(value: &RowValue<'_>) -> usize {
    match value {
        RowValue::U8(bytes) | RowValue::Object(bytes) => bytes.len(),
        RowValue::F32(values) => values.len(),
        RowValue::F16(values) => values.len(),
        RowValue::Int8 { values, .. } => values.len(),
        RowValue::I32(values) => values.len(),
        RowValue::Tensors(tensors) => tensors.iter().map(elements).sum(),
    }
}

fn bytes_of(value: RowValue<'_>) -> Vec<u8> {
    if let RowValue::U8(bytes) | RowValue::Object(bytes) = value {
        return bytes.to_vec();
    }
    let mut decoded = vec![0.0; elements(&value)];
    assert!(value.read_into(&mut decoded));
    decoded.iter().flat_map(|value| value.to_le_bytes()).collect()
}
