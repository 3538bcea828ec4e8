//! Hosts and tenants of a scene. All data of tenants is marked.

use super::text;
use crate::canary::{Canaries, Secret, Viewer, marked_jpeg, text_of};
use crate::tap::{Tap, Target};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use frostline_e2e::{HostProcess, finish, repository};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of reads from ports for operators.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Data root that is granted to all tenants.
pub(super) const SHARED: &str = "data/shared";

/// Name of the well-behaved tenant.
pub(super) const NEIGHBOR: &str = "neighbor";

/// Photos per class that only the neighbor has, so that only the neighbor can know their activations.
const NEIGHBOR_PHOTOS: usize = 8;

/// Photos per class of each hostile tenant.
const HOSTILE_PHOTOS: usize = 8;

pub(super) struct World {
    pub(super) binary: PathBuf,
    pub(super) folder: tempfile::TempDir,
    pub(super) hosts: Vec<Host>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) canaries: Arc<Canaries>,
}

pub(super) struct Host {
    pub(super) process: HostProcess,
    pub(super) target: Target,
    /// Path of the admin socket.
    pub(super) socket: PathBuf,
}

pub(super) struct Tenant {
    pub(super) name: String,
    pub(super) token: String,
    /// Granted data root.
    pub(super) root: PathBuf,
    /// Keys of the tenant's photos.
    pub(super) photos: Vec<String>,
    /// Connections to the hosts, in the order of the hosts.
    pub(super) taps: Vec<Tap>,
}

impl World {
    pub(super) fn new(binary: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::create_dir_all(folder.path().join("data"))?;
        fs::write(folder.path().join("data/secret"), "nobody may read this")?;
        crate::memory::write_shared(&folder.path().join(SHARED))?;
        Ok(Self {
            binary: binary.to_owned(),
            folder,
            hosts: Vec::new(),
            tenants: Vec::new(),
            canaries: Arc::default(),
        })
    }

    /// Starts a host with `command`. Local files are stored in the state's subfolder `local`.
    pub(super) fn host(&self, mut command: Command, local: &str, arguments: &[&str]) -> Result<Host> {
        let folder = self.folder.path();
        let log = File::options()
            .create(true)
            .append(true)
            .open(folder.join("log"))?;
        command.stderr(log);
        let place = folder.join("state").join(local);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&place)?;
        let local = ["--local", text(&place)?, "--metrics-listen", "http://127.0.0.1:0"];
        let arguments = [&local, arguments].concat();
        let process = HostProcess::start_as(command, folder, text(&folder.join("data"))?, &arguments)?;
        let target = Target {
            address: process.address(),
            tls: None,
        };
        Ok(Host {
            process,
            target,
            socket: place.join("admin.sock"),
        })
    }

    /// Adds a tenant with separate, marked data.
    pub(super) async fn add(&self, name: String) -> Result<Tenant> {
        let root = self.folder.path().join("data").join(&name);
        fs::create_dir_all(&root)?;
        crate::images::write(&root)?;
        std::os::unix::fs::symlink("../secret", root.join("linked"))?;
        let piped = Command::new("mkfifo").arg(root.join("piped")).status()?;
        ensure!(piped.success(), "mkfifo failed");
        let photos = copy_photos(&root, &name)?;
        let host = self.hosts.first().context("no host")?;
        let shared = self.folder.path().join(SHARED);
        let data = ["--data", text(&root)?, "--data", text(&shared)?];
        let added = self.admin(host, &[&["tenant", "add", &name], data.as_slice()].concat())?;
        let token = added
            .get("token")
            .and_then(Value::as_str)
            .context("`tenant add` printed no token")?;
        let secret = token
            .get(token.len().saturating_sub(16)..)
            .context("expected a longer token")?;
        let key = format!("of-{name}/");
        self.canaries.mark(&name, Secret::Token, [secret.into()])?;
        self.canaries.mark(&name, Secret::Key, [key.into_bytes()])?;
        for of in [Secret::Photo, Secret::Guest, Secret::Model] {
            self.canaries.mark(&name, of, [text_of(&name, of).into_bytes()])?;
        }
        let mut taps = Vec::new();
        for host in &self.hosts {
            taps.push(Tap::open(host.target.clone(), &name, &self.canaries).await?);
        }
        Ok(Tenant {
            token: token.to_owned(),
            name,
            root,
            photos,
            taps,
        })
    }

    pub(super) fn admin(&self, host: &Host, arguments: &[&str]) -> Result<Value> {
        let mut command = Command::new(&self.binary);
        command
            .args(["admin", "--json", "--socket"])
            .arg(&host.socket)
            .args(arguments);
        let run = finish(&mut command)?;
        if run.code != Some(0) {
            bail!("frostline admin {}: {}", arguments.join(" "), run.stderr);
        }
        let objects = run.objects().with_context(|| run.stdout.clone())?;
        objects
            .into_iter()
            .next()
            .context("frostline admin printed nothing")
    }

    pub(super) fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.folder.path().join("log"))?)
    }

    pub(super) fn take_leaks(&self) -> Result<BTreeMap<String, u64>> {
        self.canaries
            .inspect(Viewer::Operator, "the log", self.log()?.as_bytes());
        self.canaries.inspect_files(&self.folder.path().join("state"));
        for host in self.hosts.iter().filter(|host| host.target.tls.is_none()) {
            self.canaries
                .inspect(Viewer::MetricsReader, "metrics", &metrics(host.target.address)?);
        }
        Ok(self.canaries.take_leaks())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Keep the message of a failed test.
        if !std::thread::panicking() {
            let foreign = self.take_leaks();
            assert!(foreign.as_ref().is_ok_and(BTreeMap::is_empty), "{foreign:#?}");
        }
    }
}

/// Scrapes the metrics of a host.
pub(super) fn metrics(address: SocketAddr) -> Result<Vec<u8>> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    get(stream, "/metrics")
}

/// Reads the current activity from the admin socket of a host. This needs much less time than the command
/// `frostline admin top`.
pub(super) fn activity(socket: &Path) -> Result<Vec<u8>> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    get(stream, "/v1/activity")
}

/// Requests a path over HTTP/1.0, which has no chunks, and returns the body.
fn get(mut stream: impl Read + Write, path: &str) -> Result<Vec<u8>> {
    write!(stream, "GET {path} HTTP/1.0\r\nHost: host\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n");
    let body = body.filter(|_| answer.get(8..).is_some_and(|status| status.starts_with(b" 200")));
    let body = body.with_context(|| format!("the host does not answer {path}"))?;
    Ok(answer.split_off(body + 4))
}

/// Reads the bundled backbone.
pub(crate) fn backbone() -> Result<Bytes> {
    Ok(fs::read(demo().join("backbone.onnx"))?.into())
}

fn demo() -> PathBuf {
    repository().join("models/zoo/demo")
}

/// Copies photos below `root` and marks them for `tenant`. Returns their keys.
fn copy_photos(root: &Path, tenant: &str) -> Result<Vec<String>> {
    let folder = format!("photos/of-{tenant}");
    fs::create_dir_all(root.join(&folder))?;
    let (skipped, count) = if tenant == NEIGHBOR {
        (0, NEIGHBOR_PHOTOS)
    } else {
        (NEIGHBOR_PHOTOS, HOSTILE_PHOTOS)
    };
    let mut keys = Vec::new();
    for class in fs::read_dir(demo().join("photos/train"))? {
        let photos: BTreeSet<PathBuf> = fs::read_dir(class?.path())?
            .map(|photo| Ok(photo?.path()))
            .collect::<Result<_>>()?;
        for photo in photos.iter().skip(skipped).take(count) {
            let key = format!("{folder}/{:03}.jpg", keys.len());
            fs::write(root.join(&key), marked_jpeg(&fs::read(photo)?, tenant))?;
            keys.push(key);
        }
    }
    Ok(keys)
}
