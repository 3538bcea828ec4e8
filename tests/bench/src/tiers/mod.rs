//! Two tiers on one machine: a storage host and an S3 server in a network namespace of their own, on core 0; the trainer, which is this
//! process, on core 1; between them a link held to a rate.

mod brake;
mod link;
mod namespace;
mod store;

pub(crate) use brake::Brake;
pub(crate) use link::Link;
pub(crate) use store::{PhotoStore, Photos, access};

use crate::photos::Photos as FolderOfPhotos;
use crate::run::{binary, text};
use anyhow::{Context, Result, bail};
use frostline_e2e::HostProcess;
use namespace::Namespace;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// The storage side's core, and the trainer's.
const HOST_CORE: &str = "0";
const TRAINER_CORE: &str = "1";

/// From iproute2 and util-linux.
const TOOLS: [&str; 6] = ["ip", "tc", "unshare", "nsenter", "setpriv", "taskset"];

/// The storage side, running, and the link to it. Everything ends and is removed when this is dropped; should this process be
/// killed, the storage side ends with it and takes namespace and link along.
pub(crate) struct Tiers {
    store: PhotoStore,
    link: Link,
    namespace: Namespace,
}

impl Tiers {
    /// Pins this process to its core, and starts the namespace, the link at full speed and the S3 server with its photos.
    ///
    /// # Errors
    /// One sentence about what the machine lacks, or what failed to start.
    pub(crate) fn open(photos: &FolderOfPhotos) -> Result<Self> {
        check_machine()?;
        let namespace = Namespace::open()?;
        let link = Link::open(&namespace)?;
        let store = PhotoStore::start(&namespace, photos)?;
        pin_this_process()?;
        let tiers = Self {
            store,
            link,
            namespace,
        };
        tiers.describe();
        Ok(tiers)
    }

    /// Says what is measured where.
    fn describe(&self) {
        let photos = self.photos();
        println!(
            "one core a tier, S3 server and {} + {} photos beside the host; resized so that a JPEG weighs {:.0} KB ({:.0} to {:.0}), \
             as ImageNet's do",
            photos.train,
            photos.validation,
            photos.mean_bytes / 1e3,
            photos.smallest as f64 / 1e3,
            photos.largest as f64 / 1e3
        );
    }

    /// A fresh storage host with its state below `folder`, listening at the far end of the link.
    pub(crate) fn host(&self, folder: &Path) -> Result<HostProcess> {
        std::fs::create_dir_all(folder)?;
        let settings = folder.join("host.toml");
        std::fs::write(&settings, "plain_http_beyond_loopback = true\n")?;
        let mut command = self.namespace.command(text(&binary()?)?);
        command.envs(store::access(&self.store.url_beside()));
        let listen = format!("{}:0", self.link.host_address());
        let arguments = ["--config", text(&settings)?, "--listen", &listen];
        HostProcess::start_as(command, folder, self.data(), &arguments)
            .context("the host did not start; see its output above")
    }

    /// The bucket's photos, as a host or a peer opens them.
    pub(crate) fn data(&self) -> &str {
        &self.photos().url
    }

    pub(crate) fn photos(&self) -> &Photos {
        self.store.photos()
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// The S3 server, as programs on the trainer's side reach it over the link.
    pub(crate) fn store_url(&self) -> String {
        self.store.url_across(self.link.host_address())
    }

    /// What such a program needs in its environment.
    pub(crate) fn store_access(&self) -> Vec<(&'static str, String)> {
        store::access(&self.store_url())
    }

    /// Slows `host` and the S3 server down to a part of their core.
    pub(crate) fn slow_down(&self, host: &HostProcess, times: u32) -> Result<Brake> {
        Brake::apply(&[host.id(), self.store.id()], times)
    }
}

fn check_machine() -> Result<()> {
    let mut missing = Vec::new();
    if std::fs::metadata("/proc/self")?.uid() != 0 {
        missing.push("root".to_owned());
    }
    if std::thread::available_parallelism()?.get() < 2 {
        missing.push("two cores".to_owned());
    }
    missing.extend(
        TOOLS
            .iter()
            .filter(|tool| !on_path(tool))
            .map(|tool| format!("the command {tool}")),
    );
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "this benchmark divides the machine into two tiers, which needs root, two cores, iproute2 (ip, tc) and util-linux (unshare, \
         nsenter, setpriv, taskset); missing: {}",
        missing.join(", ")
    );
}

fn on_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}

/// Threads that are started later inherit the core, and so do child processes.
fn pin_this_process() -> Result<()> {
    let id = std::process::id().to_string();
    quiet(Command::new("taskset").args(["--all-tasks", "--cpu-list", "--pid", TRAINER_CORE, &id]))
}

/// Runs a set-up command; its words are shown only when it fails.
fn quiet(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    bail!("{command:?} failed ({}): {}", output.status, words.trim());
}
