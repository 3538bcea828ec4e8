//! How much memory a host may hold, and what that leaves for the largest thing of each kind.

use super::error::ConfigError;
use super::limits::Limits;
use frostline_batching::Budget;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// The least budget: a host itself takes some 100 MiB, one lane with a small network 160, one photo being decoded 64, one grant 32.
const LEAST: u64 = 384 * MIB;

/// Of the budget: what connections may have sent before it is let in, all together.
const WINDOWS: u64 = 32;

/// Of the budget: what the host itself may take between two looks at it, beside its connections' windows.
const SPARE: u64 = 64;

/// Of the budget: what is for small requests alone. A tenant's part of it takes some 2,000 samples at 512 MiB, 15,000 at 4 GiB.
const SMALL: u64 = 128;

/// What a machine is taken to have that does not tell (no `/proc`): the least on which the usual networks run.
const DEFAULT_MEMORY: u64 = 4096 * MIB;

/// Checks a budget that was written, or takes 80 % of what is available: the rest is for the system's own caches and for whoever else is
/// on the machine.
pub(super) fn checked_budget(written: Option<u64>) -> Result<u64, ConfigError> {
    budget_within(written, available_memory(Path::new("/")))
}

fn budget_within(written: Option<u64>, available: u64) -> Result<u64, ConfigError> {
    let budget = written.unwrap_or(available / 5 * 4);
    let wrong = |rule: String| ConfigError::Value {
        key: "memory_budget",
        value: format!("{} ({} MiB)", budget, budget / MIB),
        rule,
    };
    if budget > available {
        return Err(wrong(format!(
            "the machine or its memory cgroup has {available} bytes ({} MiB); lower it, or remove the key for 80 % of that",
            available / MIB
        )));
    }
    if budget < LEAST {
        return Err(wrong(format!(
            "a host needs at least {LEAST} bytes ({} MiB): for itself, one lane, one image being decoded and one grant; give it more \
             memory",
            LEAST / MIB
        )));
    }
    Ok(budget)
}

/// Bytes that this process may take: the least that the machine and the memory cgroups above it allow.
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

/// The files that may say what memory this process's groups have. A container sees its own group as the root of the tree, whatever the
/// path says, so each part of the path is tried.
fn cgroup_limits(root: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let file = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
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
    };
    text.lines().filter_map(file).flatten().collect()
}

/// A limit; none where it says `max`, and none that matters where version 1 says a number near 2^63.
fn read_limit(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

impl Limits {
    /// The same, lowered to what a host of this budget can hold; says what was lowered.
    pub(super) fn lowered_to(mut self, budget: u64) -> (Self, Vec<String>) {
        let mut lowered = Vec::new();
        let mut lower = |what: &str, limit: &mut u64, most: u64| {
            if *limit > most {
                lowered.push(format!("{what} from {limit} to {most}"));
                *limit = most;
            }
        };
        lower("object bytes", &mut self.object_bytes, budget / 16);
        lower("image decoding bytes", &mut self.decode.max_bytes, budget / 6);
        lower("model bytes", &mut self.model_bytes, budget / 5);
        lower("guest bytes", &mut self.guest_bytes, budget / 16);
        self.window = self.window_of(budget / WINDOWS);
        (self, lowered)
    }

    /// What there is to reserve of `budget` bytes, and what requests leave to reads, decoding and lanes.
    pub(crate) fn budget(&self, bytes: u64) -> Budget {
        Budget {
            bytes,
            spare: bytes / SPARE + self.windows(),
            small: bytes / SMALL,
            // An object that is sent as it is, or one sample of a grant.
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

    /// A machine with these files.
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
    fn the_least_of_the_machine_and_all_groups_above_counts() {
        let available = |files: &[(&str, &str)]| available_memory(root(files).path());
        assert_eq!(available(&[]), DEFAULT_MEMORY);
        assert_eq!(available(&[MEMINFO]), 8192 << 10);
        let second = ("proc/self/cgroup", "0::/a/b\n");
        let max = ("sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(available(&[MEMINFO, second, max]), 8192 << 10);
        let parent = ("sys/fs/cgroup/a/memory.max", "4096\n");
        assert_eq!(available(&[MEMINFO, second, max, parent]), 4096);
        // In a container the group is the tree's root, and its path is that outside.
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
    fn a_budget_that_cannot_be_is_refused_with_both_numbers() {
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
        for budget in [LEAST, 1 << 30, 4 << 30, 64 << 30] {
            let (limits, lowered) = Limits::default().lowered_to(budget);
            let Budget {
                read, decode, lane, ..
            } = limits.budget(budget);
            assert!(budget - read - decode - lane >= budget / 2, "{budget}");
            assert_eq!(lowered.is_empty(), budget > 4 << 30, "{lowered:?}");
        }
        let (limits, _) = Limits::default().lowered_to(4 << 30);
        assert_eq!((limits.window, limits.windows()), (512 << 10, 128 << 20));
        assert!(limits.decode.max_bytes > 61_000_000 * 11, "full-frame cameras");
    }
}
