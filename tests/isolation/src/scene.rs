//! A host, its admin, and two tenants: one that misbehaves, within low limits, and its neighbour.

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use frostline_client::{HostClient, Token};
use frostline_e2e::{HostProcess, finish, repository};
use frostline_wire::Layout;
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tenant that misbehaves.
pub(crate) const HOSTILE: &str = "hostile";

/// The tenant beside it.
pub(crate) const NEIGHBOUR: &str = "neighbour";

/// What the hostile tenant may use: little, so that it gets there soon.
const QUOTA: [&str; 5] = [
    "cpu_seconds=1",
    "tensor_bytes=12MiB",
    "object_reads=100",
    "object_bytes=256KiB",
    "output_bytes=1MiB",
];

/// See the module. The host ends when this is dropped.
pub struct Scene {
    binary: PathBuf,
    folder: tempfile::TempDir,
    host: HostProcess,
    tokens: [String; 2],
    /// Keys of real photos below [`Scene::root`].
    pub(crate) photos: Vec<String>,
}

impl Scene {
    /// Starts a host of `binary` (`frostline`) with `arguments`, and adds the tenants.
    ///
    /// # Errors
    /// When the host does not start, or its admin is not heard.
    pub async fn start(binary: &Path, arguments: &[&str]) -> Result<Self> {
        let scene = Self::unlimited(binary, Command::new(binary), arguments).await?;
        scene.admin(&[&["quota", "set", HOSTILE], QUOTA.as_slice()].concat())?;
        Ok(scene)
    }

    /// The same with so much memory for the host and its lanes, and no low limits: the hostile tenant may ask for whatever anybody may.
    ///
    /// # Errors
    /// As for [`Scene::start`].
    pub async fn start_within(binary: &Path, memory: u64) -> Result<Self> {
        let budget = memory.to_string();
        let scene = Self::unlimited(binary, Command::new(binary), &["--memory-budget", &budget]).await?;
        crate::memory::write(Path::new(&scene.root()?))?;
        Ok(scene)
    }

    /// The same where the host finds no `/proc`, in a mount namespace of its own. For tests in `needs_unshare`.
    ///
    /// # Errors
    /// As for [`Scene::start`].
    pub async fn start_without_proc(binary: &Path) -> Result<Self> {
        let command = frostline_needs::in_mount_namespace("mount -t tmpfs none /proc", binary);
        Self::unlimited(binary, command, &[]).await
    }

    /// A host that `command` becomes, of the same `binary` as its admin.
    async fn unlimited(binary: &Path, mut command: Command, arguments: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let root = folder.path().join("data");
        fs::create_dir_all(&root)?;
        fs::write(folder.path().join("secret"), "nobody may read this")?;
        std::os::unix::fs::symlink("../secret", root.join("linked"))?;
        ensure!(
            Command::new("mkfifo").arg(root.join("piped")).status()?.success(),
            "mkfifo failed"
        );
        crate::images::write(&root)?;
        copy_photos(&root)?;
        command.stderr(File::create(folder.path().join("log"))?);
        let data = text(&root)?.to_owned();
        let host = HostProcess::start_as(command, folder.path(), &data, arguments)?;
        let mut scene = Self {
            binary: binary.to_owned(),
            folder,
            host,
            tokens: Default::default(),
            photos: Vec::new(),
        };
        scene.tokens = [scene.add(HOSTILE, &data)?, scene.add(NEIGHBOUR, &data)?];
        let listed = scene
            .client(NEIGHBOUR)?
            .objects(&scene.root()?, Layout::Objects)
            .await?;
        let photos = listed.into_iter().map(|object| object.sample.key);
        scene.photos = photos.filter(|key| key.starts_with("photos/")).collect();
        Ok(scene)
    }

    /// What `frostline admin <arguments>` answers: the first of its objects.
    ///
    /// # Errors
    /// When it fails, with its own words.
    pub fn admin(&self, arguments: &[&str]) -> Result<Value> {
        let socket = self.folder.path().join("state/admin.sock");
        let mut command = Command::new(&self.binary);
        command
            .args(["admin", "--json", "--socket"])
            .arg(socket)
            .args(arguments);
        let run = finish(&mut command)?;
        if run.code != Some(0) {
            bail!("frostline admin {}: {}", arguments.join(" "), run.stderr);
        }
        let objects = run.objects().with_context(|| run.stdout.clone())?;
        objects.into_iter().next().context("no answer")
    }

    /// A tenant's client, with connections of its own.
    ///
    /// # Errors
    /// When its token cannot be read.
    pub fn client(&self, tenant: &str) -> Result<HostClient> {
        let file = self.folder.path().join(format!("{tenant}.token"));
        fs::write(&file, self.token(tenant))?;
        Ok(HostClient::new(&self.host.url(), Some(Token::read(&file)?))?)
    }

    /// What the host wrote to its log.
    ///
    /// # Errors
    /// The system's.
    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.folder.path().join("log"))?)
    }

    /// How often a thread of the host panicked. That guests do is in the log as well, in lines of JSON.
    ///
    /// # Errors
    /// The system's.
    pub fn panics(&self) -> Result<usize> {
        let panic = |line: &&str| line.starts_with("thread '") && line.contains("panicked");
        Ok(self.log()?.lines().filter(panic).count())
    }

    /// Memory of the host and the processes it started, in bytes.
    ///
    /// # Errors
    /// Where there is no `/proc`.
    pub fn memory(&self) -> Result<u64> {
        memory_of(self.host.id())
    }

    /// Whether extractions of a tenant run or wait.
    pub(crate) fn at_work(&self, tenant: &str) -> Result<bool> {
        let top = self.admin(&["top", "--once"])?;
        let tenants = top
            .get("tenants")
            .and_then(Value::as_array)
            .context("no tenants")?;
        let found = tenants
            .iter()
            .find(|entry| entry.get("name").and_then(Value::as_str) == Some(tenant));
        let number = |key: &str| found.and_then(|entry| entry.get(key)?.as_u64()).unwrap_or(0);
        Ok(number("running") + number("queued") > 0)
    }

    /// The host's process.
    pub(crate) fn process(&self) -> u32 {
        self.host.id()
    }

    /// Where the host listens.
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.host.address()
    }

    pub(crate) fn token(&self, tenant: &str) -> &str {
        let [hostile, neighbour] = &self.tokens;
        if tenant == HOSTILE { hostile } else { neighbour }
    }

    /// The data root, as it was granted.
    pub(crate) fn root(&self) -> Result<String> {
        Ok(text(&self.folder.path().join("data"))?.to_owned())
    }

    fn add(&self, tenant: &str, data: &str) -> Result<String> {
        let given = self.admin(&["tenant", "add", tenant, "--data", data])?;
        let token = given.get("token").and_then(Value::as_str);
        Ok(token.context("no token was given")?.to_owned())
    }
}

/// The bundled backbone.
pub(crate) fn backbone() -> Result<Bytes> {
    Ok(fs::read(demo().join("backbone.onnx"))?.into())
}

fn demo() -> PathBuf {
    repository().join("models/zoo/demo")
}

fn copy_photos(root: &Path) -> Result<()> {
    let target = root.join("photos");
    fs::create_dir_all(&target)?;
    let mut number = 0;
    for class in fs::read_dir(demo().join("photos/train"))? {
        for photo in fs::read_dir(class?.path())?.take(16) {
            fs::copy(photo?.path(), target.join(format!("{number:03}.jpg")))?;
            number += 1;
        }
    }
    Ok(())
}

fn memory_of(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 = line
        .and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok())
        .unwrap_or(0);
    let mut bytes = kib * 1024;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let children = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            // One that has just ended takes nothing.
            bytes += memory_of(child.parse()?).unwrap_or(0);
        }
    }
    Ok(bytes)
}

pub(crate) fn text(path: &Path) -> Result<&str> {
    path.to_str()
        .with_context(|| format!("{} is not UTF-8", path.display()))
}
