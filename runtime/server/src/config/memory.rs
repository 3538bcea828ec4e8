//! Memory budget and the limits that depend on it.

use super::error::ConfigError;
use super::limits::Limits;
use frostline_batching::Budget;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// Minimum memory budget: 100 MiB for the host process, 160 MiB for one lane with a small network, 64 MiB to
/// decode a photo, 32 MiB for a grant.
const MIN_BUDGET: u64 = 384 * MIB;

/// Divisor of the budget for the flow control windows of all connections.
const WINDOW_DIVISOR: u64 = 32;

/// Divisor of the budget for growth of the host process between two measurements, without the flow control
/// windows.
const SPARE_DIVISOR: u64 = 64;

/// Divisor of the budget for memory that is exclusive to small requests. The part of a tenant fits 2,000
/// samples with a budget of 512 MiB and 15,000 samples with 4 GiB.
const SMALL_REQUEST_DIVISOR: u64 = 128;

/// Divisor of the budget for answers to clients without a token. A refusal with the longest message needs
/// 2 KiB, so that 512 MiB leave room for 1,000 unread refusals.
const STRANGER_DIVISOR: u64 = 256;

/// Divisor of the budget for memory that only tenants with little memory can use.
const MODEST_DIVISOR: u64 = 8;

/// Assumed memory if `/proc` is missing: the minimum for the usual networks.
const DEFAULT_MEMORY: u64 = 4096 * MIB;

/// Returns the bytes of a budget for answers to clients without a token.
pub(crate) fn stranger_bytes(budget: u64) -> u64 {
    budget / STRANGER_DIVISOR
}

/// Validates a configured budget. The default is 80 % of the available memory, which leaves the rest to
/// system caches and other processes.
pub(super) fn checked_budget(written: Option<u64>) -> Result<u64, ConfigError> {
    budget_within(written, available_memory(Path::new("/")))
}

fn budget_within(written: Option<u64>, available: u64) -> Result<u64, ConfigError> {
    let budget = written.unwrap_or(available / 5 * 4);
    let rule = if budget > available {
        format!(
            "the machine or its memory cgroup has {available} bytes ({} MiB); lower it, or remove the key to use 80 %",
            available / MIB
        )
    } else if budget < MIN_BUDGET {
        format!(
            "a host needs at least {MIN_BUDGET} bytes ({} MiB): for the host process, one lane, one image being decoded and one grant; give it more \
             memory",
            MIN_BUDGET / MIB
        )
    } else {
        return Ok(budget);
    };
    Err(ConfigError::Value {
        key: "memory_budget",
        value: format!("{} ({} MiB)", budget, budget / MIB),
        rule,
    })
}

/// Returns the memory that this process may use: the minimum of the machine's memory and all cgroup limits.
fn available_memory(root: &Path) -> u64 {
    let groups = cgroup_limits(root)
        .into_iter()
        .filter_map(|file| read_limit(&file));
    groups.chain(machine_memory(root)).min().unwrap_or(DEFAULT_MEMORY)
}

fn machine_memory(root: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the files that may contain a memory limit of this process. In a container, its group is the root
/// of the tree although `/proc/self/cgroup` may show a longer path, so all ancestors of the path are tried.
fn cgroup_limits(root: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            let _ = parts.next()?;
            let controllers = parts.next()?;
            let path = parts.next()?;
            let (tree, file) = if controllers.is_empty() {
                ("sys/fs/cgroup", "memory.max")
            } else {
                controllers.split(',').find(|name| *name == "memory")?;
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            };
            let path = Path::new(path.trim_start_matches('/')).to_owned();
            let tree = root.join(tree);
            Some(
                path.ancestors()
                    .map(|part| tree.join(part).join(file))
                    .collect::<Vec<_>>(),
            )
        })
        .flatten()
        .collect()
}

/// Reads a limit. Returns `None` for `max`. cgroup version 1 shows no limit as a number near 2^63, which is
/// larger than any memory.
fn read_limit(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

impl Limits {
    /// Lowers the limits to values that fit the budget, and returns a description of each change.
    pub(super) fn lowered_to(mut self, budget: u64) -> (Self, Vec<String>) {
        let mut lowered = Vec::new();
        let limits = [
            ("object bytes", &mut self.object_bytes, budget / 16),
            ("image decoding bytes", &mut self.decode.max_bytes, budget / 6),
            ("model bytes", &mut self.model_bytes, budget / 5),
            ("guest bytes", &mut self.guest_bytes, budget / 16),
        ];
        for (what, limit, most) in limits {
            if *limit > most {
                lowered.push(format!("{what} from {limit} to {most}"));
                *limit = most;
            }
        }
        self.window = self.window_for(budget / WINDOW_DIVISOR);
        (self, lowered)
    }

    /// Divides `bytes` of memory into reserved parts: requests leave memory for reads, decoding and lanes.
    pub(crate) fn budget(&self, bytes: u64) -> Budget {
        Budget {
            bytes,
            spare: bytes / SPARE_DIVISOR + stranger_bytes(bytes) + self.total_window_bytes(),
            small: bytes / SMALL_REQUEST_DIVISOR,
            modest: bytes / MODEST_DIVISOR,
            // An object without decoding, or a grant with a single sample.
            grant: self.object_bytes,
            read: self.object_bytes,
            decode: self.decode.max_bytes,
            lane: bytes / 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a file system root with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemFree: 1 kB\nMemTotal:       8192 kB\n");

    #[test]
    fn available_memory_is_the_minimum_of_machine_and_cgroups() {
        let available = |files: &[(&str, &str)]| available_memory(root(files).path());
        assert_eq!(available(&[]), DEFAULT_MEMORY);
        assert_eq!(available(&[MEMINFO]), 8192 << 10);
        let second = ("proc/self/cgroup", "0::/a/b\n");
        let max = ("sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(available(&[MEMINFO, second, max]), 8192 << 10);
        let parent = ("sys/fs/cgroup/a/memory.max", "4096\n");
        assert_eq!(available(&[MEMINFO, second, max, parent]), 4096);
        // In a container, the group is the root of the tree, but the path is that outside of the container.
        let contained = ("sys/fs/cgroup/memory.max", "2048\n");
        assert_eq!(available(&[second, contained]), 2048);
        let first = ("proc/self/cgroup", "7:cpu,memory:/a\n2:cpuset:/\n");
        let limit = ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1024\n");
        let none = (
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        assert_eq!(available(&[first, limit, none]), 1024);
    }

    #[test]
    fn an_impossible_budget_is_refused_with_both_numbers() {
        let available = 8192 * MIB;
        assert_eq!(budget_within(None, available).unwrap(), available / 5 * 4);
        assert_eq!(budget_within(Some(available), available).unwrap(), available);
        let refused = |written| budget_within(Some(written), available).unwrap_err().to_string();
        let above = refused(available + MIB);
        assert!(
            above.contains("8193 MiB") && above.contains("8192 MiB"),
            "{above}"
        );
        let below = refused(MIB);
        assert!(below.contains("(1 MiB)") && below.contains("384 MiB"), "{below}");
    }

    #[test]
    fn limits_fit_the_budget_and_leave_room_for_grants() {
        for budget in [MIN_BUDGET, 1 << 30, 4 << 30, 64 << 30] {
            let (limits, lowered) = Limits::default().lowered_to(budget);
            let Budget {
                read, decode, lane, ..
            } = limits.budget(budget);
            assert!(budget - read - decode - lane >= budget / 2, "{budget}");
            assert_eq!(lowered.is_empty(), budget > 4 << 30, "{lowered:?}");
        }
        let (limits, _) = Limits::default().lowered_to(4 << 30);
        assert_eq!(
            (limits.window, limits.total_window_bytes()),
            (512 << 10, 128 << 20)
        );
        assert!(limits.decode.max_bytes > 61_000_000 * 11, "full-frame cameras");
    }
}
