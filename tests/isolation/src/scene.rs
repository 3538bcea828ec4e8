//! A host, its admin, and its tenants: one that misbehaves, within low limits, or several, and their neighbor. All that each of them has
//! is marked.

mod tls;
mod world;

use crate::canary::{Secret, Viewer};
use anyhow::{Context, Result, ensure};
use frostline_client::{HostClient, Token};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
pub(crate) use world::backbone;
use world::{Host, NEIGHBOR, Tenant, World};

/// How long the second host may take to learn of the tenants; it reads the state every few seconds.
const SECOND_HOST_TIMEOUT: Duration = Duration::from_secs(60);

/// The tenant that misbehaves.
const HOSTILE: &str = "hostile";

/// What the hostile tenant may use: little, so that it gets there soon.
const QUOTA: [&str; 5] = [
    "cpu_seconds=1",
    "tensor_bytes=12MiB",
    "object_reads=100",
    "object_bytes=256KiB",
    "output_bytes=1MiB",
];

/// A host, or two on one state, with their tenants, one of whom acts. Clones share the hosts. When the last is dropped, the hosts stop, and
/// leaked data fails the test.
#[derive(Clone)]
pub struct Scene {
    world: Arc<World>,
    actor: usize,
    host: usize,
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

    /// Like [`Scene::start`] with this much memory for the host and its lanes, and no low limits: the hostile tenant may ask for whatever anybody may.
    ///
    /// # Errors
    /// As for [`Scene::start`].
    pub async fn start_within(binary: &Path, memory: u64) -> Result<Self> {
        let budget = memory.to_string();
        let scene = Self::unlimited(binary, Command::new(binary), &["--memory-budget", &budget]).await?;
        crate::memory::write(Path::new(&scene.root()?))?;
        Ok(scene)
    }

    /// Like [`Scene::start`] with a host that finds no `/proc`, in a mount namespace of its own. For tests in `needs_unshare`.
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
        for actor in scene.everybody().filter(|actor| actor.name() != NEIGHBOR) {
            actor.limit()?;
            crate::memory::write(&actor.tenant()?.root)?;
        }
        scene.wait_for_second_host().await?;
        Ok(scene)
    }

    /// A host that `command` becomes, of the same `binary` as its admin.
    async fn unlimited(binary: &Path, command: Command, arguments: &[&str]) -> Result<Self> {
        let world = World::new(binary)?;
        let hosts = vec![world.host(command, "", arguments)?];
        Self::with(world, hosts, [HOSTILE.to_owned()]).await
    }

    /// The scene with the neighbor and these hostile tenants, of whom the first acts.
    async fn with(
        mut world: World,
        hosts: Vec<Host>,
        hostile: impl IntoIterator<Item = String>,
    ) -> Result<Self> {
        world.hosts = hosts;
        for name in hostile.into_iter().chain([NEIGHBOR.to_owned()]) {
            let tenant = world.add(name).await?;
            world.tenants.push(tenant);
        }
        Ok(Self {
            world: Arc::new(world),
            actor: 0,
            host: 0,
        })
    }

    /// Gives the acting tenant little, so that it gets there soon.
    fn limit(&self) -> Result<()> {
        self.admin(&[&["quota", "set", self.name()], QUOTA.as_slice()].concat())?;
        Ok(())
    }

    /// Waits until the second host knows all tenants.
    async fn wait_for_second_host(&self) -> Result<()> {
        let until = Instant::now() + SECOND_HOST_TIMEOUT;
        for actor in self.everybody() {
            let client = actor.on(1).client()?;
            while let Err(error) = client.guests().await {
                ensure!(
                    Instant::now() < until,
                    "the second host does not know a tenant: {error}"
                );
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }

    /// The scene as the neighbor plays it.
    pub(crate) fn neighbor(&self) -> Self {
        Self {
            actor: self.world.tenants.len() - 1,
            ..self.clone()
        }
    }

    /// The scene as each of its tenants plays it, in turns on its hosts; the neighbor is the last.
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
        self.world.tenants.get(self.actor).context("no such tenant")
    }

    fn host(&self) -> Result<&Host> {
        self.world.hosts.get(self.host).context("no such host")
    }

    /// The name of the acting tenant.
    pub(crate) fn name(&self) -> &str {
        self.tenant().map_or("", |tenant| &tenant.name)
    }

    /// The first object that `frostline admin <arguments>` prints.
    ///
    /// # Errors
    /// If it fails, with its standard error.
    pub fn admin(&self, arguments: &[&str]) -> Result<Value> {
        let output = self.world.admin(self.host()?, arguments)?;
        self.world
            .canaries
            .inspect(Viewer::Operator, "admin output", output.to_string().as_bytes());
        Ok(output)
    }

    /// A client of the acting tenant, with connections of its own.
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

    /// Marks what nobody but the acting tenant may see.
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

    /// How often a thread of a host panicked. Panics of guests are logged as JSON and not counted.
    ///
    /// # Errors
    /// The system's.
    pub fn panics(&self) -> Result<usize> {
        let panic = |line: &&str| line.starts_with("thread '") && line.contains("panicked");
        Ok(self.log()?.lines().filter(panic).count())
    }

    /// Bytes of leaked marks by kind and place: in answers, logs, metrics, the files of the state, and admin output. The caller must check
    /// them; leaks that are never read fail the scene when it is dropped.
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

    /// Whether the acting tenant has running or queued extractions.
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

    /// Where the host listens, as the acting tenant reaches it.
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

    /// The data root of the acting tenant, as it was granted.
    pub(crate) fn root(&self) -> Result<String> {
        Ok(text(&self.tenant()?.root)?.to_owned())
    }
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
