use super::HOST_CORE;
use anyhow::{Context, Result, bail};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Timeout for `unshare`. Usually needs milliseconds.
const OPENING: Duration = Duration::from_secs(5);

/// An unnamed network namespace. The namespace is removed automatically when all processes in it have ended.
pub(super) struct Namespace {
    /// `cat`, which exits when standard input closes, even if this process is killed.
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

    /// Id of a process in the namespace.
    pub(super) fn id(&self) -> u32 {
        self.holder.id()
    }

    /// Command for `program` in the namespace, on the host's core. The program is killed when this process
    /// ends.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = self.enter();
        command.args(["taskset", "--cpu-list", HOST_CORE, program]);
        command
    }

    /// `nsenter` command to which a program must be appended.
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
