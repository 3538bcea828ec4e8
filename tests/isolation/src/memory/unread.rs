//! Answers that a client requests and never reads.

use super::{wait_until_released, watch};
use crate::case::CaseResult;
use crate::scene::Scene;
use anyhow::{Context, Result};
use bytes::Bytes;
use chrono::DateTime;
use frostline_graph::build::{batched, model, node};
use frostline_graph::onnx::GraphProto;
use frostline_wire::AuditEntry;
use futures::future::join_all;
use h2::client::{Builder, ResponseFuture};
use http::{Request, header};
use prost::Message;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Number of streams per connection that a host permits.
const STREAMS: usize = 128;

/// Connections of a client without a token, less than half of those that a host permits.
const STRANGERS: usize = 110;

/// Connections of a tenant.
const CONNECTIONS: usize = 14;

/// Maximum growth of memory without a reservation, in bytes. Connections and memory that the allocator retains
/// are 30 to 65 MiB. Without reservations, the growth is 218 MiB or more.
const UNOWNED: u64 = 128 << 20;

/// Time within which a host answers or refuses a request. It exceeds the wait for memory.
const ANSWERED: Duration = Duration::from_secs(60);

/// Time between the last answer and the measurement, which a host updates four times per second.
const MEASURED: Duration = Duration::from_secs(1);

/// Number of layers and bytes per name of the network with a long description.
const LAYERS: usize = 256;
const NAME: usize = 200;

/// Number of objects with audit entries, of entries per object, and of admins that request all of them.
const OBJECTS: usize = 100;
const ENTRIES: usize = 1000;
const ADMINS: usize = 8;

/// Requests `/metrics` without a token.
pub(super) async fn metrics(scene: &Scene) -> Result<CaseResult> {
    unread(scene, STRANGERS, "/metrics", "").await
}

/// Requests an unknown address of 15 kB without a token.
pub(super) async fn addresses(scene: &Scene) -> Result<CaseResult> {
    unread(scene, STRANGERS, &format!("/{}", "a".repeat(15_000)), "").await
}

/// Requests the description of a network with long names.
pub(super) async fn descriptions(scene: &Scene) -> Result<CaseResult> {
    scene.client()?.push_model("long", network().into()).await?;
    unread(scene, CONNECTIONS, "/v1/models/long", scene.token()).await
}

/// Requests the complete audit log over the admin socket.
pub(super) async fn audit(scene: &Scene) -> Result<CaseResult> {
    write_entries(scene)?;
    let before = watch::base(scene)?;
    let mut admins = Vec::new();
    for _ in 0..ADMINS {
        let mut admin = UnixStream::connect(scene.socket()?).await?;
        admin
            .write_all(b"GET /v1/audit?tenant=past HTTP/1.1\r\nHost: host\r\n\r\n")
            .await?;
        admins.push(admin);
    }
    let firsts = join_all(admins.iter_mut().map(|admin| timeout(ANSWERED, admin.read_u8()))).await;
    for first in firsts {
        first.context("the host did not answer an admin")??;
    }
    measure(scene, before).await
}

/// Requests `path` on all streams of many connections without permitting a byte of a body.
async fn unread(scene: &Scene, connections: usize, path: &str, token: &str) -> Result<CaseResult> {
    let before = watch::base(scene)?;
    let (mut running, mut answers) = (JoinSet::new(), Vec::new());
    for _ in 0..connections {
        let stream = TcpStream::connect(scene.direct_address()?).await?;
        let opened = Builder::new()
            .initial_window_size(0)
            .handshake::<_, Bytes>(stream);
        let (mut client, connection) = opened.await?;
        running.spawn(connection);
        for _ in 0..STREAMS {
            let request = Request::get(format!("http://{}{path}", scene.direct_address()?))
                .header(header::AUTHORIZATION, format!("Bearer {token}"))
                .body(())?;
            client = client.ready().await?;
            answers.push(client.send_request(request, true)?.0);
        }
    }
    let heads = join_all(answers.into_iter().map(head)).await;
    let result = measure(scene, before).await?;
    drop((heads, running));
    wait_until_released(scene).await?;
    Ok(result)
}

/// Waits for the head of an answer, and returns the unread body. The host may also close the connection.
async fn head(answer: ResponseFuture) -> Result<Option<h2::RecvStream>> {
    let answer = timeout(ANSWERED, answer)
        .await
        .context("the host did not answer")?;
    Ok(answer.ok().map(http::Response::into_body))
}

/// Compares the memory without a reservation to the amount before the attack.
async fn measure(scene: &Scene, before: u64) -> Result<CaseResult> {
    tokio::time::sleep(MEASURED).await;
    let grown = watch::base(scene)?.saturating_sub(before);
    println!("unread answers: {} MiB without a reservation", grown >> 20);
    Ok(match grown <= UNOWNED {
        true => CaseResult::new("reserved", ""),
        false => CaseResult::new("unowned", format!("{grown} bytes")),
    })
}

/// Writes audit entries of an earlier host to the state.
fn write_entries(scene: &Scene) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let today = DateTime::from_timestamp(i64::try_from(now)?, 0).context("the clock is wrong")?;
    let entry = AuditEntry {
        at: now,
        host: "earlier".to_owned(),
        who: "tenant past at 127.0.0.1".to_owned(),
        what: "guest uploaded".to_owned(),
        tenant: "past".to_owned(),
        detail: "x".repeat(NAME),
    };
    let lines = (serde_json::to_string(&entry)? + "\n").repeat(ENTRIES);
    let folder = scene
        .folder()
        .join("state/audit/tenants")
        .join(today.date_naive().to_string());
    std::fs::create_dir_all(&folder)?;
    for number in 0..OBJECTS {
        std::fs::write(folder.join(format!("earlier-{number:08}.json")), &lines)?;
    }
    Ok(())
}

/// Creates a chain of layers with long names.
fn network() -> Vec<u8> {
    let name = |layer: usize| format!("{layer:0NAME$}");
    let nodes = (0..LAYERS).map(|layer| node("Relu", &[&name(layer)], &[&name(layer + 1)]));
    let graph = GraphProto {
        name: "long".into(),
        node: nodes.collect(),
        input: vec![batched(&name(0), &[3, 2, 2])],
        output: vec![batched(&name(LAYERS), &[3, 2, 2])],
        ..GraphProto::default()
    };
    model(17, graph).encode_to_vec()
}
