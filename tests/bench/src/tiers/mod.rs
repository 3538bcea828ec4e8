//! Two tiers on one machine. A storage host and an S3 server run in a separate network namespace on core 0,
//! the trainer in this process on core 1, with a rate-limited link in between.

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

/// Cores for the storage side and the trainer.
const HOST_CORE: &str = "0";
const TRAINER_CORE: &str = "1";

/// Required commands, from iproute2 and util-linux.
const TOOLS: [&str; 6] = ["ip", "tc", "unshare", "nsenter", "setpriv", "taskset"];

/// The running storage side and the link. Everything is stopped and removed on drop. If this process is
/// killed, the storage side ends too, and namespace and link are removed.
pub(crate) struct Tiers {
    store: PhotoStore,
    link: Link,
    namespace: Namespace,
}

impl Tiers {
    /// Pins this process to the trainer's core, and starts the namespace, the link at full speed and the S3
    /// server with photos.
    ///
    /// # Errors
    /// Fails if the machine does not meet the requirements, or if a program does not start.
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

    /// Prints the configuration.
    fn describe(&self) {
        let photos = self.photos();
        println!(
            "one core per tier; S3 server next to the host with {} + {} photos, resized to JPEGs of {:.0} KB ({:.0} to {:.0}), \
             about as large as in ImageNet",
            photos.train,
            photos.validation,
            photos.mean_bytes / 1e3,
            photos.smallest as f64 / 1e3,
            photos.largest as f64 / 1e3
        );
    }

    /// Starts a new storage host with state in `folder`, which listens at the far end of the link.
    pub(crate) fn host(&self, folder: &Path) -> Result<HostProcess> {
        std::fs::create_dir_all(folder)?;
        let settings = folder.join("host.toml");
        std::fs::write(&settings, "plain_http_beyond_loopback = true\n")?;
        let mut command = self.namespace.command(text(&binary()?)?);
        command.envs(store::access(&self.store.url_beside()));
        let listen = format!("{}:0", self.link.host_address());
        let arguments = ["--config", text(&settings)?, "--listen", &listen];
        HostProcess::start_as(command, folder, self.data(), &arguments)
            .context("cannot start the host; see the output above")
    }

    /// Data root with the bucket's photos, for hosts and peers.
    pub(crate) fn data(&self) -> &str {
        &self.photos().url
    }

    pub(crate) fn photos(&self) -> &Photos {
        self.store.photos()
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// URL of the S3 server for programs on the trainer's side, over the link.
    pub(crate) fn store_url(&self) -> String {
        self.store.url_across(self.link.host_address())
    }

    /// Environment variables for S3 clients on the trainer's side.
    pub(crate) fn store_access(&self) -> Vec<(&'static str, String)> {
        store::access(&self.store_url())
    }

    /// Slows `host` and the S3 server down by this factor.
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

/// Threads and child processes that start later inherit the core.
fn pin_this_process() -> Result<()> {
    let id = std::process::id().to_string();
    quiet(Command::new("taskset").args(["--all-tasks", "--cpu-list", "--pid", TRAINER_CORE, &id]))
}

/// Runs a set-up command. Standard error is shown only if it fails.
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
