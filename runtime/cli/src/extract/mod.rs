//! `frostline extract`.

mod file;
mod rows;

use crate::arguments::Extract as Flags;
use crate::host::{Access, Connection, data_url};
use crate::output::{bytes, print_json};
use crate::reporter::warn;
use crate::train::{model_name, read_model_and_pixels};
use anyhow::{Result, bail};
use bytes::Bytes;
use file::{Format, RowFile};
use frostline_client::{
    Ahead, Fetcher, Hosts, Inquiry, Listing, Pass, Passed, SampleFiles, UploadKind, content_name,
};
use frostline_images::DecodePool;
use frostline_job::Event;
use frostline_trainer::{Guest, OnBadSample, input_pixels, last_cut_before_head};
use frostline_wire::{ObjectInfo, Pin, Split};
use rows::{Place, Rows};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// Requests open at once at each host, as of a job.
const OPEN_REQUESTS: usize = 8;
/// Batches under way while one is written, and what they may hold: a file is written faster than rows come.
const AHEAD: Ahead = Ahead {
    batches: 3,
    bytes: 1 << 30,
};

/// What an extraction came to.
#[derive(Serialize)]
struct Done {
    event: &'static str,
    out: String,
    cut: String,
    /// Of a row.
    shape: Vec<usize>,
    rows: u64,
    left_out: u64,
    bytes_received: u64,
    seconds: f64,
}

pub(crate) async fn run(flags: Flags, json: bool, stop: &CancellationToken) -> Result<()> {
    let asked = Asked::read(&flags, json)?;
    let connection = Connection::open(Access::from_flags(&flags.host)?, &asked.root, &flags.device).await?;
    let extracting = extract(&flags, asked, connection.hosts(), json);
    let done = tokio::select! {
        done = extracting => done,
        () = stop.cancelled() => Err(anyhow::anyhow!("interrupted; nothing was written")),
    };
    connection.close().await;
    let done = done?;
    if json {
        return Ok(print_json(&done)?);
    }
    let shape: Vec<String> = done.shape.iter().map(usize::to_string).collect();
    say!(
        "{} rows of {} at {} written to {}; {} received in {:.1} s",
        done.rows,
        shape.join("x"),
        done.cut,
        done.out,
        bytes(done.bytes_received),
        done.seconds
    );
    Ok(())
}

/// What is sent to hosts, and the cut.
struct Asked {
    /// The data root.
    root: String,
    format: Format,
    name: String,
    layers: Bytes,
    cut: String,
    guest: Guest,
}

impl Asked {
    fn read(flags: &Flags, json: bool) -> Result<Self> {
        let format = Format::from_extension(&flags.out)?;
        file::check(&flags.out)?;
        let pixels = flags.pixels.settings()?;
        let model = read_model_and_pixels(&flags.inputs.model, &pixels)?;
        let cut = match &flags.cut {
            Some(cut) => model.network()?.named(cut)?.name.clone(),
            None => last_cut_before_head(&model)?,
        };
        let mut guest = Guest::read(flags.guest.as_deref(), flags.parameters.as_deref())?;
        pixels.check_beside(flags.parameters.as_deref())?;
        // A guest of one's own without parameters is told nothing, unless flags say something.
        if guest.is_stock() || !pixels.is_empty() {
            let (recipe, source) = input_pixels(&model, &pixels)?;
            guest.parameters = Some(serde_json::to_string(&recipe)?);
            warn(&Event::Pixels { recipe, source }, json);
        }
        Ok(Self {
            root: data_url(&flags.inputs.data)?,
            format,
            name: model_name(&flags.inputs.model),
            layers: model.slice(None, Some(&cut))?.to_bytes()?.into(),
            cut,
            guest,
        })
    }

    /// Sends guest and layers, and says what is asked for.
    async fn send(&self, hosts: &Hosts, flags: &Flags) -> Result<Inquiry> {
        let (guest, layers) = (&self.guest, self.layers.clone());
        Ok(Inquiry {
            root: self.root.clone(),
            guest: Some(send(hosts, UploadKind::Guest, &guest.name, guest.bytes.clone()).await?),
            model: Some(send(hosts, UploadKind::Model, &self.name, layers).await?),
            parameters: guest.parameters.clone().unwrap_or_default(),
            encoding: flags.encoding,
            terms: (&flags.terms.settings()?).into(),
            request_samples: flags.request_samples,
        })
    }
}

async fn send(hosts: &Hosts, kind: UploadKind, name: &str, bytes: Bytes) -> Result<Pin> {
    let name = content_name(name, &hex::encode(Sha256::digest(&bytes)));
    let sha256 = hosts.push(kind, &name, bytes).await?.sha256;
    Ok(Pin { name, sha256 })
}

async fn extract(flags: &Flags, asked: Asked, hosts: Hosts, json: bool) -> Result<Done> {
    let since = Instant::now();
    let listing = hosts.listing(&asked.root, flags.inputs.layout).await?;
    // Other guests than the stock one may read any file.
    let files = match flags.guest {
        Some(_) => SampleFiles::All,
        None => SampleFiles::Images,
    };
    let (samples, places) = samples(&listing, files);
    if samples.is_empty() {
        bail!("there is no image under {}", asked.root);
    }
    let left_out = listing.left_out(files);
    if left_out.objects > 0 {
        warn(&Event::LeftOut(left_out), json);
    }
    let inquiry = asked.send(&hosts, flags).await?;
    let source = inquiry.source(&hosts, Split::from(asked.cut.as_str())).await?;
    let shape = source.shape.clone();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let fetcher = Fetcher::new(OPEN_REQUESTS, DecodePool::start(threads)?);
    let batches = samples.chunks(flags.batch).map(Arc::from).collect();
    let mut pass = Pass::new(fetcher, hosts.clone(), source.into(), batches, AHEAD);
    let rows = Rows::new(&shape)?;
    let mut file = RowFile::create(&flags.out, asked.format, rows.schema())?;
    let (mut written, mut left_out) = (0, 0);
    while let Some(passed) = pass.next().await {
        let Passed { samples, fetched } = passed?;
        for (index, why) in &fetched.bad {
            let key = samples
                .get(*index)
                .map_or("", |sample| sample.sample.key.as_str());
            if matches!(flags.on_bad_sample, OnBadSample::Fail) {
                bail!("the image '{key}' cannot be used: {why}; leave it out, or with --on-bad-sample skip");
            }
            leave_out(key, &why.to_string(), json);
        }
        written += fetched.kept.len() as u64;
        left_out += fetched.bad.len() as u64;
        let batch = rows.batch(fetched, &samples, &places)?;
        tokio::task::block_in_place(|| file.write(&batch))?;
    }
    tokio::task::block_in_place(|| file.finish())?;
    Ok(Done {
        event: "done",
        out: flags.out.display().to_string(),
        cut: asked.cut,
        shape,
        rows: written,
        left_out,
        bytes_received: hosts.bytes_received(),
        seconds: since.elapsed().as_secs_f64(),
    })
}

/// All samples, and what the place of each says by its key.
fn samples(listing: &Listing, files: SampleFiles) -> (Vec<ObjectInfo>, HashMap<String, Place>) {
    let placed = listing.placed(files);
    let places = placed.iter().map(|placed| {
        let place = Place {
            part: placed.part,
            label: placed.class.map(str::to_owned),
        };
        (placed.object.key.to_owned(), place)
    });
    (
        placed.iter().map(|placed| placed.object.into()).collect(),
        places.collect(),
    )
}

/// Names an image that is left out, on standard error.
fn leave_out(key: &str, why: &str, json: bool) {
    if json {
        tell!(
            "{}",
            serde_json::json!({"event": "bad_sample", "key": key, "reason": why})
        );
    } else {
        tell!("skipped: {key}: {why}");
    }
}
