//! The host's reader against parallel reads by boto3: the same photos from the same S3 server, in turns; as objects of their own, and
//! by ranges from tar shards. boto3 gets 10 threads, as `aws s3 cp` has, and 64, as many as the reader reads at once; the better
//! counts.

use crate::report::{Report, median};
use crate::tiers::{PhotoStore, access};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use frostline_objects::{LARGEST_READ, Store};
use frostline_tensor::{Layout, ObjectInfo};
use futures::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

const BUCKET: &str = "photos";
/// Where photo_store.py puts the photos, and where their shards go.
const PHOTOS: &str = "set";
const SHARDS: &str = "shards";
/// Photos of one shard: four shards of some 7 MB.
const SHARD: usize = 64;
/// Reads at once by the host's reader; it allows no more.
const AT_ONCE: usize = 64;
const THREADS: [usize; 2] = [10, 64];

/// Seconds of each round.
struct Seconds {
    ours: Vec<f64>,
    boto3: [Vec<f64>; 2],
}

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(report))
}

async fn measure(report: &mut Report) -> Result<()> {
    let server = PhotoStore::start_here(&report.photos())?;
    let url = server.url_beside();
    let open = |prefix: &str| {
        let settings = access(&url).into_iter();
        Store::open_with(
            &format!("s3://{BUCKET}/{prefix}"),
            settings.map(|(name, value)| (name.to_owned(), value)),
        )
    };
    let (photos, shards) = (open(PHOTOS)?, open(SHARDS)?);
    let singles = listed(&photos, Layout::Objects).await?;
    pack(&photos, &singles, &shards).await?;
    let samples = listed(&shards, Layout::Shards).await?;
    ensure!(
        samples.len() == singles.len(),
        "the shards hold {} of {} photos",
        samples.len(),
        singles.len()
    );
    let rounds = if report.quick() { 5 } else { 9 };
    println!(
        "{} photos of {:.0} kB on average, {rounds} rounds; boto3 with {THREADS:?} threads, {AT_ONCE} reads at once by the host\n",
        singles.len(),
        mean(&singles) / 1e3
    );
    println!(
        "{:<10} {:>10} {:>8} {:>12} {:>12} {:>8}",
        "", "images/s", "MB/s", "boto3 10", "boto3 64", "ratio"
    );
    let mut ratios = Vec::new();
    for (name, store, objects, prefix) in [
        ("objects", &photos, &singles, PHOTOS),
        ("shards", &shards, &samples, SHARDS),
    ] {
        let mut peer = Peer::start(&url, objects, prefix)?;
        let seconds = in_turns(store, objects, &mut peer, rounds).await?;
        ratios.push(report_rates(report, name, objects, &seconds));
    }
    report.set("photos", singles.len());
    report.set("photo_bytes", mean(&singles));
    report.set("rounds", rounds);
    report.set("ratio_vs_boto3", ratios.into_iter().fold(f64::INFINITY, f64::min));
    Ok(())
}

async fn listed(store: &Store, layout: Layout) -> Result<Vec<ObjectInfo>> {
    let (mut objects, mut after) = (Vec::new(), None);
    loop {
        let page = store.list_as(layout, after.as_deref(), 1000).await?;
        objects.extend(page.objects);
        after = page.next;
        if after.is_none() {
            return Ok(objects);
        }
    }
}

/// Packs the photos into shards, as WebDataset would.
async fn pack(photos: &Store, objects: &[ObjectInfo], shards: &Store) -> Result<()> {
    for (number, part) in objects.chunks(SHARD).enumerate() {
        let mut archive = tar::Builder::new(Vec::new());
        for (index, object) in part.iter().enumerate() {
            let bytes = photos.read(&object.sample.key).await?;
            let class = object.sample.key.split('/').nth(1).unwrap_or_default();
            for (ending, content) in [("jpg", bytes.as_ref()), ("cls", class.as_bytes())] {
                let mut header = tar::Header::new_gnu();
                header.set_size(content.len() as u64);
                archive.append_data(&mut header, format!("{index:05}.{ending}"), content)?;
            }
        }
        let archive = Bytes::from(archive.into_inner()?);
        shards.put(&format!("train-{number:03}.tar"), archive).await?;
    }
    Ok(())
}

/// Everyone reads everything once to warm up, then in turns, each time another first.
async fn in_turns(store: &Store, objects: &[ObjectInfo], peer: &mut Peer, rounds: usize) -> Result<Seconds> {
    let total: u64 = objects.iter().map(|object| object.size).sum();
    let mut seconds = Seconds {
        ours: Vec::new(),
        boto3: [Vec::new(), Vec::new()],
    };
    for round in 0..=rounds {
        for turn in 0..3 {
            let (spent, bytes) = match (round + turn) % 3 {
                0 => ours(store, objects).await?,
                turn => peer.read(*THREADS.get(turn - 1).context("no such number of threads")?)?,
            };
            ensure!(bytes == total, "read {bytes} of {total} bytes");
            let list = match ((round + turn) % 3, &mut seconds.boto3) {
                (0, _) => &mut seconds.ours,
                (1, [first, _]) => first,
                (_, [_, second]) => second,
            };
            if round > 0 {
                list.push(spent);
            }
        }
    }
    Ok(seconds)
}

async fn ours(store: &Store, objects: &[ObjectInfo]) -> Result<(f64, u64)> {
    let begun = Instant::now();
    let reads = stream::iter(objects).map(|object| async move {
        let read = store.read_sample(&object.sample, LARGEST_READ).await?;
        anyhow::Ok(read.len() as u64)
    });
    let bytes = reads
        .buffer_unordered(AT_ONCE)
        .try_fold(0, |sum, size| async move { Ok(sum + size) })
        .await?;
    Ok((begun.elapsed().as_secs_f64(), bytes))
}

/// Prints and notes the medians, and gives how many times as fast as boto3 the reader is.
fn report_rates(report: &mut Report, name: &str, objects: &[ObjectInfo], seconds: &Seconds) -> f64 {
    let images = objects.len() as f64;
    let [ten, many] = &seconds.boto3;
    let rounds = seconds.ours.iter().zip(ten).zip(many);
    let ratios: Vec<f64> = rounds.map(|((ours, ten), many)| ten.min(*many) / ours).collect();
    let ratio = median(&ratios);
    let ours = images / median(&seconds.ours);
    let megabytes = ours * mean(objects) / 1e6;
    let (ten, many) = (images / median(ten), images / median(many));
    println!("{name:<10} {ours:>10.1} {megabytes:>8.1} {ten:>12.1} {many:>12.1} {ratio:>8.3}");
    for (what, value) in [
        ("images_per_second", ours),
        ("megabytes_per_second", megabytes),
        ("boto3_10_images_per_second", ten),
        ("boto3_64_images_per_second", many),
        ("ratio_vs_boto3", ratio),
    ] {
        report.set(&format!("{name}_{what}"), value);
    }
    ratio
}

fn mean(objects: &[ObjectInfo]) -> f64 {
    let total: u64 = objects.iter().map(|object| object.size).sum();
    total as f64 / objects.len() as f64
}

/// A process that reads by boto3.
struct Peer {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

#[derive(Deserialize)]
struct Answer {
    seconds: f64,
    bytes: u64,
}

impl Peer {
    fn start(url: &str, objects: &[ObjectInfo], prefix: &str) -> Result<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/parallel_reads.py");
        let mut process = Command::new("python3")
            .arg(script)
            .envs(access(url))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start Python")?;
        let requests = process.stdin.take().context("the peer has no input")?;
        let answers = process.stdout.take().context("the peer has no output")?;
        let mut peer = Self {
            process,
            requests,
            answers: BufReader::new(answers),
        };
        let reads: Vec<Value> = objects.iter().map(|object| place(object, prefix)).collect();
        writeln!(peer.requests, "{}", json!({"bucket": BUCKET, "reads": reads}))?;
        Ok(peer)
    }

    fn read(&mut self, threads: usize) -> Result<(f64, u64)> {
        writeln!(self.requests, "{threads}")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let answer: Answer =
            serde_json::from_str(&line).context("boto3 cannot read; see its output above")?;
        Ok((answer.seconds, answer.bytes))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What boto3 is to read: the object, or a sample's bytes in its shard, as its version says.
fn place(object: &ObjectInfo, prefix: &str) -> Value {
    let shard = object.sample.key.split_once("//").map(|(shard, _)| shard);
    let offset = object.sample.etag.as_deref().and_then(|etag| {
        let (offset, _) = etag.rsplit_once('@')?.1.split_once('+')?;
        offset.parse::<u64>().ok()
    });
    match (shard, offset) {
        (Some(shard), Some(offset)) => json!([format!("{prefix}/{shard}"), [offset, object.size]]),
        _ => json!([format!("{prefix}/{}", object.sample.key), null]),
    }
}
