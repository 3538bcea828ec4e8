//! Large objects, and images with misleading headers.

use super::{LARGE, REPETITIONS, SMALL, repeated, wait_until_released};
use crate::case::CaseResult;
use crate::exchange;
use crate::neighbor::upload_ref;
use crate::scene::{Scene, backbone};
use anyhow::Result;
use frostline_graph::Model;
use frostline_trainer::Guest;
use frostline_wire::{Encoding, ExtractionRequest, Layout, RequestedSample, RowFormat, Split, Terms, Values};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Key of the image with [`frostline_hostile::hidden_frame`].
const HIDDEN: &str = "hidden.jpg";

/// Duration of a connection without reading.
const STAYS: Duration = Duration::from_secs(5);

pub(super) async fn hidden_frames(scene: &Scene) -> Result<CaseResult> {
    activations(scene, repeated(HIDDEN, 16)?).await
}

pub(super) async fn undecoded(scene: &Scene) -> Result<CaseResult> {
    let [_, named_image] = LARGE;
    activations(scene, repeated(named_image, REPETITIONS)?).await
}

/// Requests activations of `samples` and counts rows with an error.
async fn activations(scene: &Scene, samples: Vec<RequestedSample>) -> Result<CaseResult> {
    let client = scene.client()?;
    let model = backbone()?;
    let cut = Model::from_bytes(model.clone())?
        .network()?
        .cut("features")?
        .shape
        .dims()
        .to_vec();
    let guest = client.push_guest("prefix", Guest::stock().bytes).await?;
    let model = client.push_model("backbone", model).await?;
    let request = ExtractionRequest {
        root: scene.root()?,
        split: Split::Cut("features".to_owned()),
        guest: Some(upload_ref("prefix", &guest.sha256)),
        model: Some(upload_ref("backbone", &model.sha256)),
        parameters: String::new(),
        encoding: Encoding::F32,
        terms: Terms::default(),
        view: None,
        samples,
        digests: false,
    };
    let mut answer = match client
        .extract(&request, RowFormat::Tensor(Values::F32, cut), 64 << 20)
        .await
    {
        Ok(answer) => answer,
        Err(error) => return Ok(CaseResult::refused(&error)),
    };
    let mut errors = 0;
    while let Some(batches) = answer.next().await? {
        for row in batches.iter().flat_map(|batch| batch.rows()) {
            errors += usize::from(row?.outcome.is_err());
        }
    }
    Ok(CaseResult::new("rows", format!("{errors} errors")))
}

/// Number of subfolders with a shard, as many as a tenant may list and queue at once.
pub(super) const SUBFOLDERS: usize = 24;

/// Size of a shard's only photo in bytes. The file is sparse.
const SHARD: u64 = 256 << 20;

pub(super) fn subfolder(number: usize) -> String {
    format!("shards-{number:02}")
}

/// Writes archives with one large photo into separate folders.
pub(super) fn write_shards(root: &Path) -> Result<()> {
    for number in 0..SUBFOLDERS {
        let folder = root.join(subfolder(number));
        std::fs::create_dir(&folder)?;
        replace_shard(&folder)?;
    }
    Ok(())
}

/// Writes the archive in a folder, as a new version.
pub(super) fn replace_shard(folder: &Path) -> Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_path("photo.jpg")?;
    header.set_size(SHARD);
    header.set_cksum();
    let mut file = File::create(folder.join("a.tar"))?;
    file.write_all(header.as_bytes())?;
    // Room for the photo and the two empty blocks that end an archive.
    file.set_len(512 + SHARD + 1024)?;
    Ok(())
}

/// Lists all subfolders concurrently as separate data roots.
pub(super) async fn subfolders(scene: &Scene) -> Result<CaseResult> {
    let mut listings = JoinSet::new();
    for number in 0..SUBFOLDERS {
        let (client, root) = (
            scene.client()?,
            format!("{}/{}", scene.root()?, subfolder(number)),
        );
        listings.spawn(async move { client.objects(&root, Layout::Shards).await });
    }
    let mut samples = 0;
    while let Some(listed) = listings.join_next().await {
        match listed? {
            Ok(listed) => samples += listed.len(),
            Err(error) => return Ok(CaseResult::refused(&error)),
        }
    }
    Ok(CaseResult::new("listed", format!("{samples} samples")))
}

/// Concurrent extractions, which together read more objects than a root allows at a time.
const EXTRACTIONS: usize = 8;

/// Reads of the neighbor. Hosts that let them wait for the memory of another tenant need over ten seconds each.
const READS: usize = 20;

/// Time for the neighbor's reads.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// Requests large objects of the shared root without reading the answers, while the neighbor reads a small one.
pub(super) async fn shared_root(scene: &Scene) -> Result<CaseResult> {
    let root = scene.shared_root()?;
    let mut unread = Vec::new();
    for _ in 0..EXTRACTIONS {
        unread.push(ask_for_large(scene, &root).await?);
    }
    tokio::time::sleep(STAYS).await;
    let neighbor = scene.neighbor();
    let small: exchange::BuildRequest = |scene| {
        let sample = format!(r#"[{{"position":0,"key":"{SMALL}"}}]"#);
        exchange::extraction_from(scene, &scene.shared_root()?, &sample)
    };
    let reads = async {
        let mut seen = exchange::run(&neighbor, small).await?;
        for _ in 1..READS {
            seen = exchange::run(&neighbor, small).await?;
        }
        Ok(seen)
    };
    let late = |_| Ok(CaseResult::new("late", "the neighbor's reads waited"));
    let seen = tokio::time::timeout(READ_TIMEOUT, reads)
        .await
        .unwrap_or_else(late);
    drop(unread);
    wait_until_released(scene).await?;
    seen
}

/// Requests one large object repeatedly and returns the connection.
async fn ask_for_large(scene: &Scene, root: &str) -> Result<TcpStream> {
    let [object, _] = LARGE;
    let samples: Vec<String> = (0..REPETITIONS)
        .map(|position| format!(r#"{{"position":{position},"key":"{object}"}}"#))
        .collect();
    let asked = exchange::extraction_from(scene, root, &format!("[{}]", samples.join(",")))?;
    let mut stream = TcpStream::connect(scene.address()?).await?;
    stream.write_all(&asked.bytes).await?;
    Ok(stream)
}

/// Requests one large object repeatedly and disconnects without reading.
pub(super) async fn unread(scene: &Scene) -> Result<CaseResult> {
    let stream = ask_for_large(scene, &scene.root()?).await?;
    tokio::time::sleep(STAYS).await;
    drop(stream);
    wait_until_released(scene).await?;
    Ok(CaseResult::new("left", ""))
}
