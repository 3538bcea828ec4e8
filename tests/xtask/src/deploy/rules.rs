//! Checks the Prometheus rules, runs their tests, and scrapes a host with TLS as the Debian package configures it.

use super::live::{Running, free_address, path, write_secrets};
use super::tools::chart;
use super::{CheckResult, Setup};
use crate::workspace::{missing, output, root, target};
use anyhow::{Context, Result, bail};
use frostline_e2e::HostProcess;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Number of times that Prometheus is asked, once per second, for the first scrape.
const TRIES: usize = 60;

pub(super) fn check(setup: &Setup) -> Result<CheckResult> {
    let programs = [
        ("promtool", "prometheus"),
        ("prometheus", "prometheus"),
        ("openssl", "openssl"),
        ("curl", "curl"),
    ];
    if let Some(why) = missing(&programs) {
        return Ok(CheckResult::Skipped(why));
    }
    let rules = chart().join("files/rules.yaml");
    let checked = output(Command::new("promtool").args(["check", "rules"]).arg(&rules))?;
    let summary = checked.lines().find(|line| line.contains("SUCCESS"));
    let summary = summary.context("promtool found no rules")?.trim().to_owned();
    let tests = chart().with_file_name("rules-test.yaml");
    output(Command::new("promtool").args(["test", "rules"]).arg(tests))?;
    let folder = target().join("deploy/rules");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    fs::copy(&rules, folder.join("rules.yaml"))?;
    scrape(setup, &folder)?;
    Ok(CheckResult::Passed(format!(
        "{summary}, rule tests passed, the packaged configuration scrapes a host with TLS"
    )))
}

/// Starts a host with TLS, and a Prometheus with the packaged configuration for the address of this host.
fn scrape(setup: &Setup, folder: &Path) -> Result<()> {
    write_secrets(folder)?;
    let certificate = folder.join("etc/tls/tls.crt");
    fs::copy(&certificate, folder.join("ca.pem"))?;
    let mut serve = Command::new(&setup.frostline);
    serve.args([
        "serve",
        "--json",
        "--listen",
        "127.0.0.1:0",
        "--metrics-listen",
        "127.0.0.1:0",
    ]);
    serve.arg("--state").arg(folder.join("state"));
    serve.arg("--tls-certificate").arg(&certificate);
    serve.arg("--tls-key").arg(folder.join("etc/tls/tls.key"));
    serve.env("ORT_DYLIB_PATH", &setup.library);
    let host = HostProcess::spawn(serve, folder.join("state/token"))?;
    let metrics = host.metrics_address().context("the host has no metrics port")?;
    let shipped = fs::read_to_string(root().join("runtime/deploy/deb/prometheus.yml"))?;
    let config = shipped.replace("\"store-1:7435\", \"store-2:7435\"", &format!("\"{metrics}\""));
    let file = folder.join("prometheus.yml");
    fs::write(
        &file,
        format!("global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n{config}"),
    )?;
    output(Command::new("promtool").args(["check", "config"]).arg(&file))?;
    let address = free_address()?;
    let prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", path(&file)?))
        .arg(format!("--storage.tsdb.path={}", path(&folder.join("tsdb"))?))
        .arg(format!("--web.listen-address={address}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(folder.join("prometheus.log"))?)
        .spawn()?;
    let _prometheus = Running(prometheus);
    for _ in 0..TRIES {
        std::thread::sleep(Duration::from_secs(1));
        let targets = format!("http://{address}/api/v1/targets");
        let asked = output(Command::new("curl").args(["--silent", "--show-error", &targets]));
        if asked.is_ok_and(|answer| answer.contains("\"health\":\"up\"")) {
            return Ok(());
        }
    }
    bail!(
        "Prometheus could not scrape {metrics} with the packaged configuration; see {}",
        folder.join("prometheus.log").display()
    )
}
