//! Memory of a host with lanes as counted by the kernel, in a separate memory cgroup if possible.

use crate::proc_status::bytes;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Sampling interval.
const EVERY: Duration = Duration::from_millis(4);

/// Mount points and file names of both cgroup versions.
struct Version {
    root: &'static str,
    limit: &'static str,
    /// Fields of `memory.stat` without mapped files.
    fields: [&'static str; 2],
    /// File with the field `oom_kill`.
    events: &'static str,
}

const VERSIONS: [Version; 2] = [
    Version {
        root: "/sys/fs/cgroup/memory",
        limit: "memory.limit_in_bytes",
        fields: ["total_rss", "total_shmem"],
        events: "memory.oom_control",
    },
    Version {
        root: "/sys/fs/cgroup",
        limit: "memory.max",
        fields: ["anon", "shmem"],
        events: "memory.events",
    },
];

/// A memory cgroup, removed on drop. All processes in the group must have ended by then.
pub(crate) struct MemoryGroup {
    group: Result<(PathBuf, &'static Version), String>,
}

impl MemoryGroup {
    /// Creates a cgroup with a limit of `limit` bytes, including mapped files that cannot be reclaimed.
    pub(crate) fn open(limit: u64) -> Self {
        let tried = VERSIONS.iter().map(|version| make(version, limit));
        let mut reason = String::new();
        for made in tried {
            match made {
                Ok(made) => return Self { group: Ok(made) },
                Err(error) => reason = error,
            }
        }
        Self { group: Err(reason) }
    }

    /// Reason why no cgroup could be created.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.group.as_ref().err().map(String::as_str)
    }

    /// A command that joins the group and then executes `program`.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let Ok((folder, _)) = &self.group else {
            return Command::new(program);
        };
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(folder.join("cgroup.procs"))
            .arg(program);
        command
    }

    /// Number of processes that the kernel killed in the group, or `None` without a group.
    pub(crate) fn oom_kills(&self) -> Option<u64> {
        let (folder, version) = self.group.as_ref().ok()?;
        field(&folder.join(version.events), "oom_kill")
    }

    /// Samples the memory of the group. Without a group, sums the memory of `host` and all child processes.
    pub(crate) fn watch(&self, host: u32) -> Watch {
        let (over, made) = (Arc::new(AtomicBool::new(false)), self.group.clone());
        let told = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let mut peak = 0;
            while !told.load(Ordering::Relaxed) {
                let held = match &made {
                    Ok((folder, version)) => version
                        .fields
                        .iter()
                        .filter_map(|name| field(&folder.join("memory.stat"), name))
                        .sum(),
                    Err(_) => family(host).into_iter().map(unshared).sum(),
                };
                peak = peak.max(held);
                std::thread::sleep(EVERY);
            }
            peak
        });
        Watch { over, thread }
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let Ok((folder, _)) = &self.group else { return };
        // The processes were killed, but the kernel may not have removed them yet.
        for _ in 0..100 {
            if std::fs::remove_dir(folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        eprintln!("cannot remove {} because it is still in use", folder.display());
    }
}

fn make(version: &'static Version, limit: u64) -> Result<(PathBuf, &'static Version), String> {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = Path::new(version.root).join(format!("frostline-bench-{}-{number}", std::process::id()));
    let wrong = |error: std::io::Error| format!("cannot create a memory cgroup in {}: {error}", version.root);
    // For version 2, whose root disables the controller in child groups.
    let _ = std::fs::write(Path::new(version.root).join("cgroup.subtree_control"), "+memory");
    std::fs::create_dir(&folder).map_err(wrong)?;
    std::fs::write(folder.join(version.limit), limit.to_string()).map_err(|error| {
        let _ = std::fs::remove_dir(&folder);
        wrong(error)
    })?;
    Ok((folder, version))
}

/// Returns the number after `name` in a file of `name number` lines.
fn field(file: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Returns a process and all descendants.
fn family(process: u32) -> Vec<u32> {
    let mut family = vec![process];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        family.extend(children(parent));
        next += 1;
    }
    family
}

/// Returns the child processes of a process.
pub(super) fn children(process: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task"));
    let lists = threads.into_iter().flatten().flatten().filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("children")).ok()?;
        Some(
            text.split_whitespace()
                .filter_map(|id| id.parse().ok())
                .collect::<Vec<u32>>(),
        )
    });
    lists.flatten().collect()
}

/// Returns the process's memory in bytes, excluding mapped files.
fn unshared(process: u32) -> u64 {
    ["RssAnon", "RssShmem"]
        .iter()
        .filter_map(|field| bytes(process, field))
        .sum()
}

/// Memory sampling thread.
pub(crate) struct Watch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Watch {
    /// Stops sampling and returns the peak memory without mapped files, in bytes.
    pub(crate) fn peak(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_distinguished_from_longer_names() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory.stat");
        std::fs::write(&file, "total_rss_huge 5\ntotal_rss 7\n").unwrap();
        assert_eq!(field(&file, "total_rss"), Some(7));
        assert_eq!(field(&file, "oom_kill"), None);
    }
}
