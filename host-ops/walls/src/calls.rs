//! seccomp filter of system calls. Calls that are not listed end the process, which limits an attacker to a
//! single attempt.
//!
//! The lists are based on traces of lanes and compilers (x86-64, glibc 2.36, ONNX Runtime 1.31.1), and on the
//! sources of glibc for other versions.

use crate::{Files, WallError};
use libc::c_long;
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};
use std::collections::BTreeMap;

/// Calls that are allowed with any arguments: memory, open descriptors, threads, time, the state of the
/// process.
const ALLOWED: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getcwd,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Optional calls of libraries. They fail with `ENOSYS`, like on older kernels. `clone3` reads its flags from
/// memory, which a filter cannot inspect; glibc then falls back to `clone`.
const TRIED: &[c_long] = &[
    libc::SYS_clone3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_get_mempolicy,
    libc::SYS_ioctl,
    libc::SYS_mbind,
    libc::SYS_membarrier,
    libc::SYS_perf_event_open,
    libc::SYS_sched_setaffinity,
    libc::SYS_set_mempolicy,
    libc::SYS_statx,
];

/// Calls added to the kernel after Landlock. Future libraries will try them and fall back, as on an older
/// kernel.
const NEWER: std::ops::RangeInclusive<c_long> = libc::SYS_landlock_restrict_self + 1..=600;

/// Calls that reveal attributes of any file whose path is known, because Landlock does not cover them. ONNX
/// Runtime needs them to open weights, and the C library before version 2.39 for `fstat`. They fail like
/// [`TRIED`] in a process without files.
#[cfg(target_arch = "x86_64")]
const ATTRIBUTES: &[c_long] = &[libc::SYS_newfstatat, libc::SYS_readlink, libc::SYS_stat];
#[cfg(not(target_arch = "x86_64"))]
const ATTRIBUTES: &[c_long] = &[libc::SYS_newfstatat, libc::SYS_readlinkat];

/// Optional calls on x86-64, where libraries use the legacy calls in [`ATTRIBUTES`] instead of `readlinkat`.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_lstat,
    libc::SYS_readlinkat,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

/// Option of `prctl` to name a mapping, used by newer versions of glibc. Thread names use `PR_SET_NAME`.
const PR_SET_VMA: u64 = 0x5356_4d41;

/// Returns false if the kernel does not enforce the filter.
pub(crate) fn confine(files: Files<'_>) -> Result<bool, WallError> {
    let programs = programs(files).map_err(|error| WallError::new("seccomp", error))?;
    for program in &programs {
        match apply_filter(program) {
            Ok(()) => {}
            // The kernel does not support seccomp, or an outer sandbox rejects nested filters.
            Err(Error::Seccomp(_)) => return Ok(false),
            Err(error) => return Err(WallError::new("seccomp", error)),
        }
    }
    Ok(true)
}

/// Returns two filters; the kernel applies the stricter result. The first filter rejects optional calls, and
/// the second filter ends the process on unlisted calls.
fn programs(files: Files<'_>) -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    let refused = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let stricter = SeccompAction::KillProcess;
    let attributes = match files {
        Files::None => ATTRIBUTES,
        Files::Read(_) | Files::Write(_) => &[],
    };
    let tried = TRIED.iter().chain(OLDER).chain(attributes).copied().chain(NEWER);
    let tried: BTreeMap<_, _> = tried.map(|call| (call, Vec::new())).collect();
    let mut allowed = allowed(files)?;
    allowed.extend(tried.clone());
    Ok([
        compile(tried, SeccompAction::Allow, refused)?,
        compile(allowed, stricter, SeccompAction::Allow)?,
    ])
}

fn compile(
    rules: BTreeMap<c_long, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    action: SeccompAction,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, otherwise, action, architecture)?.try_into()
}

/// Flags of `clone` that create namespaces.
const NAMESPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

fn allowed(files: Files<'_>) -> Result<BTreeMap<c_long, Vec<SeccompRule>>, seccompiler::BackendError> {
    let executable = libc::PROT_EXEC.unsigned_abs().into();
    let sharing = libc::MAP_TYPE.unsigned_abs().into();
    let private = libc::MAP_PRIVATE.unsigned_abs().into();
    let own = u64::from(std::process::id());
    let thread = libc::CLONE_THREAD.unsigned_abs().into();
    let of_clone = thread | u64::from(NAMESPACES.unsigned_abs());
    let writes = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC)
        .unsigned_abs()
        .into();
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> = BTreeMap::from([
        // No memory becomes executable. Memory is private, because the counters of a process do not contain
        // shared memory that it no longer maps.
        (
            libc::SYS_mmap,
            vec![all([masked(2, executable, 0)?, masked(3, sharing, private)?])?],
        ),
        (libc::SYS_mprotect, vec![all([masked(2, executable, 0)?])?]),
        // Threads are allowed, processes and namespaces are not.
        (libc::SYS_clone, vec![all([masked(0, of_clone, thread)?])?]),
        // Limits of this process only.
        (
            libc::SYS_prlimit64,
            vec![all([equal(0, 0)?])?, all([equal(0, own)?])?],
        ),
        // Used by `abort`.
        (libc::SYS_tgkill, vec![all([equal(0, own)?])?]),
        (
            libc::SYS_prctl,
            vec![
                all([equal(0, libc::PR_SET_NAME.unsigned_abs().into())?])?,
                all([equal(0, PR_SET_VMA)?])?,
            ],
        ),
        (
            libc::SYS_fcntl,
            vec![
                all([equal(1, libc::F_DUPFD_CLOEXEC.unsigned_abs().into())?])?,
                all([equal(1, libc::F_GETFD.unsigned_abs().into())?])?,
                all([equal(1, libc::F_SETFD.unsigned_abs().into())?])?,
                all([equal(1, libc::F_GETFL.unsigned_abs().into())?])?,
                // The host writes to the same open file, and would append at the end.
                all([
                    equal(1, libc::F_SETFL.unsigned_abs().into())?,
                    masked(2, libc::O_APPEND.unsigned_abs().into(), 0)?,
                ])?,
            ],
        ),
        (libc::SYS_openat, vec![all([masked(2, writes, 0)?])?]),
    ]);
    if let Files::Write(_) = files {
        let of_files = [libc::SYS_openat, libc::SYS_unlinkat];
        rules.extend(of_files.map(|call| (call, Vec::new())));
        #[cfg(target_arch = "x86_64")]
        rules.insert(libc::SYS_unlink, Vec::new());
    }
    let always = ALLOWED.iter().chain(ATTRIBUTES);
    rules.extend(always.map(|call| (*call, Vec::new())));
    Ok(rules)
}

/// Returns a rule that allows a call if all conditions hold.
fn all<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(conditions.into())
}

fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    condition(argument, SeccompCmpOp::MaskedEq(mask), value)
}

fn equal(argument: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    condition(argument, SeccompCmpOp::Eq, value)
}

fn condition(
    argument: u8,
    compare: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    // The kernel reads these arguments as 32-bit values and ignores the upper half.
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value)
}
