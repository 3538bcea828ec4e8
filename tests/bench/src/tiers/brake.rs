use super::HOST_CORE;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The CPU controller of cgroups version 1. With version 2, processes can rarely be moved out of their
/// manager's groups.
const CPU_GROUPS: &str = "/sys/fs/cgroup/cpu";

/// Short, so that the speed is even within a batch, without long pauses.
const PERIOD_MICROSECONDS: u32 = 20_000;

/// Limits processes to a fraction of a core until dropped.
pub(crate) enum Brake {
    /// A control group with a quota.
    Group(PathBuf),
    /// Busy loops on the same core.
    Load(Vec<Child>),
}

impl Brake {
    /// Name of the method, for output.
    pub(crate) fn means() -> &'static str {
        if has_quotas() {
            "a CPU quota"
        } else {
            "busy loops on the same core"
        }
    }

    /// Slows the processes down by the factor `times`.
    pub(super) fn apply(processes: &[u32], times: u32) -> Result<Self> {
        if has_quotas() {
            return Self::group(Path::new(CPU_GROUPS), processes, times);
        }
        let busy = || {
            Command::new("setpriv")
                .args(["--pdeathsig", "KILL", "--", "taskset", "--cpu-list", HOST_CORE])
                .args(["sh", "-c", "while :; do :; done"])
                .stdin(Stdio::null())
                .spawn()
        };
        let mut brake = Self::Load(Vec::new());
        for _ in 1..times {
            let child = busy().context("cannot start a busy loop")?;
            if let Self::Load(children) = &mut brake {
                children.push(child);
            }
        }
        Ok(brake)
    }

    fn group(groups: &Path, processes: &[u32], times: u32) -> Result<Self> {
        let group = groups.join(format!("frostline-{}", std::process::id()));
        std::fs::create_dir_all(&group).with_context(|| format!("cannot create {}", group.display()))?;
        let brake = Self::Group(group.clone());
        let write = |file: &str, value: u32| {
            let file = group.join(file);
            std::fs::write(&file, value.to_string())
                .with_context(|| format!("cannot write {}", file.display()))
        };
        write("cpu.cfs_period_us", PERIOD_MICROSECONDS)?;
        write("cpu.cfs_quota_us", PERIOD_MICROSECONDS / times.max(1))?;
        for process in processes {
            write("cgroup.procs", *process)?;
        }
        Ok(brake)
    }
}

impl Drop for Brake {
    fn drop(&mut self) {
        match self {
            Self::Group(group) => release(group),
            Self::Load(children) => {
                for child in children {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        }
    }
}

fn has_quotas() -> bool {
    Path::new(CPU_GROUPS).join("cpu.cfs_quota_us").is_file()
}

/// Removes the group, which must be empty.
fn release(group: &Path) {
    let members = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for process in members.lines() {
        let _ = std::fs::write(Path::new(CPU_GROUPS).join("cgroup.procs"), process);
    }
    let _ = std::fs::remove_dir(group);
}
