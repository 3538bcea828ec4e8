//! Pushdown of all networks in the zoo through the Python package: each network is divided at several blocks
//! with a head of zeros and with the original one, the frozen layers run on a host, and both parts are compared
//! with plain PyTorch.

use crate::package;
use crate::photos::Photos;
use crate::report::Report;
use crate::run::{binary, text};
use crate::training::torch;
use anyhow::{Context, Result, bail};
use frostline_e2e::HostProcess;
use serde::Deserialize;
use std::collections::HashSet;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

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

/// Numbers of results.
#[derive(Debug, Default)]
struct Counts {
    networks: HashSet<String>,
    equal: usize,
    refused: usize,
    differ: usize,
}

impl Counts {
    /// Adds a result and returns its description.
    fn add(&mut self, verdict: Verdict) -> String {
        self.networks.insert(verdict.network);
        let (number, words) = match (verdict.refused, verdict.differs) {
            (Some(why), _) => (&mut self.refused, format!("refused: {why}")),
            (None, Some(what)) => (&mut self.differ, format!("differs: {what}")),
            (None, None) => (&mut self.equal, "equal".to_owned()),
        };
        *number += 1;
        words
    }

    fn total(&self) -> usize {
        self.equal + self.refused + self.differ
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} networks, {} blocks: {} equal, {} refused, {} differ",
            self.networks.len(),
            self.total(),
            self.equal,
            self.refused,
            self.differ
        )
    }
}

/// Concurrent scripts, one per core, that share the networks. An export uses a single core most of the time.
struct Scripts {
    children: Vec<Child>,
    lines: Receiver<Result<Line>>,
}

impl Scripts {
    /// Starts the scripts. `command` creates the command without the share of networks.
    fn start(command: impl Fn() -> Result<Command>) -> Result<Self> {
        let count = std::thread::available_parallelism()?.get();
        let (sender, lines) = channel();
        let mut scripts = Self {
            children: Vec::new(),
            lines,
        };
        for number in 0..count {
            let mut child = command()?
                .args(["--share", &number.to_string(), &count.to_string()])
                .env("OMP_NUM_THREADS", "1")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .context("cannot start PyTorch's interpreter")?;
            let output = child.stdout.take().context("the script's output is not piped")?;
            scripts.children.push(child);
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines() {
                    let parsed = line.map_err(anyhow::Error::from).and_then(|line| {
                        serde_json::from_str(&line).context("zoo_pushdown.py printed invalid JSON")
                    });
                    if sender.send(parsed).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(scripts)
    }

    /// Returns the next line of any script, or `None` if all have closed their output.
    fn next_line(&mut self) -> Result<Option<Line>> {
        self.lines.recv().ok().transpose()
    }

    /// Waits until all scripts have ended.
    fn finish(mut self) -> Result<()> {
        for child in &mut self.children {
            let status = child.wait()?;
            if !status.success() {
                bail!("zoo_pushdown.py failed ({status}); see the output above");
            }
        }
        Ok(())
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        for child in &mut self.children {
            // A script that has ended cannot be killed.
            let _ = child.kill();
        }
    }
}

/// Sets `pushdown_equal`, `pushdown_total`, `silent_differences`, `lane_crashes`, and a result per network
/// and block.
pub(super) fn run(report: &mut Report) -> Result<()> {
    let (python, package) = (torch(&["--trainers", "--zoo"])?, package::unpacked()?);
    let photos = Photos::find(None);
    let (folder, data) = (tempfile::tempdir()?, text(photos.root())?.to_owned());
    let host = HostProcess::start(&binary()?, folder.path(), &data, &[])?;
    let mut scripts = Scripts::start(|| {
        let mut command = Command::new(&python);
        package.add_to_environment(&mut command)?;
        command
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/peers/zoo_pushdown.py"))
            .args(["--host", &host.url(), "--data", &data, "--token-file"])
            .arg(host.token_file())
            .args(["--blocks", &BLOCKS.to_string()])
            .args(if report.quick() { &QUICK[..] } else { &[] });
        Ok(command)
    })?;
    let (mut counts, mut crashes) = (Counts::default(), None);
    while let Some(line) = scripts.next_line()? {
        let verdict = match line {
            Line::Verdict(verdict) => verdict,
            Line::End { lane_crashes } => {
                crashes = crashes.max(Some(lane_crashes));
                continue;
            }
        };
        let key = format!("pushdown_{}_{}", verdict.network, verdict.block);
        print!("{:<28} {:<28} ", verdict.network, verdict.block);
        let words = counts.add(verdict);
        println!("{words}");
        report.set(&key, words);
    }
    scripts.finish()?;
    let crashes = crashes.context("zoo_pushdown.py ended without a final line")?;
    println!("\n{counts}; {crashes} lanes crashed");
    report.set("pushdown_equal", counts.equal);
    report.set("pushdown_total", counts.total());
    report.set("silent_differences", counts.differ);
    report.set("lane_crashes", crashes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted_by_kind() {
        let mut counts = Counts::default();
        for (network, result) in [
            ("resnet18", r#""equal": true"#),
            ("resnet18", r#""refused": "why""#),
            ("resnet18", r#""differs": "what""#),
            ("resnet50", r#""equal": true"#),
        ] {
            let line = format!(r#"{{"network": "{network}", "block": "layer4.0", {result}}}"#);
            counts.add(serde_json::from_str(&line).unwrap());
        }
        assert_eq!(
            counts.to_string(),
            "2 networks, 4 blocks: 2 equal, 1 refused, 1 differ"
        );
    }
}
