//! `frostline doctor`, which checks the requirements of a job or a host and suggests fixes.

mod finding;
mod hosts;
mod machine;

use crate::arguments::DoctorFlags;
use crate::host::{HostAccess, data_url};
use crate::output::print_each;
use anyhow::{Context, Result, bail};
use finding::{CheckState, Finding, show};
use frostline_server::{HostConfig, HostSettings, ProbeResult, probe_config};
use frostline_tensor::one_line;
use std::path::Path;

pub(crate) async fn run(flags: DoctorFlags, json: bool) -> Result<()> {
    let mut findings = machine::engine(flags.device).await;
    match &flags.config {
        Some(file) => findings.extend(serving(file).await),
        None => findings.push(machine::walls(flags.device.unwrap_or_default(), false)),
    }
    let data = flags.data.as_deref().map(data_url).transpose()?;
    if flags.host.host.is_empty() {
        findings.push(match &data {
            Some(root) => machine::store(root, flags.host.follow_links.as_deref()).await,
            None => Finding::skipped("data", "--data is not set"),
        });
    } else {
        findings.extend(hosts::all(HostAccess::from_flags(&flags.host)?, data.as_deref()).await);
    }
    if json {
        print_each(&findings)?;
    } else {
        show(&findings)?;
    }
    let failing = findings
        .iter()
        .filter(|finding| finding.state == CheckState::Fails)
        .count();
    match failing {
        0 => Ok(()),
        1 => bail!("1 check failed"),
        several => bail!("{several} checks failed"),
    }
}

/// Checks the requirements of a host with this configuration.
async fn serving(file: &Path) -> Vec<Finding> {
    let (require_walls, config) = match read_config(file) {
        Ok(config) => config,
        Err(error) => {
            let advice = "the page settings.md lists all keys";
            return vec![Finding::fails("config", one_line(error.as_ref()), advice)];
        }
    };
    let mut findings = vec![Finding::works("config", format!("{} is valid", file.display()))];
    findings.push(machine::walls(config.device, require_walls));
    let examined = probe_config(&config).await.into_iter();
    findings.extend(examined.map(|ProbeResult { what, outcome }| match outcome {
        Ok(found) => Finding::works(what, found),
        Err(found) => Finding::fails(what, found, advice(what)),
    }));
    findings
}

/// Returns `require_walls` and the checked configuration.
fn read_config(file: &Path) -> Result<(bool, HostConfig)> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let settings = HostSettings::from_toml(&text);
    let config = settings.and_then(|settings| Ok((settings.require_walls, settings.check()?)));
    config.with_context(|| file.display().to_string())
}

fn advice(what: &str) -> &'static str {
    match what {
        "local" => "use a directory that the host's user can write to",
        "state" => {
            "use a store with atomic creates, and credentials to list, read, write and delete objects (see the page state.md)"
        }
        "data" => {
            "check the root, and the credentials to list and read objects in the host's environment or in [store.BUCKET] (see the page stores.md)"
        }
        "tls" => {
            "use PEM files that contain the certificate chain, starting with the host's certificate, and the private key"
        }
        _ => {
            "the file must be readable by the host's user, and contain a single line of 32 or more characters"
        }
    }
}
