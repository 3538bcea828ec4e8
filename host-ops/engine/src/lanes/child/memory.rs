//! Measurement and limits of this process's memory. A lane's process has no other work, so the system's
//! counters measure the current execution.

use super::super::batch::RunMemory;
use super::command::{MAPPED_FROM, TRIMMED_BEYOND};
use frostline_walls::{ProcessUsage, StatusFile};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// Slack for address space that malloc and threads map without touching: the stack of a thread started by
/// ONNX Runtime (8 MiB), and the ends of blocks and heaps. It also covers the memory needed to report the
/// result.
const SLACK: u64 = 16 << 20;

/// A measurement is discarded if the uncertainty exceeds this part (1/16) of the measured value.
const UNSURE: u64 = 16;

/// Files in `/proc` that report the memory of this process and reset the recorded peak. They must be opened
/// before the process enters the walls.
struct Accounts {
    status: StatusFile,
    clear: File,
}

/// Returns the files, or `None` without `/proc`.
fn accounts() -> Option<&'static Accounts> {
    static ACCOUNTS: OnceLock<Option<Accounts>> = OnceLock::new();
    ACCOUNTS
        .get_or_init(|| {
            Some(Accounts {
                status: StatusFile::own().ok()?,
                clear: File::options().write(true).open("/proc/self/clear_refs").ok()?,
            })
        })
        .as_ref()
}

/// Returns true if memory usage can be measured. The first call must precede the walls.
pub(super) fn is_measured() -> bool {
    fresh_usage().is_some()
}

/// Returns the current usage, or `None` without `/proc`.
pub(crate) fn usage() -> Option<ProcessUsage> {
    accounts()?.status.read()
}

/// Returns the peak of private memory since [`fresh_usage`].
fn own_peak(usage: &ProcessUsage) -> u64 {
    usage.peak.saturating_sub(mapped(usage))
}

/// Returns the mapped pages of files and shared memory.
fn mapped(usage: &ProcessUsage) -> u64 {
    usage.files + usage.shared
}

/// Limits the memory of the process while this value exists.
pub(super) struct Bound {
    reservation: u64,
    /// Private memory when the limit was set.
    anonymous: u64,
}

/// Limits the process to `reservation` bytes in addition to the memory that it holds. Further allocations
/// fail.
pub(super) fn bound(reservation: Option<u64>) -> Option<Bound> {
    let reservation = reservation?;
    let now = usage()?;
    let bound = Bound {
        reservation,
        anonymous: now.anonymous,
    };
    bound.renew(&now).then_some(bound)
}

/// Raises the limit before files of `bytes` are mapped. ONNX Runtime maps files writable, so they count
/// towards the limit.
pub(super) fn widen(bytes: u64) {
    if let Some(current) = getrlimit(Resource::Data).current {
        limit_data(Some(current.saturating_add(bytes)));
    }
}

impl Bound {
    /// Sets the limit to the private address space used `now`, plus the rest of the reservation and
    /// [`SLACK`]. Returns true on success.
    pub(super) fn renew(&self, now: &ProcessUsage) -> bool {
        limit_data(Some(
            now.data.saturating_add(self.rest(now)).saturating_add(SLACK),
        ))
    }

    /// Returns true if `bytes` of memory outside of this process, which the limit does not cover, fit into the
    /// rest of the reservation.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        bytes <= SLACK || usage().is_none_or(|now| bytes <= self.rest(&now).saturating_add(SLACK))
    }

    /// Returns the bytes of the reservation that are not used `now`.
    fn rest(&self, now: &ProcessUsage) -> u64 {
        let taken = now.anonymous.saturating_sub(self.anonymous);
        self.reservation.saturating_sub(taken)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        limit_data(None);
    }
}

/// Releases the free memory at the end of malloc's heap, by allocating and freeing enough blocks to exceed
/// malloc's trim threshold.
pub(super) fn give_back() {
    const BLOCK: usize = MAPPED_FROM - (64 << 10);
    let blocks: Vec<Vec<u8>> = (0..=2 * (TRIMMED_BEYOND / MAPPED_FROM))
        .map_while(|_| {
            let mut block = Vec::new();
            block.try_reserve_exact(BLOCK).ok().map(|()| block)
        })
        .collect();
    drop(std::hint::black_box(blocks));
}

/// Sets only the soft limit, which the process can raise again.
fn limit_data(bytes: Option<u64>) -> bool {
    let maximum = getrlimit(Resource::Data).maximum;
    let current = match (bytes, maximum) {
        (Some(bytes), Some(maximum)) => Some(bytes.min(maximum)),
        (bytes, maximum) => bytes.or(maximum),
    };
    setrlimit(Resource::Data, Rlimit { current, maximum }).is_ok()
}

/// Memory of the idle process without memory that malloc retains from earlier executions. Retained memory
/// counts as held, but it is unknown how much of it an execution reuses.
#[derive(Default)]
pub(super) struct Floor(Option<u64>);

impl Floor {
    /// Resets the floor after a session was closed.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// Updates the floor between opening a session, which added `grown` bytes, and the execution. Returns the
    /// part of `bytes` above the floor.
    fn sink(&mut self, grown: u64, bytes: u64) -> u64 {
        let floor = self
            .0
            .map_or(bytes, |floor| bytes.min(floor.saturating_add(grown)));
        bytes - *self.0.insert(floor)
    }
}

/// Measures an execution.
pub(super) struct Meter {
    /// Bytes used by the execution that were allocated before.
    used: u64,
    /// Usage after the batch was read.
    begun: Option<ProcessUsage>,
    /// Usage when the session was ready, the part of this usage that does not belong to the execution, and
    /// the part that malloc retained.
    opened: Option<(ProcessUsage, u64, u64)>,
}

impl Meter {
    /// Starts a measurement with a batch of this size in memory.
    pub(super) fn new(batch: usize) -> Self {
        Self {
            used: batch as u64,
            begun: fresh_usage(),
            opened: None,
        }
    }

    /// Returns the peak usage while a session was opened. If `is_mapped`, returns only the remaining memory,
    /// because temporarily mapped files hide the peak.
    pub(super) fn opening(&self, is_mapped: bool) -> Option<u64> {
        let begun = self.begun?;
        let now = usage()?;
        let most = match is_mapped {
            true => now.anonymous,
            false => own_peak(&now),
        };
        Some(most.saturating_sub(begun.anonymous))
    }

    /// Records that the session is ready, with buffers of `kept` bytes for inputs and outputs. Returns the
    /// current usage.
    pub(super) fn opened(&mut self, floor: &mut Floor, kept: usize) -> Option<ProcessUsage> {
        self.used += kept as u64;
        let begun = self.begun?;
        let now = fresh_usage()?;
        let without = now.anonymous.saturating_sub(self.used);
        let grown = now.anonymous.saturating_sub(begun.anonymous);
        self.opened = Some((now, without, floor.sink(grown, without)));
        Some(now)
    }

    /// Returns the result after the execution.
    pub(super) fn end(self) -> Option<RunMemory> {
        let now = usage()?;
        let spare = self.opened.map_or(0, |(_, _, spare)| spare);
        let taken = self.opened.and_then(|(before, without, _)| {
            let taken = own_peak(&now).saturating_sub(without);
            // File pages mapped after the peak do not belong to it, but the time of their mapping is unknown.
            let unsure = mapped(&now).saturating_sub(mapped(&before));
            (unsure <= (taken + spare) / UNSURE).then_some(taken)
        });
        Some(RunMemory {
            taken,
            held: now.anonymous,
            spare,
        })
    }
}

/// Resets the peak and returns the current usage.
fn fresh_usage() -> Option<ProcessUsage> {
    accounts()?.clear.write_all_at(b"5", 0).ok()?;
    usage()
}
