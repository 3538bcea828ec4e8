//! Memory and threads of a process, as counted by the system.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Buffer size for reading `/proc/PID/status`, which is smaller.
const STATUS_BYTES: usize = 16 << 10;

/// Opened `/proc/PID/status`. Reading continues to work after the process is hidden from other processes or
/// has entered walls, and never refers to a later process with the same id.
#[derive(Debug)]
pub struct StatusFile(File);

/// Counters of a process. All sizes are in bytes.
#[derive(Debug, Clone, Copy)]
pub struct ProcessUsage {
    /// Resident private memory.
    pub anonymous: u64,
    /// Resident pages of mapped files.
    pub files: u64,
    /// Resident pages of mapped shared memory.
    pub shared: u64,
    /// Private memory in the swap space.
    pub swapped: u64,
    /// Page tables.
    pub tables: u64,
    /// Peak of the resident memory.
    pub peak: u64,
    /// Private writable address space, which `RLIMIT_DATA` limits.
    pub data: u64,
    /// Number of threads.
    pub threads: u64,
}

impl StatusFile {
    /// Opens the counters of this process.
    ///
    /// # Errors
    /// Returns the operating system's error, for example if `/proc` is not mounted.
    pub fn own() -> io::Result<Self> {
        File::open("/proc/self/status").map(Self)
    }

    /// Opens the counters of a child process. Call this function before the child hides, because `/proc` may
    /// be mounted so that hidden processes are invisible.
    ///
    /// # Errors
    /// Returns the operating system's error, for example if `/proc` is not mounted.
    pub fn open(process: u32) -> io::Result<Self> {
        File::open(format!("/proc/{process}/status")).map(Self)
    }

    /// Returns the current counters, or `None` if the process has exited.
    pub fn read(&self) -> Option<ProcessUsage> {
        let mut text = [0; STATUS_BYTES];
        let read = self.0.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..read)?).ok()?;
        Some(ProcessUsage {
            anonymous: bytes(text, "RssAnon")?,
            files: bytes(text, "RssFile")?,
            shared: bytes(text, "RssShmem")?,
            swapped: bytes(text, "VmSwap")?,
            tables: bytes(text, "VmPTE")?,
            peak: bytes(text, "VmHWM")?,
            data: bytes(text, "VmData")?,
            threads: field(text, "Threads")?.parse().ok()?,
        })
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

/// Returns the value of a field in kilobytes, converted to bytes.
fn bytes(text: &str, name: &str) -> Option<u64> {
    let kilobytes: u64 = field(text, name)?.strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes << 10)
}

impl ProcessUsage {
    /// Returns the memory that only this process causes: private memory, resident or swapped, and page tables.
    pub fn private(&self) -> u64 {
        self.anonymous + self.swapped + self.tables
    }
}
