//! Hosts with admins, hostile tenants and a neighbor. All data of tenants is marked.

mod tls;
mod world;

use crate::canary::{Secret, Viewer};
use crate::footprint::Footprint;
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
use world::{Host, NEIGHBOR, SHARED, Tenant, World, activity, metrics};

/// Time within which the second host must know all tenants, however busy the machine is. It reads the state every
/// few seconds.
const SECOND_HOST_TIMEOUT: Duration = Duration::from_secs(600);

/// Name of the hostile tenant. Several hostile tenants have a number appended.
const HOSTILE: &str = "hostile";

/// Low quotas of hostile tenants, which are exceeded quickly.
const QUOTA: [&str; 5] = [
    "cpu_seconds=1",
    "tensor_bytes=12MiB",
    "object_reads=100",
    "object_bytes=256KiB",
    "output_bytes=1MiB",
];

/// One host, or two hosts with shared state, and tenants. One tenant acts. Clones share the hosts. The hosts
/// stop when the last clone is dropped, and leaked data fails the test.
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
    /// Returns an error if the host does not start or an admin command fails.
    pub async fn start(binary: &Path, arguments: &[&str]) -> Result<Self> {
        let scene = Self::unlimited(binary, Command::new(binary), arguments).await?;
        scene.limit()?;
        Ok(scene)
    }

    /// Like [`Scene::start`] with a memory budget in bytes for the host and its lanes, and with default
    /// quotas.
    ///
    /// # Errors
    /// Returns the same errors as [`Scene::start`].
    pub async fn start_within(binary: &Path, memory: u64) -> Result<Self> {
        let budget = memory.to_string();
        let scene = Self::unlimited(binary, Command::new(binary), &["--memory-budget", &budget]).await?;
        crate::memory::write(Path::new(&scene.root()?))?;
        Ok(scene)
    }

    /// Like [`Scene::start`] without `/proc`, using a separate mount namespace. For tests in `needs_unshare`.
    ///
    /// # Errors
    /// Returns the same errors as [`Scene::start`].
    pub async fn start_without_proc(binary: &Path) -> Result<Self> {
        let command = frostline_needs::in_mount_namespace("mount -t tmpfs none /proc", binary);
        Self::unlimited(binary, command, &[]).await
    }

    /// Like [`Scene::start`] with a host started by `command` and default quotas. `binary` runs the admin
    /// commands.
    ///
    /// # Errors
    /// Returns the same errors as [`Scene::start`].
    pub async fn start_as(binary: &Path, command: Command, arguments: &[&str]) -> Result<Self> {
        Self::unlimited(binary, command, arguments).await
    }

    /// Starts two hosts with shared state, the second with TLS, and adds `hostile` hostile tenants. Each host
    /// has a budget of `memory` bytes.
    ///
    /// # Errors
    /// Returns the same errors as [`Scene::start`].
    pub async fn start_crowded(binary: &Path, hostile: usize, memory: u64) -> Result<Self> {
        let (world, budget) = (World::new(binary)?, memory.to_string());
        let budget = ["--memory-budget", budget.as_str()];
        let mut hosts = vec![world.host(Command::new(binary), "", &budget)?];
        hosts.push(tls::host(&world, Command::new(binary), &budget)?);
        let names = (0..hostile).map(|number| format!("{HOSTILE}-{number}"));
        let scene = Self::with(world, hosts, names).await?;
        for actor in scene.actors().filter(|actor| actor.name() != NEIGHBOR) {
            actor.limit()?;
            crate::memory::write(&actor.tenant()?.root)?;
        }
        scene.wait_for_second_host().await?;
        Ok(scene)
    }

    /// Starts a host by `command`, without low quotas. `binary` runs the admin commands.
    async fn unlimited(binary: &Path, command: Command, arguments: &[&str]) -> Result<Self> {
        let world = World::new(binary)?;
        let hosts = vec![world.host(command, "", arguments)?];
        Self::with(world, hosts, [HOSTILE.to_owned()]).await
    }

    /// Creates the scene with the neighbor and these hostile tenants, and selects the first as acting tenant.
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

    /// Sets low quotas for the acting tenant.
    fn limit(&self) -> Result<()> {
        self.admin(&[&["quota", "set", self.name()], QUOTA.as_slice()].concat())?;
        Ok(())
    }

    /// Waits until the second host knows all tenants.
    async fn wait_for_second_host(&self) -> Result<()> {
        let until = Instant::now() + SECOND_HOST_TIMEOUT;
        for actor in self.actors() {
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

    /// Returns the scene with the neighbor as acting tenant.
    pub(crate) fn neighbor(&self) -> Self {
        Self {
            actor: self.world.tenants.len() - 1,
            ..self.clone()
        }
    }

    /// Returns the scene once for each acting tenant, ending with the neighbor. Tenants alternate between the
    /// hosts.
    pub(crate) fn actors(&self) -> impl Iterator<Item = Self> {
        (0..self.world.tenants.len()).map(|actor| Self {
            actor,
            host: actor % self.world.hosts.len(),
            world: Arc::clone(&self.world),
        })
    }

    /// Returns the scene on another host.
    pub(crate) fn on(&self, host: usize) -> Self {
        Self { host, ..self.clone() }
    }

    fn tenant(&self) -> Result<&Tenant> {
        self.world.tenants.get(self.actor).context("no such tenant")
    }

    fn host(&self) -> Result<&Host> {
        self.world.hosts.get(self.host).context("no such host")
    }

    /// Name of the acting tenant.
    pub(crate) fn name(&self) -> &str {
        self.tenant().map_or("", |tenant| &tenant.name)
    }

    /// Runs `frostline admin <arguments>` and returns the first printed object.
    ///
    /// # Errors
    /// Returns an error with the command's standard error if it fails.
    pub fn admin(&self, arguments: &[&str]) -> Result<Value> {
        let output = self.world.admin(self.host()?, arguments)?;
        self.world
            .canaries
            .inspect(Viewer::Operator, "admin output", output.to_string().as_bytes());
        Ok(output)
    }

    /// Reads the host's current activity.
    pub(crate) fn activity(&self) -> Result<Value> {
        let activity = activity(&self.socket()?)?;
        self.world
            .canaries
            .inspect(Viewer::Operator, "admin output", &activity);
        Ok(serde_json::from_slice(&activity)?)
    }

    /// Creates a client for the acting tenant, with separate connections.
    ///
    /// # Errors
    /// Returns an error if the token cannot be read.
    pub fn client(&self) -> Result<HostClient> {
        self.client_at(self.address()?)
    }

    /// Like [`Scene::client`] with a different address.
    pub(crate) fn client_at(&self, address: SocketAddr) -> Result<HostClient> {
        let tenant = self.tenant()?;
        let file = self.world.folder.path().join(format!("{}.token", tenant.name));
        fs::write(&file, &tenant.token)?;
        Ok(HostClient::new(
            &format!("http://{address}"),
            Some(Token::read(&file)?),
        )?)
    }

    /// Marks secrets of the acting tenant.
    pub(crate) fn mark(&self, secret: Secret, marks: impl IntoIterator<Item = Vec<u8>>) -> Result<()> {
        self.world.canaries.mark(self.name(), secret, marks)
    }

    /// Reads the hosts' logs.
    ///
    /// # Errors
    /// Returns an error if the log cannot be read.
    pub fn log(&self) -> Result<String> {
        self.world.log()
    }

    /// Counts panicked threads of hosts. Panics of guests are logged as JSON and not counted.
    ///
    /// # Errors
    /// Returns an error if the log cannot be read.
    pub fn panics(&self) -> Result<usize> {
        // The host logs the output of its lanes.
        let panic = |line: &&str| {
            let starts = line.starts_with("thread '") || line.contains("output=\"thread '");
            starts && line.contains("panicked")
        };
        Ok(self.log()?.lines().filter(panic).count())
    }

    /// Returns the number of leaked bytes by kind and place: in answers, logs, metrics, state files and admin
    /// output. The caller must check the result. Leaks that are never read fail the scene on drop.
    ///
    /// # Errors
    /// Returns an error if a log or the metrics cannot be read.
    pub fn take_leaks(&self) -> Result<BTreeMap<String, u64>> {
        self.world.take_leaks()
    }

    /// Returns the resident memory in bytes, including child processes.
    ///
    /// # Errors
    /// Returns an error without `/proc`.
    pub fn memory(&self) -> Result<u64> {
        memory_of(self.process()?)
    }

    /// True if the acting tenant has running or queued extractions.
    pub(crate) fn has_work(&self) -> Result<bool> {
        let top = self.activity()?;
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

    /// Reads the resources that the host holds.
    ///
    /// # Errors
    /// Returns an error without `/proc` or if the admin command fails.
    pub fn footprint(&self) -> Result<Footprint> {
        Footprint::read(self)
    }

    /// Waits up to `grace` until the host holds no more than when it was `idle`, and lists what it still
    /// holds.
    ///
    /// # Errors
    /// Returns the same errors as [`Scene::footprint`].
    pub async fn left_over(&self, idle: &Footprint, grace: Duration) -> Result<Vec<String>> {
        Footprint::left_over(self, idle, grace).await
    }

    /// Scrapes the host's metrics, including those by tenant.
    pub(crate) fn tenant_metrics(&self) -> Result<String> {
        let address = self.host()?.process.metrics_address();
        Ok(String::from_utf8(metrics(address.context("no metrics port")?)?)?)
    }

    /// Returns the host's process ID.
    pub(crate) fn process(&self) -> Result<u32> {
        Ok(self.host()?.process.id())
    }

    /// Counts the threads of the host that run or could run now. The count is 0 without `/proc`.
    pub(crate) fn running_threads(&self) -> Result<usize> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process()?));
        let tasks = tasks.into_iter().flatten().flatten();
        let states = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
        // The state follows the name in parentheses.
        let running = states.filter(|stat| {
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('R'))
        });
        Ok(running.count())
    }

    /// Returns the process IDs of the host and all descendants.
    pub(crate) fn processes(&self) -> Result<Vec<u32>> {
        let mut all = vec![self.process()?];
        let mut next = 0;
        while let Some(process) = all.get(next) {
            all.extend(children_of(*process));
            next += 1;
        }
        Ok(all)
    }

    /// Returns the host's child processes that run this subcommand of `frostline`. The list is empty without
    /// `/proc`.
    ///
    /// # Errors
    /// Returns an error if the scene has no such host.
    pub fn children(&self, command: &str) -> Result<Vec<u32>> {
        let mut found = children_of(self.process()?);
        // An exited process has an empty command line.
        let line = |child: &u32| fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
        found.retain(|child| line(child).split('\0').nth(1) == Some(command));
        Ok(found)
    }

    /// Returns the folder with state, logs and tokens.
    pub fn folder(&self) -> &Path {
        self.world.folder.path()
    }

    /// Returns the path of the admin socket.
    pub(crate) fn socket(&self) -> Result<PathBuf> {
        Ok(self.host()?.socket.clone())
    }

    /// Returns the address at which the acting tenant reaches the host.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        let tap = self.tenant()?.taps.get(self.host).context("no such host")?;
        Ok(tap.address)
    }

    /// Returns the host's address without the tap.
    pub(crate) fn direct_address(&self) -> Result<SocketAddr> {
        Ok(self.host()?.target.address)
    }

    pub(crate) fn token(&self) -> &str {
        self.tenant().map_or("", |tenant| &tenant.token)
    }

    /// Returns the keys of photos below [`Scene::root`].
    pub(crate) fn photos(&self) -> &[String] {
        self.tenant().map_or(&[], |tenant| &tenant.photos)
    }

    /// Returns the data root granted to all tenants.
    pub(crate) fn shared_root(&self) -> Result<String> {
        Ok(text(&self.folder().join(SHARED))?.to_owned())
    }

    /// Returns the data root granted to the acting tenant.
    pub(crate) fn root(&self) -> Result<String> {
        Ok(text(&self.tenant()?.root)?.to_owned())
    }
}

/// Returns the child processes of a process. The list is empty if the process has exited.
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
