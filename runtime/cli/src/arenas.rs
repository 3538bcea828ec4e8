//! What can only be said to a host before its process starts: how much memory it keeps that it no longer needs, and that nobody is told of
//! its work.
//!
//! Another allocator would need no second start, but keeps more: over 4,000 hostile runs (`isolation` of the benchmarks) a host grows by
//! 5 MiB with glibc's two arenas, by 58 MiB with jemalloc and by 516 MiB with mimalloc.

use crate::program::this_program;
use frostline_engine::NO_TELEMETRY;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The setting of glibc's allocator that says how many arenas it may make. Other allocators do not look at it.
const ARENAS: &str = "MALLOC_ARENA_MAX";

/// From how many bytes on a block is the system's own and goes back to it at once, and how much may lie free at the end of an arena. Left to
/// itself glibc raises the first to 32 MiB with the first such block that is freed: 24 requests of 16 MiB then left 388 MB behind. The
/// tensors of a grant (16 photos as pixels are 10 MB) stay below, for memory that is touched for the first time is slow.
const RETURNED: [(&str, &str); 2] = [
    ("MALLOC_MMAP_THRESHOLD_", "12582912"),
    ("MALLOC_TRIM_THRESHOLD_", "67108864"),
];

/// Fewest and most arenas: threads wait for one another in one, and what lies free in one is of no use to another.
const FEWEST: usize = 2;
const MOST: usize = 8;

/// Starts this program again with few arenas and without ONNX Runtime's telemetry, unless both were said before: they can only be said
/// before a process starts. By default there are eight arenas for each core, among which a host's short-lived threads scatter what they
/// free; and ONNX Runtime sends what it is used for to its vendor. The process stays the same to whoever started it. Where that fails the
/// host goes on as it is.
pub(crate) fn keep_few() {
    let arenas = std::env::var_os(ARENAS);
    if arenas.is_some() && std::env::var_os(NO_TELEMETRY).is_some() {
        return;
    }
    let Ok(program) = this_program() else {
        return;
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut arguments = std::env::args_os();
    let name = arguments
        .next()
        .unwrap_or_else(|| program.clone().into_os_string());
    let error = Command::new(program)
        .arg0(name)
        .args(arguments)
        .envs(RETURNED.into_iter().filter(|_| arenas.is_none()))
        .env(
            ARENAS,
            arenas.unwrap_or_else(|| (cores / 4).clamp(FEWEST, MOST).to_string().into()),
        )
        .env(NO_TELEMETRY, "1")
        .exec();
    tell!(
        "warning: {ARENAS} and {NO_TELEMETRY} cannot be set, so this host may keep more memory than it needs, and ONNX Runtime tell its vendor what it is used for: {error}"
    );
}
