//! Request bodies that never end.

use super::wait_until_released;
use crate::case::CaseResult;
use crate::exchange::head;
use crate::scene::Scene;
use anyhow::Result;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Announced length of each body, equal to the host's limit.
const ANNOUNCED: usize = 16 << 20;

/// Number of connections. Their bodies exceed the budget twice.
const CONNECTIONS: usize = 96;

/// Time without progress after which the host is applying backpressure or has answered.
const STALLED: Duration = Duration::from_secs(3);

/// Sends each body except the last byte until the host stops reading. Then disconnects.
pub(super) async fn run(scene: &Scene) -> Result<CaseResult> {
    let head = head(
        scene,
        "POST",
        "/v1/extractions",
        &format!("Content-Length: {ANNOUNCED}\r\n"),
    );
    let mut sending = JoinSet::new();
    for _ in 0..CONNECTIONS {
        sending.spawn(send(scene.address()?, head.clone()));
    }
    let streams = sending.join_all().await;
    drop(streams);
    wait_until_released(scene).await?;
    Ok(CaseResult::new("left", ""))
}

/// Returns the connection when one byte remains or the host stops reading.
async fn send(address: SocketAddr, head: String) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(head.as_bytes()).await?;
    let piece = vec![b' '; 64 << 10];
    let mut left = ANNOUNCED - 1;
    while left > 0 {
        let piece = piece.get(..left.min(piece.len())).unwrap_or_default();
        match timeout(STALLED, stream.write(piece)).await {
            Ok(Ok(written)) => left -= written,
            // The host has answered and closed the connection, or applies backpressure.
            Ok(Err(_)) | Err(_) => break,
        }
    }
    Ok(stream)
}
