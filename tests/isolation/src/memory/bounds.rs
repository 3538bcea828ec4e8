//! Texts, names, answers of stores and changes without an end, and budgets of a day.

use super::objects::{SUBFOLDERS, replace_shard, subfolder};
use super::watch::{anonymous_of, sent_by};
use crate::case::CaseResult;
use crate::exchange::{self, head, post};
use crate::scene::Scene;
use anyhow::{Context, Result, ensure};
use frostline_graph::build::{batched, initializer, model, node};
use frostline_graph::onnx::GraphProto;
use frostline_tensor::Tensor;
use frostline_wire::Layout;
use prost::Message;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Memory that a host may use after a case in addition to before, in bytes. The neighbor's extractions need some.
const LEFT: u64 = 128 << 20;

/// Time within which the memory is returned.
const RETURN_TIMEOUT: Duration = Duration::from_secs(15);

/// Number of requests with a long text.
const TEXTS: usize = 32;

/// Sends a `split` of 15 MB in each of many requests. A host kept them for a day.
pub(super) async fn long_texts(scene: &Scene) -> Result<CaseResult> {
    let before = anonymous_of(scene.process()?).context("no /proc")?;
    let split = "x".repeat(15 << 20);
    let body = format!(r#"{{"root":"file:///","split":"{split}","samples":[]}}"#);
    let mut last = CaseResult::new("none", "");
    for _ in 0..TEXTS {
        last = exchange::send(scene, post(scene, "/v1/extractions", body.as_bytes())?).await?;
    }
    returned(scene, before, last).await
}

/// Returns `result` once the memory of the host is near that of `before`.
async fn returned(scene: &Scene, before: u64, result: CaseResult) -> Result<CaseResult> {
    let until = Instant::now() + RETURN_TIMEOUT;
    loop {
        let now = anonymous_of(scene.process()?).context("no /proc")?;
        if now <= before + LEFT {
            return Ok(result);
        }
        if Instant::now() > until {
            let kept = (now - before) >> 20;
            return Ok(CaseResult::new("kept", format!("{kept} MiB after {result:?}")));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Number of files in one folder, and of listings that are left at once.
const FILES: usize = 8_000;
const LISTINGS: usize = 64;

/// Lists a folder with many long names on many connections that close immediately.
pub(super) async fn long_names(scene: &Scene) -> Result<CaseResult> {
    let root = scene.root()?;
    let parents = ["a", "b", "c"].map(|name| name.repeat(250)).join("/");
    let folder = Path::new(&root).join("names").join(&parents);
    fs::create_dir_all(&folder)?;
    for number in 0..FILES {
        File::create(folder.join(format!("{number:06}{}", "n".repeat(230))))?;
    }
    let before = anonymous_of(scene.process()?).context("no /proc")?;
    let below = format!("{root}/names");
    let request = exchange::listing(scene, &below)?.bytes;
    let mut connections = Vec::new();
    for _ in 0..LISTINGS {
        let mut stream = TcpStream::connect(scene.address()?).await?;
        stream.write_all(&request).await?;
        connections.push(stream);
        if connections.len() == 8 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            connections.clear();
        }
    }
    drop(connections);
    let listed = scene.client()?.objects(&below, Layout::Objects).await?;
    let result = CaseResult::new("listed", format!("{} names", listed.len()));
    returned(scene, before, result).await
}

/// Lists a granted web server whose answer never ends, four times at once.
pub(super) async fn endless_listing(scene: &Scene) -> Result<CaseResult> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let root = scene.root()?;
    let serving = tokio::spawn(async move {
        let mut streams = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            streams.spawn(answer_without_end(stream));
        }
    });
    scene.admin(&[
        "tenant",
        "set",
        scene.name(),
        "--data",
        &root,
        "--data",
        &url,
        "--unchecked",
    ])?;
    let mut listings = JoinSet::new();
    for _ in 0..4 {
        let (scene, url) = (scene.clone(), url.clone());
        listings.spawn(async move { exchange::send(&scene, exchange::listing(&scene, &url)?).await });
    }
    let mut result = CaseResult::new("none", "");
    while let Some(listed) = listings.join_next().await {
        result = listed??;
        // The answer is too long, or memory is short.
        if matches!(&*result.code, "400" | "413" | "429") {
            result.code = "refused".to_owned();
        }
    }
    serving.abort();
    scene.admin(&["tenant", "set", scene.name(), "--data", &root])?;
    Ok(result)
}

/// Answers with entries of a listing until the client disconnects.
async fn answer_without_end(mut stream: TcpStream) -> Result<()> {
    let mut request = [0; 4096];
    ensure!(stream.read(&mut request).await? > 0, "no request");
    let head = "HTTP/1.1 207 Multi-Status\r\nConnection: close\r\n\r\n<?xml version=\"1.0\"?><D:multistatus xmlns:D=\"DAV:\">";
    stream.write_all(head.as_bytes()).await?;
    let entry = "<D:response><D:href>/a.jpg</D:href><D:propstat><D:prop><D:resourcetype/><D:getcontentlength>1</D:getcontentlength>\
                 <D:getlastmodified>Sat, 21 Nov 2026 10:00:00 GMT</D:getlastmodified></D:prop><D:status>HTTP/1.1 200 OK</D:status>\
                 </D:propstat></D:response>";
    let entries = entry.repeat(256);
    loop {
        stream.write_all(entries.as_bytes()).await?;
    }
}

/// Bytes that probes may send in this case, their number, and the most bytes each sends after the budget is used
/// up: a piece, and the head.
const PROBE_BUDGET: u64 = 32 << 20;
const PROBES: u64 = 64;
const PROBE_EXCESS: u64 = 32 << 10;

/// Requests half a gigabyte of probes with 32 MiB of the day's budget left.
pub(super) async fn probes(scene: &Scene) -> Result<CaseResult> {
    let sent = sent_by(&scene.admin(&["top", "--once"])?, scene.name())?;
    let limit = format!("bytes_per_day={}", sent + PROBE_BUDGET);
    scene.admin(&["quota", "set", scene.name(), &limit])?;
    let mut probing = JoinSet::new();
    for _ in 0..PROBES {
        let (address, request) = (
            scene.address()?,
            head(scene, "GET", "/v1/probe?bytes=8388608", ""),
        );
        probing.spawn(async move {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = Vec::new();
            // Fails if the host resets the connection.
            let _ = stream.read_to_end(&mut answer).await;
            Ok::<_, anyhow::Error>(answer.len() as u64)
        });
    }
    let mut received = 0;
    while let Some(answer) = probing.join_next().await {
        received += answer??;
    }
    let refused = exchange::send(scene, exchange::get(scene, "/v1/probe?bytes=1")?).await?;
    scene.admin(&["quota", "set", scene.name(), "bytes_per_day=default"])?;
    if received > PROBE_BUDGET + PROBES * PROBE_EXCESS {
        return Ok(CaseResult::new(
            "over",
            format!("{received} of {PROBE_BUDGET} bytes"),
        ));
    }
    Ok(refused)
}

/// Lists new shards of 256 MiB with half a gigabyte of reads per day.
pub(super) async fn reads(scene: &Scene) -> Result<CaseResult> {
    scene.admin(&["quota", "set", scene.name(), "read_bytes_per_day=512MiB"])?;
    let mut last = CaseResult::new("none", "");
    for number in 0..SUBFOLDERS {
        let folder = Path::new(&scene.root()?).join(subfolder(number));
        replace_shard(&folder)?;
        let listing = exchange::listing(scene, &folder.to_string_lossy())?;
        last = exchange::send(scene, listing).await?;
        if last.code != "200" {
            break;
        }
    }
    scene.admin(&["quota", "set", scene.name(), "read_bytes_per_day=default"])?;
    Ok(last)
}

/// Versions of the model, as many as a host keeps, and uploads that are tried.
const VERSIONS: usize = 8;
const UPLOADS: usize = 64;

/// Uploads versions of a model with much metadata in turn. Each change in the log has that of all versions.
pub(super) async fn changes(scene: &Scene) -> Result<CaseResult> {
    let mut last = CaseResult::new("none", "");
    for number in 0..UPLOADS {
        let file = long_chain((number % VERSIONS) as f32)?;
        let head = head(
            scene,
            "PUT",
            "/v1/models/changed",
            &format!("Content-Length: {}\r\n", file.len()),
        );
        last = exchange::send(scene, exchange::read([head.as_bytes(), &file].concat())?).await?;
        if !matches!(&*last.code, "200" | "201") {
            break;
        }
    }
    Ok(last)
}

/// Creates a network with 200 cuts whose names have a kilobyte each, below the limit of 256 KiB.
fn long_chain(weight: f32) -> Result<Vec<u8>> {
    let mut before = "data".to_owned();
    let mut nodes = Vec::new();
    for number in 0..200 {
        let name = format!("{number:03}{}", "c".repeat(1000));
        nodes.push(node("Relu", &[&before], &[&name]));
        before = name;
    }
    nodes.push(node("Flatten", &[&before], &["flat"]));
    nodes.push(node("MatMul", &["flat", "weights"], &["scores"]));
    let graph = GraphProto {
        name: "chain".into(),
        node: nodes,
        initializer: vec![initializer("weights", &Tensor::f32([12, 1], vec![weight; 12])?)],
        input: vec![batched("data", &[3, 2, 2])],
        output: vec![batched("scores", &[1])],
        ..GraphProto::default()
    };
    Ok(model(17, graph).encode_to_vec())
}
