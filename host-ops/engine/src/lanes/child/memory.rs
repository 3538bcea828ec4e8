//! What this process takes of memory, and bounds of that: a lane's process has nothing else to do than its run, so what the system
//! counts for it is the run's.

use super::super::batch::RunMemory;
use super::command::{MAPPED_FROM, TRIMMED_BEYOND};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// What malloc and threads may take of address space beyond what a run comes to touch: the stack of a thread that ONNX Runtime starts
/// (8 MiB), the ends of blocks and heaps that are never written, and what the process needs to say how the run ended.
const SLACK: u64 = 16 << 20;

/// A figure that may be off by more than this part of itself is none.
const UNSURE: u64 = 16;

/// More than the system has to say of a process.
const STATUS_BYTES: usize = 16 << 10;

/// What `/proc` says of this process, and where its peak is counted anew. Once the process is behind its walls neither can be opened.
struct Accounts {
    status: File,
    clear: File,
}

/// `None` where there is no `/proc`.
fn accounts() -> Option<&'static Accounts> {
    static ACCOUNTS: OnceLock<Option<Accounts>> = OnceLock::new();
    let open = || {
        Some(Accounts {
            status: File::open("/proc/self/status").ok()?,
            clear: File::options().write(true).open("/proc/self/clear_refs").ok()?,
        })
    };
    ACCOUNTS.get_or_init(open).as_ref()
}

/// Bytes that the system counts for this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    /// Its own memory.
    pub(super) anonymous: u64,
    /// Pages of files and shared memory that it has mapped.
    pub(super) shared: u64,
    /// The most of both since [`fresh_usage`].
    pub(crate) peak: u64,
    /// Address space that it may write to and shares with nobody: what [`bound`] counts.
    pub(super) data: u64,
}

/// Whether the system tells what is taken. To be asked first before the walls are entered.
pub(super) fn is_measured() -> bool {
    fresh_usage().is_some()
}

/// `None` where there is no `/proc`.
pub(crate) fn usage() -> Option<Usage> {
    let mut text = [0; STATUS_BYTES];
    let read = accounts()?.status.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..read)?).ok()?;
    let field = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        Some(kilobytes << 10)
    };
    Some(Usage {
        anonymous: field("RssAnon")?,
        shared: field("RssFile")? + field("RssShmem")?,
        peak: field("VmHWM")?,
        data: field("VmData")?,
    })
}

impl Usage {
    /// The most of its own memory.
    fn own_peak(&self) -> u64 {
        self.peak.saturating_sub(self.shared)
    }
}

/// Bounds what the process may take while this lives.
pub(super) struct Bound {
    reservation: u64,
    /// What it had of its own then.
    anonymous: u64,
}

/// From now on the process may take `reservation` bytes beyond what it has. What it cannot have, malloc refuses.
pub(super) fn bound(reservation: Option<u64>) -> Option<Bound> {
    let (reservation, now) = (reservation?, usage()?);
    let bound = Bound {
        reservation,
        anonymous: now.anonymous,
    };
    bound.renew(&now).then_some(bound)
}

/// So many bytes of files are about to be mapped: they count while they are, as ONNX Runtime maps them writable.
pub(super) fn widen(bytes: u64) {
    if let Some(current) = getrlimit(Resource::Data).current {
        limit_data(Some(current.saturating_add(bytes)));
    }
}

impl Bound {
    /// Counts what is mapped `now`, and what was taken so far; whether it holds.
    pub(super) fn renew(&self, now: &Usage) -> bool {
        let taken = now.anonymous.saturating_sub(self.anonymous);
        let left = self.reservation.saturating_sub(taken);
        limit_data(Some(now.data.saturating_add(left).saturating_add(SLACK)))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        limit_data(None);
    }
}

/// Gives back what malloc keeps for the next run at the end of its heap: it does when so much is freed there that it is over its threshold.
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

/// Only the soft limit: the process may lift it again.
fn limit_data(bytes: Option<u64>) -> bool {
    let maximum = getrlimit(Resource::Data).maximum;
    let current = match (bytes, maximum) {
        (Some(bytes), Some(maximum)) => Some(bytes.min(maximum)),
        (bytes, maximum) => bytes.or(maximum),
    };
    setrlimit(Resource::Data, Rlimit { current, maximum }).is_ok()
}

/// What the process has when nothing runs and malloc keeps nothing of earlier runs for the next. What it keeps is held, and how much of it
/// a run uses cannot be seen.
#[derive(Default)]
pub(super) struct Floor(Option<u64>);

impl Floor {
    /// A session was closed: nothing is known any more.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// The session is there, which took `grown` bytes, and the run has yet to begin: what is kept beyond the floor, of `bytes` in all.
    fn sink(&mut self, grown: u64, bytes: u64) -> u64 {
        let floor = self
            .0
            .map_or(bytes, |floor| bytes.min(floor.saturating_add(grown)));
        bytes - *self.0.insert(floor)
    }
}

/// Measures one run.
pub(super) struct Meter {
    /// Bytes of what was there before the run and is used by it.
    used: u64,
    /// When the batch had been taken in.
    begun: Option<Usage>,
    /// When the session was there: what the process had then without the run, and how much of that was kept for it.
    opened: Option<(Usage, u64, u64)>,
}

impl Meter {
    /// Begins, with a batch of so many bytes in memory.
    pub(super) fn new(batch: usize) -> Self {
        Self {
            used: batch as u64,
            begun: fresh_usage(),
            opened: None,
        }
    }

    /// A session was opened: the most that this took. Of one `is_mapped` it is what is left of that: files that were mapped for a while
    /// hide the rest.
    pub(super) fn opening(&self, is_mapped: bool) -> Option<u64> {
        let (begun, now) = (self.begun?, usage()?);
        let most = match is_mapped {
            true => now.anonymous,
            false => now.own_peak(),
        };
        Some(most.saturating_sub(begun.anonymous))
    }

    /// The session is there, with `kept` bytes of memory for inputs and outputs; what the process takes now.
    pub(super) fn opened(&mut self, floor: &mut Floor, kept: usize) -> Option<Usage> {
        self.used += kept as u64;
        let (begun, now) = (self.begun?, fresh_usage()?);
        let without = now.anonymous.saturating_sub(self.used);
        let grown = now.anonymous.saturating_sub(begun.anonymous);
        self.opened = Some((now, without, floor.sink(grown, without)));
        Some(now)
    }

    /// The run has ended.
    pub(super) fn end(self) -> Option<RunMemory> {
        let now = usage()?;
        let spare = self.opened.map_or(0, |(_, _, spare)| spare);
        let taken = self.opened.and_then(|(before, without, _)| {
            let taken = now.own_peak().saturating_sub(without);
            // Pages of files that came after the peak are no part of it, and nobody knows when they came.
            let unsure = now.shared.saturating_sub(before.shared);
            (unsure <= (taken + spare) / UNSURE).then_some(taken)
        });
        Some(RunMemory {
            taken,
            held: now.anonymous,
            spare,
        })
    }
}

/// What is taken now, from where the peak counts anew.
fn fresh_usage() -> Option<Usage> {
    accounts()?.clear.write_all_at(b"5", 0).ok()?;
    usage()
}
