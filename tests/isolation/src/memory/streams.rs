//! Request bodies without an end, on many streams of few connections.

use super::wait_until_released;
use crate::case::CaseResult;
use crate::scene::Scene;
use anyhow::Result;
use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest, handshake};
use http::{Method, Request, header};
use std::future::poll_fn;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Number of connections and of streams per connection (128 bodies).
const CONNECTIONS: usize = 8;
const STREAMS: usize = 16;

/// Announced length of each body, equal to the host's limit.
const ANNOUNCED: usize = 16 << 20;

/// Maximum bytes sent at a time.
const PIECE: usize = 64 << 10;

/// Time without progress after which the host is applying backpressure or has answered.
const STALLED: Duration = Duration::from_secs(3);

/// Body in flight. Dropping it resets the stream.
type Open = (SendStream<Bytes>, ResponseFuture);

/// Sends each body except the last byte until the host stops reading. Then disconnects.
pub(super) async fn run(scene: &Scene) -> Result<CaseResult> {
    let (mut connections, mut sending) = (JoinSet::new(), JoinSet::new());
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect(scene.address()?).await?;
        let (mut client, connection) = handshake(stream).await?;
        connections.spawn(connection);
        for _ in 0..STREAMS {
            client = client.ready().await?;
            sending.spawn(send(open_stream(scene, &mut client)?));
        }
    }
    let bodies = sending.join_all().await;
    drop((bodies, connections));
    wait_until_released(scene).await?;
    Ok(CaseResult::new("left", ""))
}

fn open_stream(scene: &Scene, client: &mut SendRequest<Bytes>) -> Result<Open> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://{}/v1/extractions", scene.address()?))
        .header(header::AUTHORIZATION, format!("Bearer {}", scene.token()))
        .header(header::CONTENT_LENGTH, ANNOUNCED)
        .body(())?;
    let (answer, body) = client.send_request(request, false)?;
    Ok((body, answer))
}

/// Returns the body when one byte remains or the host stops reading.
async fn send((mut body, answer): Open) -> Open {
    let mut remaining = ANNOUNCED - 1;
    while remaining > 0 {
        body.reserve_capacity(remaining.min(PIECE));
        let capacity = timeout(STALLED, poll_fn(|context| body.poll_capacity(context))).await;
        // The host has answered or applies backpressure.
        let Ok(Some(Ok(bytes @ 1..))) = capacity else {
            break;
        };
        let piece = vec![b' '; bytes.min(remaining)];
        remaining -= piece.len();
        if body.send_data(piece.into(), false).is_err() {
            break;
        }
    }
    (body, answer)
}
