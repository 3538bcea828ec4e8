use super::HOST_CORE;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where version 1 of the control groups has its CPU controller. Version 2 seldom lets a process outside its manager's groups in.
const CPU_GROUPS: &str = "/sys/fs/cgroup/cpu";

/// Short periods, so that a batch sees an even speed and no long pauses.
const PERIOD_MICROSECONDS: u32 = 20_000;

/// Holds processes to a part of one core until it is dropped.
pub(crate) enum Brake {
    /// By a quota of a control group.
    Group(PathBuf),
    /// By busy loops that share the core with them.
    Load(Vec<Child>),
}

impl Brake {
    /// By what means, for people.
    pub(crate) fn means() -> &'static str {
        if has_quotas() {
            "a CPU quota"
        } else {
            "busy loops on its core"
        }
    }

    /// Makes the processes `times` slower.
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

/// A group must be empty before it can be removed.
fn release(group: &Path) {
    let members = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for process in members.lines() {
        let _ = std::fs::write(Path::new(CPU_GROUPS).join("cgroup.procs"), process);
    }
    let _ = std::fs::remove_dir(group);
}
