//! Environment variables that must be set before the process of a host starts. They limit the memory kept by
//! the allocator and disable telemetry.
//!
//! Other allocators need no second start, but keep more memory. Over 4,000 hostile runs (`isolation` in the
//! benchmarks), a host grows by 5 MiB with two arenas of glibc, by 58 MiB with jemalloc and by 516 MiB with
//! mimalloc.

use crate::program::this_program;
use frostline_engine::NO_TELEMETRY;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Maximum number of arenas in glibc's allocator. Other allocators ignore this variable.
const ARENAS: &str = "MALLOC_ARENA_MAX";

/// Size in bytes from which a block is returned to the system when it is freed, and maximum free memory at
/// the end of an arena. By default, glibc raises the first threshold up to 32 MiB when such a block is freed.
/// After 24 requests with 16 MiB, 388 MB remained allocated in this case. Tensors of a grant (10 MB for 16
/// photos as pixels) are below the threshold, because the first access to new memory is slow.
const ALLOCATOR_THRESHOLDS: [(&str, &str); 2] = [
    ("MALLOC_MMAP_THRESHOLD_", "12582912"),
    ("MALLOC_TRIM_THRESHOLD_", "67108864"),
];

/// Limits for the number of arenas. Threads that share an arena wait for each other, but free memory in an
/// arena is not available to threads that use different arenas.
const FEWEST: usize = 2;
const MOST: usize = 8;

/// Restarts this program with few arenas and without ONNX Runtime's telemetry, unless both variables are
/// already set. By default, glibc uses eight arenas per core, and the short-lived threads of a host fragment
/// all of these. ONNX Runtime sends usage data to the vendor by default. `exec` keeps the process id. If the
/// restart fails, the host continues with a warning.
pub(crate) fn restart_with_few_arenas() {
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
        .envs(ALLOCATOR_THRESHOLDS.into_iter().filter(|_| arenas.is_none()))
        .env(
            ARENAS,
            arenas.unwrap_or_else(|| (cores / 4).clamp(FEWEST, MOST).to_string().into()),
        )
        .env(NO_TELEMETRY, "1")
        .exec();
    tell!(
        "warning: cannot set {ARENAS} and {NO_TELEMETRY}, so this host may use more memory than necessary, and ONNX Runtime may send usage data to its vendor: {error}"
    );
}
