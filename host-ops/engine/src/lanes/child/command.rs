//! Command and environment of a lane's process.

use super::super::ChildLanes;
use crate::library::{NO_TELEMETRY, PATH_VARIABLE};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Variables that ONNX Runtime and CUDA need. The rest of the environment may contain secrets and is removed.
const KEPT_VARIABLES: [&str; 4] = [
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
];

/// Settings of malloc in bytes: blocks of [`MAPPED_FROM`] and more are mapped separately, and the heap is
/// trimmed if more than [`TRIMMED_BEYOND`] is free at the end.
pub(super) const MAPPED_FROM: usize = 8 << 20;
pub(super) const TRIMMED_BEYOND: usize = 16 << 20;

/// Returns the settings of malloc, with fixed thresholds instead of ones that grow with use.
///
/// Large blocks are mapped separately and returned to the system when they are freed. The memory of a layer
/// with few rows stays for the next layer, because the system clears fresh memory page by page: if all blocks
/// are mapped separately (128 KiB), a row of DenseNet121 takes twice as long. Large blocks use few huge pages
/// if the system provides them on request (`madvise`). All threads share a heap. The figures are in
/// docs/lanes.md.
fn malloc() -> [(&'static str, String); 4] {
    [
        ("MALLOC_MMAP_THRESHOLD_", MAPPED_FROM.to_string()),
        ("MALLOC_TRIM_THRESHOLD_", TRIMMED_BEYOND.to_string()),
        ("MALLOC_ARENA_MAX", "1".to_owned()),
        ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1".to_owned()),
    ]
}

/// Creates the command for `place` with ONNX Runtime's `library` and a minimal environment.
pub(super) fn command(place: &ChildLanes, library: OsString) -> Command {
    let kept = KEPT_VARIABLES.map(|name| (name, std::env::var_os(name)));
    let kept = kept.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let mut command = Command::new(&place.program);
    command
        .args(&place.arguments)
        .env_clear()
        .envs(kept)
        .envs(malloc())
        .env(PATH_VARIABLE, library)
        .env(NO_TELEMETRY, "1")
        .current_dir("/")
        // Ctrl-C on the host's terminal must only reach the host, which drains running work.
        .process_group(0);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_lane_is_told_nothing_of_where_the_host_works_and_what_it_knows() {
        let command = command(&ChildLanes::new("/bin/lane", ["lanes"]), "/lib/engine.so".into());
        assert_eq!(command.get_current_dir(), Some(Path::new("/")));
        let known = malloc().map(|(name, _)| name);
        let known = [&known[..], &KEPT_VARIABLES, &[PATH_VARIABLE, NO_TELEMETRY]].concat();
        for (name, _) in command.get_envs() {
            assert!(known.iter().any(|known| name == *known), "{}", name.display());
        }
    }
}
