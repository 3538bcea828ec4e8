//! A host with lanes in child processes, as under `frostline serve`, in a memory cgroup limited to the
//! budget, with published networks and any number of tenants.

pub(crate) mod lane_metrics;
pub(crate) mod load;
mod memory;
mod metrics;

pub(crate) use memory::{MemoryGroup, Watch};
pub(crate) use metrics::Metrics;

use crate::networks::{Grid, exported};
use crate::photos::Photos;
use crate::report::folder;
use crate::run::{admin, binary, text};
use anyhow::{Context, Result, bail};
use frostline_client::{Fetcher, HostClient, Hosts, Token};
use frostline_e2e::HostProcess;
use frostline_graph::Model;
use frostline_images::DecodePool;
use frostline_trainer::Guest;
use frostline_wire::{Layout, ObjectInfo, UploadRef};
use memory::children;
use serde_json::Value;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

pub(crate) const MIB: f64 = (1 << 20) as f64;

/// Settings of the host.
pub(crate) struct Setting {
    /// Bytes for both `memory_budget` and the cgroup limit.
    pub(crate) budget: u64,
    /// Number of lanes. With 0, the host starts a lane per core.
    pub(crate) lanes: usize,
}

impl Setting {
    pub(crate) fn with_budget(budget: u64) -> Self {
        Self { budget, lanes: 0 }
    }
}

/// A host with networks and tenants. Fields are dropped in this order: processes before the cgroup.
pub(crate) struct Fleet {
    host: HostProcess,
    group: MemoryGroup,
    metrics: SocketAddr,
    root: String,
    samples: Arc<[ObjectInfo]>,
    folder: TempDir,
}

/// A published network up to the freeze cut.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) cut: String,
    /// File with the layers up to the cut.
    pub(crate) file: PathBuf,
    pub(crate) model: UploadRef,
    /// Shape of a sample at the cut.
    pub(crate) shape: Vec<usize>,
}

/// A tenant and client.
pub(crate) struct Tenant {
    pub(crate) name: String,
    pub(crate) hosts: Hosts,
    pub(crate) guest: UploadRef,
}

impl Fleet {
    pub(crate) async fn start(setting: &Setting, photos: &Photos) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let metrics = free_address()?;
        let file = folder.path().join("host.toml");
        let Setting { budget, lanes } = setting;
        let config = format!(
            "memory_budget = {budget}\nmetrics_listen = \"{metrics}\"\n[engine]\nlanes = {lanes}\ndevice = \"cpu\"\n"
        );
        std::fs::write(&file, config)?;
        let root = std::path::absolute(photos.part("train"))?;
        let root = text(&root)?.to_owned();
        let group = MemoryGroup::open(setting.budget);
        if let Some(reason) = group.missing() {
            println!("memory cgroup: skipped ({reason}); summing the memory of processes instead");
        }
        let command = group.command(&binary()?);
        let host = HostProcess::start_as(command, folder.path(), &root, &["--config", text(&file)?])?;
        let token = Token::read(host.token_file())?;
        let client = HostClient::new(&host.url(), Some(token))?;
        let samples = client.objects(&root, Layout::Auto).await?;
        if samples.is_empty() {
            bail!("no photos in {root}");
        }
        Ok(Self {
            host,
            group,
            metrics,
            root,
            samples: samples.into(),
            folder,
        })
    }

    /// Returns the first object that `frostline admin <arguments>` prints.
    pub(crate) fn admin(&self, arguments: &[&str]) -> Result<Value> {
        let socket = self.folder.path().join("state/admin.sock");
        let printed = admin(&socket, arguments)?.into_iter().next();
        printed.context("frostline admin printed nothing")
    }

    /// Publishes a network in grid.toml, up to the freeze cut, to all tenants.
    pub(crate) fn offer(&self, name: &str) -> Result<Subject> {
        let cut = Grid::read()?.network(name)?.freeze.clone();
        let (file, shape) = prefix(name, &cut)?;
        let word = name.replace('_', "-");
        let answer = self.admin(&["model", "push", &word, text(&file)?])?;
        let version = answer.get("versions").and_then(|versions| versions.get(0));
        let sha256 = version.and_then(|version| version.get("sha256")?.as_str());
        Ok(Subject {
            name: name.to_owned(),
            cut,
            file,
            model: UploadRef {
                name: word,
                sha256: sha256.context("no SHA-256 of the published file")?.to_owned(),
            },
            shape,
        })
    }

    /// Adds a tenant of this weight with the stock guest.
    pub(crate) async fn tenant(&self, name: &str, weight: u32) -> Result<Tenant> {
        let given = self.admin(&["tenant", "add", name, "--data", &self.root])?;
        let token = given.get("token").and_then(Value::as_str);
        let file = self.folder.path().join(format!("{name}.token"));
        std::fs::write(&file, token.context("`tenant add` printed no token")?)?;
        if weight != 1 {
            self.admin(&["quota", "set", name, &format!("weight={weight}")])?;
        }
        let client = HostClient::new(&self.host.url(), Some(Token::read(&file)?))?;
        let guest = client.push_guest("prefix", Guest::stock().bytes).await?;
        Ok(Tenant {
            name: name.to_owned(),
            hosts: Hosts::from(client),
            guest: UploadRef {
                name: "prefix".to_owned(),
                sha256: guest.sha256,
            },
        })
    }

    /// Adds `count` tenants of weight 1, called `<word>-<number>`.
    pub(crate) async fn tenants(&self, word: &str, count: usize) -> Result<Vec<Tenant>> {
        let mut tenants = Vec::with_capacity(count);
        for number in 0..count {
            tenants.push(self.tenant(&format!("{word}-{number}"), 1).await?);
        }
        Ok(tenants)
    }

    pub(crate) fn metrics(&self) -> Result<Metrics> {
        Metrics::read(self.metrics)
    }

    /// Samples the memory of host and lanes.
    pub(crate) fn watch(&self) -> Watch {
        self.group.watch(self.host.id())
    }

    /// Number of processes that the kernel killed for memory, or `None` without a cgroup.
    pub(crate) fn oom_kills(&self) -> Option<u64> {
        self.group.oom_kills()
    }

    /// Process ids of the lanes.
    pub(crate) fn lanes(&self) -> Vec<u32> {
        let is_lane = |process: &u32| {
            let text = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            text.split(|byte| *byte == 0).any(|word| word == b"lanes")
        };
        children(self.host.id()).into_iter().filter(is_lane).collect()
    }
}

impl Tenant {
    /// Creates a fetcher for `open` concurrent requests.
    pub(crate) fn fetcher(open: usize) -> Result<Fetcher> {
        Ok(Fetcher::new(open, DecodePool::start(1)?))
    }
}

/// Returns a free loopback address.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Returns the file with a network's layers up to the cut, which is reused between runs, and the shape of a
/// sample at the cut.
fn prefix(name: &str, cut: &str) -> Result<(PathBuf, Vec<usize>)> {
    let prefixes = folder()?.join("prefixes");
    std::fs::create_dir_all(&prefixes)?;
    let file = prefixes.join(format!("{name}.onnx"));
    if !file.is_file() {
        let part = Model::read(exported(name)?)?.slice(None, Some(cut))?;
        let unfinished = file.with_extension("unfinished");
        std::fs::write(&unfinished, part.to_bytes()?)?;
        std::fs::rename(&unfinished, &file)?;
    }
    let network = Model::read(&file)?.network()?;
    let shape = network.cut(cut)?.shape.dims().to_vec();
    Ok((file, shape))
}
