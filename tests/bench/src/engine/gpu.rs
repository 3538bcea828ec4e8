//! The same path on a GPU, if there is one.

use super::path::measure;
use crate::report::Report;
use anyhow::Result;
use frostline_engine::{Device, Session, SessionOptions};
use frostline_graph::Model;
use serde_json::Value;

const NETWORK: &str = "resnet50";
const GPU: Device = Device::Cuda(0);
const ROUNDS: usize = 5;

pub(super) async fn run(report: &mut Report) -> Result<()> {
    let (status, ratio) = match missing()? {
        Some(reason) => (format!("not run: {reason}"), Value::Null),
        None => {
            let [ratio, _] = measure(report, NETWORK, GPU, ROUNDS).await?;
            (
                format!("ran: {}", frostline_profile::machine(Some(0))),
                ratio.into(),
            )
        }
    };
    println!("GPU: {status}\n");
    report.set("gpu", status);
    report.set("gpu_ratio_vs_bare_loop", ratio);
    Ok(())
}

/// Why no session can be opened on a GPU.
fn missing() -> Result<Option<String>> {
    let options = SessionOptions {
        device: GPU,
        ..SessionOptions::default()
    };
    let network = crate::networks::exported("alexnet")?;
    let model = Model::read(network)?
        .slice(None, Some("features.2"))?
        .to_bytes()?;
    Ok(Session::open(&model, &options)
        .err()
        .map(|error| error.to_string()))
}
