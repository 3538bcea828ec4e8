//! Memory that this process can still allocate.

use std::path::Path;

/// Bytes this process can still allocate: the smallest remainder of the machine (swap included) and of the
/// memory cgroups above the process. Returns `None` if the system reports neither.
pub(crate) fn available_memory(root: &Path) -> Option<u64> {
    let machine = on_machine(root);
    in_cgroups(root).into_iter().chain(machine).min()
}

fn on_machine(root: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let available = bytes_of(&text, "MemAvailable:")?;
    Some(available.saturating_add(bytes_of(&text, "SwapFree:").unwrap_or(0)))
}

/// Returns a field of `/proc/meminfo` in bytes.
fn bytes_of(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Remaining bytes of each cgroup with a limit. Inside a container, the container's group appears as the root
/// of the tree.
fn in_cgroups(root: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let path = text
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .unwrap_or("/");
    let path = Path::new(path.trim().trim_start_matches('/'));
    let tree = root.join("sys/fs/cgroup");
    path.ancestors()
        .filter_map(|part| left_in(&tree.join(part)))
        .collect()
}

/// Remaining bytes in the group. Returns `None` if the group has no limit. Inactive file pages count as free,
/// because the kernel reclaims them under pressure.
fn left_in(group: &Path) -> Option<u64> {
    let limit = number_in(&group.join("memory.max"))?;
    let taken = number_in(&group.join("memory.current"))?;
    let statistics = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let files = statistics
        .lines()
        .find_map(|line| line.strip_prefix("inactive_file "));
    let files = files.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0);
    Some(limit.saturating_sub(taken.saturating_sub(files)))
}

fn number_in(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn available_memory_is_the_smallest_remainder() {
        let root = TempDir::new().unwrap();
        let write = |file: &str, text: &str| {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        assert_eq!(available_memory(root.path()), None);
        write(
            "proc/meminfo",
            "MemTotal: 90 kB\nMemAvailable: 8 kB\nSwapFree: 1 kB\n",
        );
        assert_eq!(available_memory(root.path()), Some(9 * 1024));
        write("proc/self/cgroup", "0::/a/b\n");
        write("sys/fs/cgroup/a/b/memory.max", "max\n");
        write("sys/fs/cgroup/a/memory.max", "6000\n");
        write("sys/fs/cgroup/a/memory.current", "5000\n");
        assert_eq!(available_memory(root.path()), Some(1000));
        write("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 700\n");
        assert_eq!(available_memory(root.path()), Some(1700));
    }
}
