//! Bodies that never end.

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

/// What each announces: the longest that a host reads.
const ANNOUNCED: usize = 16 << 20;

/// Connections, whose bodies would take twice the budget.
const CONNECTIONS: usize = 96;

/// A host that reads nothing of a connection for so long lets it wait, or has answered.
const STALLED: Duration = Duration::from_secs(3);

/// Sends all but a byte of each body, as far as the host takes it, and leaves once it takes no more.
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

/// The connection, when its body is all but there, or the host takes no more of it.
async fn send(address: SocketAddr, head: String) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(head.as_bytes()).await?;
    let piece = vec![b' '; 64 << 10];
    let mut left = ANNOUNCED - 1;
    while left > 0 {
        let piece = piece.get(..left.min(piece.len())).unwrap_or_default();
        match timeout(STALLED, stream.write(piece)).await {
            Ok(Ok(written)) => left -= written,
            // It has answered and closed, or waits.
            Ok(Err(_)) | Err(_) => break,
        }
    }
    Ok(stream)
}
