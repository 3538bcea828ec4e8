//! Supervision of a lane's process by the host, independent of what the process reports: a thread logs the
//! output and ends the process if it exceeds its memory or its number of threads.

use super::output::{LogLimiter, OutputLine};
use super::window::Window;
use frostline_walls::{ProcessUsage, StatusFile};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Error, Read, Result};
use std::process::{Child, ChildStderr, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two measurements. The hard limit on private memory bounds what a process can use in this
/// time.
const INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};

/// Number of bytes that are read from the output at once, and the pause afterwards. A process that writes
/// faster than 0.8 MB/s waits for the host.
const READ_BYTES: usize = 16 << 10;
const READ_PAUSE: Duration = Duration::from_millis(20);

/// Memory that a process may use beyond its reservation: 16 MiB for address space that it counts as never
/// touched (`SLACK` in `memory.rs`), up to 16 MiB that malloc retains, and as much again for page tables,
/// stacks and measurement errors.
pub(super) const TOLERANCE: u64 = 64 << 20;

/// Supervised processes of the lanes and of preparations.
#[derive(Default)]
pub(crate) struct Guards {
    living: Mutex<Vec<Weak<SupervisedChild>>>,
    ended: AtomicU64,
}

/// A supervised process. Dropping this value kills the process.
pub(super) struct Guard {
    guarded: Arc<SupervisedChild>,
    thread: Option<JoinHandle<()>>,
}

struct SupervisedChild {
    child: Mutex<Child>,
    /// Opened at the start, because the process hides later. `None` without `/proc`.
    status: Option<StatusFile>,
    window: Window,
    /// Bytes that are reserved for the process. `u64::MAX` if memory is not limited.
    reserved: AtomicU64,
    max_threads: u64,
    exceeded: Mutex<Option<String>>,
    /// True after the process was killed for another reason.
    closed: AtomicBool,
}

impl Guards {
    /// Supervises `child`, whose standard error is a pipe. The limits are `reserved` bytes of memory and
    /// `max_threads` threads.
    ///
    /// # Errors
    /// Returns the operating system's error if the thread cannot be started. The process is killed.
    pub(super) fn supervise(
        self: &Arc<Self>,
        mut child: Child,
        window: Window,
        reserved: u64,
        max_threads: u64,
    ) -> Result<Guard> {
        let pipe = child.stderr.take();
        let guarded = Arc::new(SupervisedChild {
            status: StatusFile::open(child.id()).ok(),
            child: Mutex::new(child),
            window,
            reserved: AtomicU64::new(reserved),
            max_threads,
            exceeded: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        let mut guard = Guard {
            guarded: Arc::clone(&guarded),
            thread: None,
        };
        let mut living = self.living.lock();
        living.retain(|one| one.strong_count() > 0);
        living.push(Arc::downgrade(&guarded));
        drop(living);
        let guards = Arc::clone(self);
        let pipe = pipe.ok_or_else(|| Error::other("the output of the process is not a pipe"))?;
        let thread = std::thread::Builder::new().name("lane-guard".to_owned());
        #[expect(clippy::disallowed_methods, reason = "supervises a process until it ends")]
        let started = thread.spawn(move || guarded.watch(pipe, &guards.ended))?;
        guard.thread = Some(started);
        Ok(guard)
    }

    /// Returns the bytes that processes use beyond their reservations.
    pub(crate) fn unreserved_bytes(&self) -> u64 {
        let living: Vec<_> = self.living.lock().iter().filter_map(Weak::upgrade).collect();
        let beyond = living.iter().filter_map(|one| {
            let used = one.bytes(&one.usage()?);
            Some(used.saturating_sub(one.reserved.load(Ordering::Relaxed)))
        });
        beyond.sum()
    }

    /// Returns the number of processes that were ended because they exceeded a limit.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }
}

impl Guard {
    pub(super) fn id(&self) -> u32 {
        self.guarded.child.lock().id()
    }

    /// Returns true if the process is running and has not exceeded a limit.
    pub(super) fn is_alive(&self) -> bool {
        self.exceeded().is_none() && !self.guarded.has_exited()
    }

    pub(super) fn reserve(&self, bytes: u64) {
        self.guarded.reserved.store(bytes, Ordering::Relaxed);
    }

    /// Returns the private memory of the process and the memory of the window in bytes, or `None` without
    /// `/proc`.
    pub(super) fn bytes(&self) -> Option<u64> {
        Some(self.guarded.bytes(&self.guarded.usage()?))
    }

    /// Returns the limit that the process exceeded.
    pub(super) fn exceeded(&self) -> Option<String> {
        self.guarded.exceeded.lock().clone()
    }

    /// Kills the process if it is still running, logs the rest of the output and returns the exit status.
    pub(super) fn end(&mut self) -> Result<ExitStatus> {
        let mut child = self.guarded.child.lock();
        // Has no effect if the process has already ended.
        drop(child.kill());
        let status = child.wait();
        drop(child);
        self.guarded.closed.store(true, Ordering::Relaxed);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that supervises a lane's process panicked");
        }
        status
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.end());
    }
}

impl SupervisedChild {
    /// Body of the supervising thread, which ends with the process. A process that closes its output is still
    /// supervised.
    fn watch(&self, pipe: ChildStderr, ended: &AtomicU64) {
        let mut output = LogLimiter::new(Instant::now());
        let mut bytes = [0; READ_BYTES];
        let mut pipe = Some(pipe);
        loop {
            // Programs that the process started without walls may keep the pipe open.
            let last = self.closed.load(Ordering::Relaxed);
            let readable = pipe.as_ref().is_some_and(is_readable);
            if !last && let Some(how) = self.excess() {
                tracing::error!(how, "ending a lane's process");
                ended.fetch_add(1, Ordering::Relaxed);
                *self.exceeded.lock() = Some(how);
                drop(self.child.lock().kill());
            }
            if let Some(open) = pipe.as_mut().filter(|_| readable) {
                let count = open.read(&mut bytes).unwrap_or(0);
                let lines = output.push(bytes.get(..count).unwrap_or(&[]), Instant::now());
                lines.iter().for_each(log);
                if count == 0 {
                    pipe = None;
                }
            }
            if last || (pipe.is_none() && self.has_exited()) {
                break;
            }
            if readable || pipe.is_none() {
                std::thread::sleep(READ_PAUSE);
            }
        }
        output.finish(Instant::now()).iter().for_each(log);
    }

    fn has_exited(&self) -> bool {
        !matches!(self.child.lock().try_wait(), Ok(None))
    }

    fn usage(&self) -> Option<ProcessUsage> {
        self.status.as_ref()?.read()
    }

    /// Returns the private memory of the process and the memory of the window in bytes.
    fn bytes(&self, usage: &ProcessUsage) -> u64 {
        usage.private() + self.window.memory().unwrap_or(0)
    }

    /// Returns a description of the limit that the process exceeds, unless it was already ended for that.
    fn excess(&self) -> Option<String> {
        let usage = self.usage()?;
        if self.exceeded.lock().is_some() {
            return None;
        }
        let used = self.bytes(&usage);
        let reserved = self.reserved.load(Ordering::Relaxed);
        if used > reserved.saturating_add(TOLERANCE) {
            return Some(format!(
                "the process used {used} bytes of memory, but {reserved} were reserved"
            ));
        }
        let threads = usage.threads;
        let most = self.max_threads;
        (threads > most).then(|| format!("the process had {threads} threads, but the limit is {most}"))
    }
}

/// Waits up to [`INTERVAL`] for output.
fn is_readable(pipe: &ChildStderr) -> bool {
    let mut wait = [PollFd::new(pipe, PollFlags::IN)];
    poll(&mut wait, Some(&INTERVAL)).is_ok_and(|ready| ready > 0)
}

fn log(line: &OutputLine) {
    let OutputLine { text, dropped } = line;
    match dropped {
        0 => tracing::warn!(output = text, "output of a lane's process"),
        _ => tracing::warn!(output = text, dropped, "output of a lane's process"),
    }
}

#[cfg(test)]
mod needs_proc {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_closes_its_output_is_still_supervised() {
        // Closes standard error, and then uses 100 MB.
        let script = "exec 2>&-; sleep 1; x=$(head -c 100000000 /dev/zero | tr '\\0' a); sleep 600";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stderr(Stdio::piped());
        let window = Window::new().unwrap();
        let guards = Arc::<Guards>::default();
        let guard = guards.supervise(command.spawn().unwrap(), window, 0, u64::MAX);
        let guard = guard.unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while guard.is_alive() && Instant::now() < until {
            std::thread::sleep(READ_PAUSE);
        }
        assert!(guard.exceeded().unwrap().contains("bytes of memory"));
        assert_eq!(guards.ended(), 1);
    }
}
