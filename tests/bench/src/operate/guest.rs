//! Bytes that one tenant makes a host write to its log by a guest that logs without end.

use super::logging::{CLIENTS, TIME, logging_host};
use crate::photos::Pretrained;
use crate::report::Report;
use crate::run::{source, text};
use anyhow::{Context, Result, ensure};
use frostline_client::{HostClient, Token};
use frostline_graph::Model;
use frostline_wire::{Encoding, ExtractionRequest, Layout, Pin, RequestedSample, RowFormat, Split, Terms};
use futures::future::join_all;
use std::fs;
use std::time::Instant;

/// Samples of a request.
const SAMPLES: usize = 8;

/// Extractions and bytes of log a second; `None` where the guest is not built.
pub(super) fn flood(report: &Report) -> Result<Option<(f64, f64)>> {
    let Ok(guest) = fs::read(source("target/guests/flood-log.wasm")) else {
        println!("a guest that logs: not measured, it is not built (cargo xtask guests)");
        return Ok(None);
    };
    let network = Pretrained::find();
    let cut = Model::read(&network.file)?
        .network()?
        .cut(network.freeze)?
        .clone();
    let format = RowFormat::F32(cut.shape.dims().to_vec());
    let folder = tempfile::tempdir()?;
    let (host, log) = logging_host(report, folder.path())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = HostClient::new(&host.url(), Some(Token::read(host.token_file())?))?;
        let pin = |name: &str, sha256| Pin {
            name: name.to_owned(),
            sha256,
        };
        let guest = client.push_guest("noisy", guest.into()).await?;
        let model = client
            .push_model("network", fs::read(&network.file)?.into())
            .await?;
        let photos = report.photos().part("train");
        let root = text(&photos)?.to_owned();
        let listed = client.objects(&root, Layout::Auto).await?;
        let samples = (0..).zip(listed).take(SAMPLES);
        let request = ExtractionRequest {
            root,
            split: Split::Cut(network.freeze.to_owned()),
            guest: Some(pin("noisy", guest.sha256)),
            model: Some(pin("network", model.sha256)),
            parameters: String::new(),
            encoding: Encoding::F32,
            terms: Terms::default(),
            view: None,
            samples: samples
                .map(|(position, object)| RequestedSample {
                    position,
                    sample: object.sample,
                })
                .collect(),
        };
        let limit = usize::try_from(format.message_bytes(SAMPLES as u64, 0))?;
        let (before, since) = (fs::metadata(&log)?.len(), Instant::now());
        let ask = async || {
            let mut asked = 0_usize;
            while since.elapsed() < TIME {
                // It ends by the tenant's quota of lines, or as its rows are none of the cut's.
                if let Ok(mut answer) = client.extract(&request, format.clone(), limit).await {
                    while let Ok(Some(_)) = answer.next().await {}
                }
                asked += 1;
            }
            asked
        };
        let asked: usize = join_all((0..CLIENTS).map(|_| ask())).await.iter().sum();
        let seconds = since.elapsed().as_secs_f64();
        let lines = client.guest_log("noisy", 0).await?.lines.len();
        ensure!(lines > 0, "the guest logged nothing");
        let bytes = fs::metadata(&log).context("the host's log")?.len() - before;
        Ok(Some((asked as f64 / seconds, bytes as f64 / seconds)))
    })
}
