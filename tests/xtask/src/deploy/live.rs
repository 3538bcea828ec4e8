//! Starts two hosts from the rendered chart, puts them under load, and scrapes them with a Prometheus server
//! that evaluates the rendered rules. Every query of the dashboard, the rules and autoscaling must return a
//! value.

use super::store::Store;
use super::tools::{chart, documents, field, helm, manifest, render};
use super::{CheckResult, Setup, python_path, queries};
use crate::workspace::{missing, output, root};
use anyhow::{Context, Result, bail};
use frostline_e2e::HostProcess;
use serde_json::{Value, json};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const DATA: &str = "s3://frostline/photos";

pub(super) fn check(setup: &Setup) -> Result<CheckResult> {
    let programs = [
        ("prometheus", "prometheus"),
        ("promtool", "prometheus"),
        ("openssl", "openssl"),
        ("curl", "curl"),
    ];
    if let Some(why) = missing(&programs) {
        return Ok(CheckResult::Skipped(why));
    }
    let helm = match (helm(), python_path()) {
        (Ok(helm), Ok(_)) => helm,
        (Err(why), _) | (_, Err(why)) => return Ok(CheckResult::Skipped(why)),
    };
    let folder = setup.folder.join("live");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let store = Store::start(&root().join("models/zoo/demo/photos"))?;
    write_secrets(&folder)?;
    let live = Live {
        setup,
        helm,
        folder,
        store,
    };
    let hosts = [live.host(0)?, live.host(1)?];
    let (_prometheus, url) = live.prometheus(&hosts)?;
    let _jobs = live.load(&hosts)?;
    let queries = queries::all(&hosts[0].rules)?;
    let table = queries::table(&queries, &url)?;
    let file = setup.folder.join("queries.md");
    fs::write(&file, table)?;
    Ok(CheckResult::Passed(format!(
        "two hosts started with the rendered configuration; {} queries of dashboard, rules and autoscaling answered, see {}",
        queries.len(),
        file.display()
    )))
}

/// Writes the contents of the chart's Secrets: tokens and a certificate for this machine.
pub(super) fn write_secrets(folder: &Path) -> Result<()> {
    for name in ["token", "admin", "tls"] {
        fs::create_dir_all(folder.join("etc").join(name))?;
    }
    for name in ["token", "admin"] {
        let token = output(Command::new("openssl").args(["rand", "-hex", "32"]))?;
        fs::write(folder.join("etc").join(name).join("token"), token)?;
    }
    let mut certify = Command::new("openssl");
    certify.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "30",
    ]);
    certify.args(["-subj", "/CN=frostline", "-addext", "subjectAltName=IP:127.0.0.1"]);
    certify.args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"]);
    certify
        .arg(folder.join("etc/tls/tls.key"))
        .arg("-out")
        .arg(folder.join("etc/tls/tls.crt"));
    output(&mut certify).map(drop)
}

struct Live<'a> {
    setup: &'a Setup,
    helm: PathBuf,
    folder: PathBuf,
    store: Store,
}

/// Running host and rendered rules.
struct Host {
    process: HostProcess,
    metrics: SocketAddr,
    local: PathBuf,
    rules: Value,
}

impl Live<'_> {
    /// Starts a host with the configuration, arguments and environment of its pod, adapted to local folders
    /// and a loopback address.
    fn host(&self, number: usize) -> Result<Host> {
        let (tenants, admin, metrics) = (free_address()?, free_address()?, free_address()?);
        let values = json!({
            "config": {"state": "s3://frostline/state", "data": [DATA], "memory_budget": 2_u64 << 30, "drain": 1},
            "ports": {"tenants": tenants.port(), "admin": admin.port(), "metrics": metrics.port()},
            "store": {"env": serde_json::Map::from_iter(self.store.environment().map(|(name, value)| (name.to_owned(), json!(value))))},
        });
        let file = self.folder.join(format!("values-{number}.json"));
        fs::write(&file, values.to_string())?;
        let rendered = documents(&render(
            self.setup.artifact("chart")?,
            &self.helm,
            &[&chart().join("ci/usual-values.yaml"), &file],
        )?)?;
        let local = self.folder.join(format!("local-{number}"));
        let config = manifest(&rendered, "ConfigMap", "frostline")?.pointer("/data/host.toml");
        let config = config
            .and_then(Value::as_str)
            .context("the chart rendered no host.toml")?;
        let etc = self.folder.join("etc");
        let config = config
            .replace("/etc/frostline", &path(&etc)?)
            .replace("/var/lib/frostline", &path(&local)?)
            .replace("0.0.0.0:", "127.0.0.1:");
        let file = self.folder.join(format!("host-{number}.toml"));
        fs::write(&file, config)?;
        let pod = manifest(&rendered, "StatefulSet", "frostline")?;
        let mut command = self.as_container(pod, &file)?;
        command.stderr(fs::File::create(self.folder.join(format!("host-{number}.log")))?);
        Ok(Host {
            process: HostProcess::spawn(command, etc.join("token/token")).with_context(|| {
                format!(
                    "the host did not start with {}; see the log in the same folder",
                    file.display()
                )
            })?,
            metrics,
            local,
            rules: field(manifest(&rendered, "PrometheusRule", "frostline")?, "spec").clone(),
        })
    }

    /// Returns the command for the container's arguments and environment, with the configuration in `file`.
    fn as_container(&self, pod: &Value, file: &Path) -> Result<Command> {
        let container = pod
            .pointer("/spec/template/spec/containers/0")
            .context("the pod has no container")?;
        let list = |name: &str| field(container, name).as_array().cloned().unwrap_or_default();
        let mut command = Command::new(&self.setup.frostline);
        for argument in list("args") {
            match argument.as_str().context("an argument is not a string")? {
                "/etc/frostline/host.toml" => command.arg(file),
                word => command.arg(word),
            };
        }
        for variable in list("env") {
            let text = |key: &str| field(&variable, key).as_str().unwrap_or_default().to_owned();
            command.env(text("name"), text("value"));
        }
        command.env("ORT_DYLIB_PATH", &self.setup.library);
        Ok(command)
    }

    /// Starts a Prometheus server that scrapes `hosts` with the labels of a ServiceMonitor. Returns the
    /// process and the URL.
    fn prometheus(&self, hosts: &[Host]) -> Result<(Running, String)> {
        let rules = self.folder.join("rules.json");
        let first = hosts.first().context("no host")?;
        fs::write(&rules, first.rules.to_string())?;
        let target = |(number, host): (usize, &Host)| json!({"targets": [host.metrics.to_string()], "labels": {"namespace": "prod", "pod": format!("demo-frostline-{number}")}});
        let targets: Vec<Value> = hosts.iter().enumerate().map(target).collect();
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [path(&rules)?],
            "scrape_configs": [{"job_name": "frostline", "static_configs": targets}],
        });
        let file = self.folder.join("prometheus.json");
        fs::write(&file, config.to_string())?;
        let address = free_address()?;
        let log = fs::File::create(self.folder.join("prometheus.log"))?;
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                self.folder.join("tsdb").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        Ok((Running(child), format!("http://{address}")))
    }

    /// Runs one job to completion, checks that both hosts refuse uploads beyond a quota, and starts two jobs
    /// of different tenants at different splits. They run until dropped.
    fn load(&self, hosts: &[Host; 2]) -> Result<[Running; 2]> {
        let acme = self.tenant(&hosts[0], "acme", None)?;
        let globex = self.tenant(&hosts[0], "globex", Some("uploads=0"))?;
        let default = hosts[0].process.token_file();
        // Run one job to completion to check that jobs succeed.
        output(&mut self.train(hosts, default, "features", "1"))?;
        for host in hosts {
            self.check_refused_upload(host, &globex)?;
        }
        let start_job = |token: &Path, split: &str| {
            let mut command = self.train(hosts, token, split, "100000");
            let log = fs::File::create(self.folder.join(format!("job-{split}.log")))?;
            anyhow::Ok(Running(
                command
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(log)
                    .spawn()?,
            ))
        };
        Ok([start_job(default, "features")?, start_job(&acme, "input")?])
    }

    /// Adds a tenant and returns the path of the token file.
    fn tenant(&self, host: &Host, name: &str, quota: Option<&str>) -> Result<PathBuf> {
        let admin = |words: &[&str]| {
            let mut command = Command::new(&self.setup.frostline);
            command
                .args(["--json", "admin", "--socket"])
                .arg(host.local.join("admin.sock"))
                .args(words);
            output(&mut command)
        };
        let added: Value = serde_json::from_str(&admin(&[
            "tenant",
            "add",
            name,
            "--data",
            DATA,
            "--expires",
            "365d",
        ])?)?;
        let token = field(&added, "token")
            .as_str()
            .context("`tenant add` printed no token")?;
        let file = self.folder.join(name);
        fs::write(&file, token)?;
        if let Some(quota) = quota {
            admin(&["quota", "set", name, quota])?;
        }
        Ok(file)
    }

    fn train(&self, hosts: &[Host; 2], token: &Path, split: &str, epochs: &str) -> Command {
        let mut command = Command::new(&self.setup.frostline);
        command.args([
            "train", "--json", "--freeze", "features", "--split", split, "--batch", "16", "--epochs", epochs,
        ]);
        command.args(["--feature-cache", "off", "--data", DATA, "--model"]);
        command.arg(root().join("models/zoo/demo/backbone.onnx"));
        for host in hosts {
            command.args(["--host", &host.process.url()]);
        }
        command.arg("--token-file").arg(token);
        command.arg("--ca").arg(self.folder.join("etc/tls/tls.crt"));
        command.arg("--runs").arg(self.folder.join("runs"));
        command.env("ORT_DYLIB_PATH", &self.setup.library);
        command
    }

    /// Checks that an upload is refused with status 429 if the tenant's upload quota is 0.
    fn check_refused_upload(&self, host: &Host, token: &Path) -> Result<()> {
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--insecure",
            "--http1.1",
            "--request",
            "PUT",
            "--data-binary",
            "none",
        ]);
        curl.args(["--output", "/dev/null", "--write-out", "%{http_code}"]);
        // Keep the token out of the command line, which error messages print.
        let header = self.folder.join("header");
        fs::write(
            &header,
            format!("Authorization: Bearer {}", fs::read_to_string(token)?.trim()),
        )?;
        curl.args(["--header", &format!("@{}", header.display())]);
        let status = output(curl.arg(format!("{}/v1/models/none", host.process.url())))?;
        if status != "429" {
            bail!("expected status 429 for an upload beyond the quota, got {status}");
        }
        Ok(())
    }
}

/// Child process, killed on drop.
pub(super) struct Running(pub(super) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a loopback address with a free port.
pub(super) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

pub(super) fn path(path: &Path) -> Result<String> {
    path.to_str()
        .map(str::to_owned)
        .with_context(|| format!("{} is not UTF-8", path.display()))
}
