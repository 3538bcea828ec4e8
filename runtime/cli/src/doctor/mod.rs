//! `frostline doctor`: what works of what a job or a host needs, what does not, and what to do about it.

mod finding;
mod here;
mod hosts;

use crate::arguments::Doctor;
use crate::host::{Access, data_url};
use crate::output::print_each;
use anyhow::{Context, Result, bail};
use finding::{Finding, State, show};
use frostline_server::{HostSettings, ProbeResult, probe_config};
use std::path::Path;

pub(crate) async fn run(flags: Doctor, json: bool) -> Result<()> {
    let mut findings = here::engine(flags.device).await;
    match &flags.config {
        Some(file) => findings.extend(serving(file).await),
        None => findings.push(here::walls(flags.device.unwrap_or_default(), false)),
    }
    let data = flags.data.as_deref().map(data_url).transpose()?;
    if flags.host.host.is_empty() {
        findings.push(match &data {
            Some(root) => here::store(root, flags.host.follow_links.as_deref()).await,
            None => Finding::skipped("data", "no --data was given"),
        });
    } else {
        findings.extend(hosts::all(Access::from_flags(&flags.host)?, data.as_deref()).await);
    }
    if json {
        print_each(&findings)?;
    } else {
        show(&findings)?;
    }
    let failing = findings
        .iter()
        .filter(|finding| finding.state == State::Fails)
        .count();
    match failing {
        0 => Ok(()),
        1 => bail!("one thing does not work"),
        several => bail!("{several} things do not work"),
    }
}

/// What a host with this configuration needs.
async fn serving(file: &Path) -> Vec<Finding> {
    let read = || {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let settings = HostSettings::from_toml(&text);
        let config = settings.and_then(|settings| Ok((settings.require_walls, settings.check()?)));
        config.with_context(|| file.display().to_string())
    };
    let (require_walls, config) = match read() {
        Ok(config) => config,
        Err(error) => {
            let advice = "write it as runtime/server/docs/http.md has it, under Configuration";
            return vec![Finding::fails("config", format!("{error:#}"), advice)];
        }
    };
    let mut findings = vec![Finding::works(
        "config",
        format!("{} can be used", file.display()),
    )];
    findings.push(here::walls(config.device, require_walls));
    let examined = probe_config(&config).await.into_iter();
    findings.extend(examined.map(|ProbeResult { what, outcome }| match outcome {
        Ok(found) => Finding::works(what, found),
        Err(found) => Finding::fails(what, found, advice(what)),
    }));
    findings
}

fn advice(what: &str) -> &'static str {
    match what {
        "state" => {
            "it needs a store with atomic creates, and credentials to list, read, write and delete there (runtime/server/docs/state.md)"
        }
        "data" => {
            "check the root, and that the host's environment or [store.BUCKET] has credentials to list and read there (host-ops/objects/docs/stores.md)"
        }
        "tls" => "give a certificate in PEM, the host's own first, and its key",
        _ => "the file must be readable for who runs the host, and hold one line of 32 characters or more",
    }
}
