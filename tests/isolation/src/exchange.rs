//! Sends raw bytes to a host over a new connection and reads the answer.

use crate::case::CaseResult;
use crate::scene::Scene;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long an answer may take; a host closes silent connections after a quarter of this.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How long work may continue after a disconnect: a running engine batch is finished.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Creates the bytes of an exchange.
pub(crate) type Ask = fn(&Scene) -> Result<Sent>;

/// The bytes to send, and what to do afterwards.
pub(crate) struct Sent {
    pub(crate) bytes: Vec<u8>,
    pub(crate) then: Then,
}

pub(crate) enum Then {
    /// Read the answer to its end.
    Read,
    /// Drop the connection after this time; the host must notice.
    Leave(Duration),
}

/// A request's head with the hostile tenant's token.
pub(crate) fn head(scene: &Scene, method: &str, path: &str, more: &str) -> String {
    let token = scene.token();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: host\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n{more}\r\n"
    )
}

pub(crate) fn read(bytes: impl Into<Vec<u8>>) -> Result<Sent> {
    Ok(Sent {
        bytes: bytes.into(),
        then: Then::Read,
    })
}

pub(crate) fn get(scene: &Scene, path: &str) -> Result<Sent> {
    read(head(scene, "GET", path, ""))
}

pub(crate) fn post(scene: &Scene, path: &str, body: &[u8]) -> Result<Sent> {
    let head = head(
        scene,
        "POST",
        path,
        &format!("Content-Length: {}\r\n", body.len()),
    );
    read([head.as_bytes(), body].concat())
}

/// An extraction of raw objects, `samples` as JSON.
pub(crate) fn extraction(scene: &Scene, samples: &str) -> Result<Sent> {
    let root = serde_json::to_string(&scene.root()?)?;
    post(
        scene,
        "/v1/extractions",
        format!(r#"{{"root":{root},"split":"none","samples":{samples}}}"#).as_bytes(),
    )
}

/// Asks for all photos and leaves after a while, without reading.
pub(crate) fn abandon(scene: &Scene, after: Duration) -> Result<Sent> {
    let sample = |(position, key): (usize, &String)| format!(r#"{{"position":{position},"key":"{key}"}}"#);
    let samples: Vec<String> = scene.photos().iter().enumerate().map(sample).collect();
    Ok(Sent {
        then: Then::Leave(after),
        ..extraction(scene, &format!("[{}]", samples.join(",")))?
    })
}

/// One sample, which must come back as a row with an error and nothing of what it names.
pub(crate) fn key(scene: &Scene, key: &str) -> Result<Sent> {
    extraction(
        scene,
        &format!(r#"[{{"position":0,"key":{}}}]"#, serde_json::to_string(key)?),
    )
}

pub(crate) fn listing(scene: &Scene, root: &str) -> Result<Sent> {
    get(scene, &format!("/v1/objects?root={}", root.replace('/', "%2F")))
}

pub(crate) async fn run(scene: &Scene, ask: Ask) -> Result<CaseResult> {
    let sent = ask(scene)?;
    let mut stream = TcpStream::connect(scene.address()?).await?;
    // The host may have answered and closed before all was sent.
    let written = tokio::time::timeout(TIMEOUT, stream.write_all(&sent.bytes))
        .await
        .context("the host does not read the request")?;
    if let Then::Leave(after) = sent.then {
        written?;
        tokio::time::sleep(after).await;
        drop(stream);
        return wait_until_idle(scene).await;
    }
    let mut answer = Vec::new();
    let end = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut answer)).await;
    let _ = end.context("the host neither answers nor closes the connection")?;
    Ok(seen(&answer))
}

/// Waits until the host has no work for the disconnected tenant.
async fn wait_until_idle(scene: &Scene) -> Result<CaseResult> {
    let until = Instant::now() + IDLE_TIMEOUT;
    while scene.at_work()? {
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

/// The status and the body; of an extraction's answer, the row's error.
fn seen(answer: &[u8]) -> CaseResult {
    let text = String::from_utf8_lossy(answer);
    let Some(status) = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)) else {
        return CaseResult::new("closed", text);
    };
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let code = if status == "200" && text.contains("arrow.stream") {
        "row"
    } else {
        status
    };
    // A row's error stands in the stream as it is; what the row would hold must not.
    let leaked = ["nobody may read this", "root:"]
        .iter()
        .any(|secret| body.contains(secret));
    let code = if leaked { "leaked" } else { code };
    CaseResult::new(code, body.chars().take(3000).collect::<String>())
}
