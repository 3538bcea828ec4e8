//! Sends raw bytes to a host over a new connection and reads the answer.

use crate::case::CaseResult;
use crate::scene::Scene;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Timeout of requests and answers. A host closes silent connections after a quarter of this.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum time that work continues after a disconnect. A running engine batch is finished.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Creates the bytes of an exchange.
pub(crate) type BuildRequest = fn(&Scene) -> Result<RawRequest>;

/// Bytes to send, and the client's behavior afterwards.
pub(crate) struct RawRequest {
    pub(crate) bytes: Vec<u8>,
    pub(crate) then: AfterSend,
}

pub(crate) enum AfterSend {
    /// Read the answer to the end.
    Read,
    /// Disconnect after this time. The host must notice it.
    Disconnect(Duration),
}

/// Formats the head of a request with the hostile tenant's token.
pub(crate) fn head(scene: &Scene, method: &str, path: &str, more: &str) -> String {
    head_of(method, path, Some(scene.token()), more)
}

/// Formats the head of a request.
pub(crate) fn head_of(method: &str, path: &str, token: Option<&str>, more: &str) -> String {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    format!(
        "{method} {path} HTTP/1.1\r\nHost: host\r\nConnection: close\r\n{}{more}\r\n",
        token.unwrap_or_default()
    )
}

pub(crate) fn read(bytes: impl Into<Vec<u8>>) -> Result<RawRequest> {
    Ok(RawRequest {
        bytes: bytes.into(),
        then: AfterSend::Read,
    })
}

pub(crate) fn get(scene: &Scene, path: &str) -> Result<RawRequest> {
    read(head(scene, "GET", path, ""))
}

pub(crate) fn post(scene: &Scene, path: &str, body: &[u8]) -> Result<RawRequest> {
    let head = head(
        scene,
        "POST",
        path,
        &format!("Content-Length: {}\r\n", body.len()),
    );
    read([head.as_bytes(), body].concat())
}

/// Builds an extraction of raw objects. `samples` is JSON.
pub(crate) fn extraction(scene: &Scene, samples: &str) -> Result<RawRequest> {
    extraction_from(scene, &scene.root()?, samples)
}

/// Builds an extraction of raw objects below `root`. `samples` is JSON.
pub(crate) fn extraction_from(scene: &Scene, root: &str, samples: &str) -> Result<RawRequest> {
    let root = serde_json::to_string(root)?;
    post(
        scene,
        "/v1/extractions",
        format!(r#"{{"root":{root},"split":"none","samples":{samples}}}"#).as_bytes(),
    )
}

/// Requests all photos and disconnects after `after` without reading.
pub(crate) fn abandon(scene: &Scene, after: Duration) -> Result<RawRequest> {
    let sample = |(position, key): (usize, &String)| format!(r#"{{"position":{position},"key":"{key}"}}"#);
    let samples: Vec<String> = scene.photos().iter().enumerate().map(sample).collect();
    Ok(RawRequest {
        then: AfterSend::Disconnect(after),
        ..extraction(scene, &format!("[{}]", samples.join(",")))?
    })
}

/// Requests one sample. The result must be a row with an error, without contents of the named file.
pub(crate) fn key(scene: &Scene, key: &str) -> Result<RawRequest> {
    extraction(
        scene,
        &format!(r#"[{{"position":0,"key":{}}}]"#, serde_json::to_string(key)?),
    )
}

pub(crate) fn listing(scene: &Scene, root: &str) -> Result<RawRequest> {
    get(scene, &format!("/v1/objects?root={}", root.replace('/', "%2F")))
}

pub(crate) async fn run(scene: &Scene, ask: BuildRequest) -> Result<CaseResult> {
    send(scene, ask(scene)?).await
}

/// Sends a request over a new connection and returns the result.
pub(crate) async fn send(scene: &Scene, sent: RawRequest) -> Result<CaseResult> {
    let mut stream = TcpStream::connect(scene.address()?).await?;
    // The host may answer and close the connection before reading everything.
    let written = tokio::time::timeout(TIMEOUT, stream.write_all(&sent.bytes))
        .await
        .context("timed out sending the request")?;
    if let AfterSend::Disconnect(after) = sent.then {
        written?;
        tokio::time::sleep(after).await;
        drop(stream);
        return wait_until_idle(scene).await;
    }
    let mut answer = Vec::new();
    let end = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut answer)).await;
    let _ = end.context("timed out waiting for the host to answer or close the connection")?;
    Ok(parse_result(&answer))
}

/// Waits until no work of the disconnected tenant remains.
async fn wait_until_idle(scene: &Scene) -> Result<CaseResult> {
    let until = Instant::now() + IDLE_TIMEOUT;
    while scene.has_work()? {
        if Instant::now() > until {
            return Ok(CaseResult::new(
                "at work",
                "the host still works for a disconnected tenant",
            ));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(CaseResult::new("left", ""))
}

/// Extracts the status and the body from an answer. For rows, the body is the stream, which contains the
/// error.
fn parse_result(answer: &[u8]) -> CaseResult {
    let text = String::from_utf8_lossy(answer);
    let Some(status) = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)) else {
        return CaseResult::new("closed", text);
    };
    if text.matches("HTTP/1.1 ").count() > 1 {
        return CaseResult::new("answered twice", text);
    }
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let code = if status == "200" && text.contains("arrow.stream") {
        "row"
    } else {
        status
    };
    // Streams contain the error of a row as plain text, but must not contain contents of other files.
    let leaked = ["nobody may read this", "root:"]
        .iter()
        .any(|secret| body.contains(secret));
    let code = if leaked { "leaked" } else { code };
    CaseResult::new(code, body.chars().take(3000).collect::<String>())
}
