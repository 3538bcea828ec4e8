use super::HOST_CORE;
use anyhow::{Context, Result, bail};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// `unshare` takes milliseconds.
const OPENING: Duration = Duration::from_secs(5);

/// A network namespace without a name: it lives as long as a process in it does, so nothing can be left behind.
pub(super) struct Namespace {
    /// `cat`, which waits for the end of its input: for this process to let go of it, in whatever way.
    holder: Child,
}

impl Namespace {
    pub(super) fn open() -> Result<Self> {
        let holder = Command::new("unshare")
            .args(["--net", "--", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start unshare")?;
        let mut namespace = Self { holder };
        let own = std::fs::read_link("/proc/self/ns/net")?;
        let deadline = Instant::now() + OPENING;
        while std::fs::read_link(namespace.path()).is_ok_and(|path| path == own) {
            if Instant::now() > deadline || namespace.holder.try_wait()?.is_some() {
                bail!("cannot create a network namespace; see the output of unshare above");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(namespace)
    }

    /// The id of a process in it, by which others name it.
    pub(super) fn id(&self) -> u32 {
        self.holder.id()
    }

    /// `program` inside, on the host's core; killed when this process ends.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = self.enter();
        command.args(["taskset", "--cpu-list", HOST_CORE, program]);
        command
    }

    /// `nsenter` into it; the program is still to be added.
    pub(super) fn enter(&self) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--", "nsenter"])
            .arg(format!("--net={}", self.path()));
        command
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.id())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
