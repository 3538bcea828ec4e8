//! How a lane's process is started: what it finds around it.

use super::super::ChildLanes;
use crate::library::{NO_TELEMETRY, PATH_VARIABLE};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What ONNX Runtime and CUDA need of the environment. The rest, with whatever secrets it holds, stays with the host.
const KEPT_VARIABLES: [&str; 4] = [
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
];

/// From so many bytes on a block is mapped apart, and beyond so many free ones at its end the heap is cut back.
pub(super) const MAPPED_FROM: usize = 8 << 20;
pub(super) const TRIMMED_BEYOND: usize = 16 << 20;

/// How malloc works there: the same from the first run on, where its thresholds would grow with use. What is large is mapped apart and goes
/// back when it is freed; what a layer of a few rows takes stays for the next layer, as the system clears fresh memory page by page: with all
/// of it mapped apart (128 KiB) a row of DenseNet121 takes twice as long. Where the system lends huge pages to who asks (`madvise`), large
/// blocks come in few of them. Threads share one heap. The figures are in docs/lanes.md.
fn malloc() -> [(&'static str, String); 4] {
    [
        ("MALLOC_MMAP_THRESHOLD_", MAPPED_FROM.to_string()),
        ("MALLOC_TRIM_THRESHOLD_", TRIMMED_BEYOND.to_string()),
        ("MALLOC_ARENA_MAX", "1".to_owned()),
        ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1".to_owned()),
    ]
}

/// The program of `place` with ONNX Runtime's `library`, without what else is in the host's environment.
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
        // Ctrl-C on the host's terminal is for the host, which lets running work finish.
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
