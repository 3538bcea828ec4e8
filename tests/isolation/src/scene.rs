//! A host, its admin, and its tenants: one that misbehaves, within low limits, or several, and their neighbour. All that each of them has
//! is marked.

mod tls;

use crate::canary::{Canaries, Secret, Viewer, marked_jpeg, text_of};
use crate::tap::{Tap, Target};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use frostline_client::{HostClient, Token};
use frostline_e2e::{HostProcess, finish, repository};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a host may take to answer for its metrics, and the second one to hear of tenants; it looks every few seconds.
const HEARD: Duration = Duration::from_secs(60);

/// The tenant that misbehaves.
const HOSTILE: &str = "hostile";

/// The tenant beside it.
const NEIGHBOUR: &str = "neighbour";

/// What the hostile tenant may use: little, so that it gets there soon.
const QUOTA: [&str; 5] = [
    "cpu_seconds=1",
    "tensor_bytes=12MiB",
    "object_reads=100",
    "object_bytes=256KiB",
    "output_bytes=1MiB",
];

/// Photos of each class that are the neighbour's alone: what a network makes of them, nobody else can have made.
const NEIGHBOURS: usize = 8;

/// Photos of each class that each hostile tenant has.
const OTHERS: usize = 8;

/// A host, or two on one state, with their tenants; and who of them acts. Clones are of the same. When the last is dropped the hosts end,
/// and it is an error if anybody saw what is another's.
#[derive(Clone)]
pub struct Scene {
    world: Arc<World>,
    actor: usize,
    host: usize,
}

struct World {
    binary: PathBuf,
    folder: tempfile::TempDir,
    hosts: Vec<Host>,
    tenants: Vec<Tenant>,
    canaries: Arc<Canaries>,
}

struct Host {
    process: HostProcess,
    target: Target,
    /// Where its admin listens.
    socket: PathBuf,
}

struct Tenant {
    name: String,
    token: String,
    /// The data that it was granted.
    root: PathBuf,
    /// Keys of its photos.
    photos: Vec<String>,
    /// Its way to each host.
    taps: Vec<Tap>,
}

impl Scene {
    /// Starts a host of `binary` (`frostline`) with `arguments`, and adds the tenants.
    ///
    /// # Errors
    /// When the host does not start, or its admin is not heard.
    pub async fn start(binary: &Path, arguments: &[&str]) -> Result<Self> {
        let scene = Self::unlimited(binary, Command::new(binary), arguments).await?;
        scene.limit()?;
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

    /// A host that `command` becomes, with `binary` for its admin's commands.
    ///
    /// # Errors
    /// As for [`Scene::start`].
    pub async fn start_as(binary: &Path, command: Command, arguments: &[&str]) -> Result<Self> {
        Self::unlimited(binary, command, arguments).await
    }

    /// Two hosts on one state, the second of them behind TLS, each with so much memory, and so many hostile tenants.
    ///
    /// # Errors
    /// As for [`Scene::start`].
    pub async fn start_crowded(binary: &Path, hostile: usize, memory: u64) -> Result<Self> {
        let (world, budget) = (World::new(binary)?, memory.to_string());
        let budget = ["--memory-budget", budget.as_str()];
        let mut hosts = vec![world.host(Command::new(binary), "", &budget)?];
        hosts.push(tls::host(&world, Command::new(binary), &budget)?);
        let names = (0..hostile).map(|number| format!("{HOSTILE}-{number}"));
        let scene = Self::with(world, hosts, names).await?;
        for actor in scene.everybody().filter(|actor| actor.name() != NEIGHBOUR) {
            actor.limit()?;
            crate::memory::write(&actor.tenant()?.root)?;
        }
        scene.heard().await?;
        Ok(scene)
    }

    /// A host that `command` becomes, of the same `binary` as its admin.
    async fn unlimited(binary: &Path, command: Command, arguments: &[&str]) -> Result<Self> {
        let world = World::new(binary)?;
        let hosts = vec![world.host(command, "", arguments)?];
        Self::with(world, hosts, [HOSTILE.to_owned()]).await
    }

    /// The scene with the neighbour and these hostile tenants, of whom the first acts.
    async fn with(
        mut world: World,
        hosts: Vec<Host>,
        hostile: impl IntoIterator<Item = String>,
    ) -> Result<Self> {
        world.hosts = hosts;
        for name in hostile.into_iter().chain([NEIGHBOUR.to_owned()]) {
            let tenant = world.add(name).await?;
            world.tenants.push(tenant);
        }
        Ok(Self {
            world: Arc::new(world),
            actor: 0,
            host: 0,
        })
    }

    /// Gives whoever acts little, so that it gets there soon.
    fn limit(&self) -> Result<()> {
        self.admin(&[&["quota", "set", self.name()], QUOTA.as_slice()].concat())?;
        Ok(())
    }

    /// Waits until the second host knows everybody.
    async fn heard(&self) -> Result<()> {
        let until = Instant::now() + HEARD;
        for actor in self.everybody() {
            let client = actor.on(1).client()?;
            while let Err(error) = client.guests().await {
                ensure!(Instant::now() < until, "the second host: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }

    /// The scene as the neighbour plays it.
    pub(crate) fn neighbour(&self) -> Self {
        Self {
            actor: self.world.tenants.len() - 1,
            ..self.clone()
        }
    }

    /// The scene as each of its tenants plays it, in turns on its hosts; the neighbour is the last.
    pub(crate) fn everybody(&self) -> impl Iterator<Item = Self> {
        (0..self.world.tenants.len()).map(|actor| Self {
            actor,
            host: actor % self.world.hosts.len(),
            world: Arc::clone(&self.world),
        })
    }

    /// The scene on another of its hosts.
    pub(crate) fn on(&self, host: usize) -> Self {
        Self { host, ..self.clone() }
    }

    fn tenant(&self) -> Result<&Tenant> {
        self.world.tenants.get(self.actor).context("nobody acts")
    }

    fn host(&self) -> Result<&Host> {
        self.world.hosts.get(self.host).context("no such host")
    }

    /// What whoever acts is called.
    pub(crate) fn name(&self) -> &str {
        self.tenant().map_or("", |tenant| &tenant.name)
    }

    /// What `frostline admin <arguments>` answers: the first of its objects.
    ///
    /// # Errors
    /// When it fails, with its own words.
    pub fn admin(&self, arguments: &[&str]) -> Result<Value> {
        let said = self.world.admin(self.host()?, arguments)?;
        self.world.canaries.look(
            Viewer::Operator,
            "what an admin is told",
            said.to_string().as_bytes(),
        );
        Ok(said)
    }

    /// A client of whoever acts, with connections of its own.
    ///
    /// # Errors
    /// When its token cannot be read.
    pub fn client(&self) -> Result<HostClient> {
        self.client_at(self.address()?)
    }

    /// The same by another way.
    pub(crate) fn client_at(&self, address: SocketAddr) -> Result<HostClient> {
        let tenant = self.tenant()?;
        let file = self.world.folder.path().join(format!("{}.token", tenant.name));
        fs::write(&file, &tenant.token)?;
        Ok(HostClient::new(
            &format!("http://{address}"),
            Some(Token::read(&file)?),
        )?)
    }

    /// Marks what nobody but whoever acts may see.
    pub(crate) fn mark(&self, secret: Secret, marks: impl IntoIterator<Item = Vec<u8>>) -> Result<()> {
        self.world.canaries.mark(self.name(), secret, marks)
    }

    /// What the hosts wrote to their logs.
    ///
    /// # Errors
    /// The system's.
    pub fn log(&self) -> Result<String> {
        self.world.log()
    }

    /// How often a thread of a host panicked. That guests do is in the log as well, in lines of JSON.
    ///
    /// # Errors
    /// The system's.
    pub fn panics(&self) -> Result<usize> {
        let panic = |line: &&str| line.starts_with("thread '") && line.contains("panicked");
        Ok(self.log()?.lines().filter(panic).count())
    }

    /// Bytes of marks that were seen by who must not, by what they were and where: in answers, logs, metrics, the state's files, and what
    /// admins are told. Whoever asks has to mind; what is never asked for is an error in the end.
    ///
    /// # Errors
    /// The system's.
    pub fn foreign(&self) -> Result<BTreeMap<String, u64>> {
        self.world.foreign()
    }

    /// Memory of the host and the processes it started, in bytes.
    ///
    /// # Errors
    /// Where there is no `/proc`.
    pub fn memory(&self) -> Result<u64> {
        memory_of(self.process()?)
    }

    /// Whether extractions of whoever acts run or wait.
    pub(crate) fn at_work(&self) -> Result<bool> {
        let top = self.admin(&["top", "--once"])?;
        let tenants = top
            .get("tenants")
            .and_then(Value::as_array)
            .context("no tenants")?;
        let found = tenants
            .iter()
            .find(|entry| entry.get("name").and_then(Value::as_str) == Some(self.name()));
        let number = |key: &str| found.and_then(|entry| entry.get(key)?.as_u64()).unwrap_or(0);
        Ok(number("running") + number("queued") > 0)
    }

    /// The host's process.
    pub(crate) fn process(&self) -> Result<u32> {
        Ok(self.host()?.process.id())
    }

    /// The host's process and all that it started.
    pub(crate) fn processes(&self) -> Result<Vec<u32>> {
        let mut all = vec![self.process()?];
        let mut next = 0;
        while let Some(process) = all.get(next) {
            all.extend(children_of(*process));
            next += 1;
        }
        Ok(all)
    }

    /// The processes that the host started by this command of `frostline`.
    ///
    /// # Errors
    /// Where there is no `/proc`.
    pub fn children(&self, command: &str) -> Result<Vec<u32>> {
        let mut found = children_of(self.process()?);
        // One that has just ended has no command line.
        let line = |child: &u32| fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
        found.retain(|child| line(child).split('\0').nth(1) == Some(command));
        Ok(found)
    }

    /// Where its state, its log and its tokens lie.
    pub fn folder(&self) -> &Path {
        self.world.folder.path()
    }

    /// Where the host's admin listens.
    pub(crate) fn socket(&self) -> Result<PathBuf> {
        Ok(self.host()?.socket.clone())
    }

    /// Where the host listens, as whoever acts reaches it.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        let tap = self.tenant()?.taps.get(self.host).context("no such host")?;
        Ok(tap.address)
    }

    /// Where the host listens itself.
    pub(crate) fn bare_address(&self) -> Result<SocketAddr> {
        Ok(self.host()?.target.address)
    }

    pub(crate) fn token(&self) -> &str {
        self.tenant().map_or("", |tenant| &tenant.token)
    }

    /// Keys of photos below [`Scene::root`].
    pub(crate) fn photos(&self) -> &[String] {
        self.tenant().map_or(&[], |tenant| &tenant.photos)
    }

    /// The data root of whoever acts, as it was granted.
    pub(crate) fn root(&self) -> Result<String> {
        Ok(text(&self.tenant()?.root)?.to_owned())
    }
}

impl World {
    fn new(binary: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::create_dir_all(folder.path().join("data"))?;
        fs::write(folder.path().join("data/secret"), "nobody may read this")?;
        Ok(Self {
            binary: binary.to_owned(),
            folder,
            hosts: Vec::new(),
            tenants: Vec::new(),
            canaries: Arc::default(),
        })
    }

    /// A host that `command` becomes, with `local` below the state for what is its own.
    fn host(&self, mut command: Command, local: &str, arguments: &[&str]) -> Result<Host> {
        let folder = self.folder.path();
        let log = File::options()
            .create(true)
            .append(true)
            .open(folder.join("log"))?;
        command.stderr(log);
        let place = folder.join("state").join(local);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&place)?;
        let local = ["--local", text(&place)?];
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

    /// Adds a tenant with data of its own, all of it marked.
    async fn add(&self, name: String) -> Result<Tenant> {
        let root = self.folder.path().join("data").join(&name);
        fs::create_dir_all(&root)?;
        crate::images::write(&root)?;
        std::os::unix::fs::symlink("../secret", root.join("linked"))?;
        let piped = Command::new("mkfifo").arg(root.join("piped")).status()?;
        ensure!(piped.success(), "mkfifo failed");
        let photos = copy_photos(&root, &name)?;
        let host = self.hosts.first().context("no host")?;
        let given = self.admin(host, &["tenant", "add", &name, "--data", text(&root)?])?;
        let token = given
            .get("token")
            .and_then(Value::as_str)
            .context("no token was given")?;
        let secret = token
            .get(token.len().saturating_sub(16)..)
            .context("a short token")?;
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

    fn admin(&self, host: &Host, arguments: &[&str]) -> Result<Value> {
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
        objects.into_iter().next().context("no answer")
    }

    fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.folder.path().join("log"))?)
    }

    fn foreign(&self) -> Result<BTreeMap<String, u64>> {
        self.canaries
            .look(Viewer::Operator, "the log", self.log()?.as_bytes());
        self.canaries.look_at_files(&self.folder.path().join("state"));
        for host in self.hosts.iter().filter(|host| host.target.tls.is_none()) {
            self.canaries
                .look(Viewer::Anybody, "metrics", &metrics(host.target.address)?);
        }
        Ok(self.canaries.take_seen())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A test that has failed already says why.
        if !std::thread::panicking() {
            let foreign = self.foreign();
            assert!(foreign.as_ref().is_ok_and(BTreeMap::is_empty), "{foreign:#?}");
        }
    }
}

/// What a host tells anybody.
fn metrics(address: SocketAddr) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(HEARD))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: host\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    ensure!(answer.starts_with(b"HTTP/1.1 200"), "the host tells no metrics");
    Ok(answer)
}

/// The bundled backbone.
pub(crate) fn backbone() -> Result<Bytes> {
    Ok(fs::read(demo().join("backbone.onnx"))?.into())
}

fn demo() -> PathBuf {
    repository().join("models/zoo/demo")
}

/// Copies photos below `root`, marked as those of `tenant`; gives their keys.
fn copy_photos(root: &Path, tenant: &str) -> Result<Vec<String>> {
    let folder = format!("photos/of-{tenant}");
    fs::create_dir_all(root.join(&folder))?;
    let (passed, taken) = if tenant == NEIGHBOUR {
        (0, NEIGHBOURS)
    } else {
        (NEIGHBOURS, OTHERS)
    };
    let mut keys = Vec::new();
    for class in fs::read_dir(demo().join("photos/train"))? {
        let photos: BTreeSet<PathBuf> = fs::read_dir(class?.path())?
            .map(|photo| Ok(photo?.path()))
            .collect::<Result<_>>()?;
        for photo in photos.iter().skip(passed).take(taken) {
            let key = format!("{folder}/{:03}.jpg", keys.len());
            fs::write(root.join(&key), marked_jpeg(&fs::read(photo)?, tenant))?;
            keys.push(key);
        }
    }
    Ok(keys)
}

/// What a process started. One that has just ended started nothing.
fn children_of(process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    children
        .flat_map(|children| {
            children
                .split_whitespace()
                .filter_map(|child| child.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

fn memory_of(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    let of_children = children_of(process)
        .into_iter()
        .filter_map(|child| memory_of(child).ok());
    Ok(kib.unwrap_or(0) * 1024 + of_children.sum::<u64>())
}

pub(crate) fn text(path: &Path) -> Result<&str> {
    path.to_str()
        .with_context(|| format!("{} is not UTF-8", path.display()))
}
