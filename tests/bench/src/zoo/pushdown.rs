//! Pushdown of all networks in the zoo through the Python package: each network is divided at several blocks,
//! the frozen layers run on a host, and both parts are compared with plain PyTorch.

use crate::package;
use crate::photos::Photos;
use crate::report::Report;
use crate::run::{binary, text};
use crate::training::torch;
use anyhow::{Context, Result, bail};
use frostline_e2e::HostProcess;
use serde::Deserialize;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const BLOCKS: usize = 3;
const QUICK: [&str; 3] = ["resnet18", "timm_vit_small", "hf_dinov2"];

/// Result for a network and block, printed by `zoo_pushdown.py`.
#[derive(Debug, Deserialize)]
struct Verdict {
    network: String,
    block: String,
    refused: Option<String>,
    differs: Option<String>,
}

/// A line printed by `zoo_pushdown.py`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    Verdict(Verdict),
    End { lane_crashes: u64 },
}

/// Sets `pushdown_equal`, `pushdown_total`, `silent_differences`, `lane_crashes`, and a result per network
/// and block.
pub(super) fn run(report: &mut Report) -> Result<()> {
    let (python, package) = (torch(&["--trainers", "--zoo"])?, package::unpacked()?);
    let photos = Photos::find(None);
    let (folder, data) = (tempfile::tempdir()?, text(photos.root())?.to_owned());
    let host = HostProcess::start(&binary()?, folder.path(), &data, &[])?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/zoo_pushdown.py");
    let mut command = Command::new(python);
    package.add_to_environment(&mut command)?;
    command
        .args([
            script,
            "--host",
            &host.url(),
            "--data",
            &data,
            "--blocks",
            &BLOCKS.to_string(),
        ])
        .arg("--token-file")
        .arg(host.token_file())
        .args(if report.quick() { &QUICK[..] } else { &[] })
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut peer = command.spawn().context("cannot start PyTorch's interpreter")?;
    let (mut total, mut equal, mut silent, mut crashes) = (0, 0, 0, None);
    for line in BufReader::new(peer.stdout.take().context("the script's output is not piped")?).lines() {
        let verdict = match serde_json::from_str(&line?).context("zoo_pushdown.py printed invalid JSON")? {
            Line::Verdict(verdict) => verdict,
            Line::End { lane_crashes } => {
                crashes = Some(lane_crashes);
                continue;
            }
        };
        let words = match (&verdict.refused, &verdict.differs) {
            (Some(why), _) => format!("refused: {why}"),
            (None, Some(what)) => format!("differs: {what}"),
            (None, None) => "equal".to_owned(),
        };
        println!("{:<28} {:<28} {words}", verdict.network, verdict.block);
        report.set(&format!("pushdown_{}_{}", verdict.network, verdict.block), words);
        total += 1;
        equal += usize::from(verdict.refused.is_none() && verdict.differs.is_none());
        silent += usize::from(verdict.differs.is_some());
    }
    let status = peer.wait()?;
    if !status.success() {
        bail!("zoo_pushdown.py failed ({status}); see the output above");
    }
    let crashes = crashes.context("zoo_pushdown.py ended without a final line")?;
    println!("\n{equal} of {total} divisions are equal, {silent} differ silently, {crashes} lanes crashed");
    report.set("pushdown_equal", equal);
    report.set("pushdown_total", total);
    report.set("silent_differences", silent);
    report.set("lane_crashes", crashes);
    Ok(())
}
