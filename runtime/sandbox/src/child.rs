//! Compiling a guest in a child process, seen from outside.

use crate::artefact_load::Compiled;
use crate::compiler::{ChildCompiler, DONE, REFUSED};
use crate::error::{CompileCost, SandboxError};
use crate::text::{MESSAGE, one_line};
use frostline_tensor::Cause;
use parking_lot::Mutex;
use rustix::process::Signal;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// How often a child that has said everything is asked whether it has ended.
const REAP: Duration = Duration::from_millis(1);

/// The most of the child's words that are read, in bytes.
const WORDS: u64 = 4096;

/// What a process says that is refused memory, from Rust's own allocator and from the system.
const OUT_OF_MEMORY: [&str; 3] = ["memory allocation of", "Cannot allocate memory", "out of memory"];

/// A child process, once there is one.
#[derive(Default)]
struct Slot {
    child: Option<Child>,
    cancelled: bool,
}

/// One compilation in a child process; whoever has to do with it holds a clone.
#[derive(Clone, Default)]
pub(crate) struct Compilation(Arc<Mutex<Slot>>);

/// Ends the child process of a compilation, or keeps it from starting, when dropped.
pub(crate) struct EndOnDrop(pub(crate) Compilation);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        let mut slot = self.0.0.lock();
        slot.cancelled = true;
        if let Some(Err(error)) = slot.child.as_mut().map(Child::kill) {
            tracing::warn!(%error, "cannot end a process that compiles a guest");
        }
    }
}

impl Compilation {
    /// Compiles a guest whose bytes have been checked; blocks until the child has ended.
    pub(crate) fn run(
        &self,
        program: &Path,
        arguments: &[OsString],
        compiler: &ChildCompiler,
        bytes: &[u8],
    ) -> Result<Compiled, SandboxError> {
        let failed = |error: io::Error| {
            let text = format!("the compiler {} failed", program.display());
            SandboxError::host(Cause::explained(text, error))
        };
        let pipes = self.start(program, arguments, compiler).map_err(failed)?;
        let (answer, said) = pipes.exchange(bytes, compiler.memory_bytes);
        let status = self.wait().map_err(failed)?;
        match answer {
            Ok((DONE, code)) if status.success() => Ok(Compiled::by_child(code)),
            Ok((REFUSED, reason)) if status.success() => Err(refused(&reason, compiler)),
            _ => Err(ended(status, &said, compiler)),
        }
    }

    fn start(&self, program: &Path, arguments: &[OsString], compiler: &ChildCompiler) -> io::Result<Pipes> {
        let mut slot = self.0.lock();
        if slot.cancelled {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        let mut child = Command::new(program)
            .args(arguments)
            .args(compiler.flags())
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let pipes = Pipes::of(&mut child);
        slot.child = Some(child);
        pipes.ok_or_else(|| io::Error::other("it has no standard streams"))
    }

    fn wait(&self) -> io::Result<ExitStatus> {
        loop {
            // Not held while waiting, so that it can be ended meanwhile.
            let ended = self.0.lock().child.as_mut().map(Child::try_wait);
            match ended {
                Some(Ok(Some(status))) => return Ok(status),
                Some(Ok(None)) => std::thread::sleep(REAP),
                Some(Err(error)) => return Err(error),
                None => return Err(io::Error::other("it never started")),
            }
        }
    }
}

struct Pipes {
    input: ChildStdin,
    output: ChildStdout,
    words: ChildStderr,
}

impl Pipes {
    fn of(child: &mut Child) -> Option<Self> {
        Some(Self {
            input: child.stdin.take()?,
            output: child.stdout.take()?,
            words: child.stderr.take()?,
        })
    }

    /// Sends the guest; returns the child's answer, where it gave one, and what it said besides.
    fn exchange(mut self, bytes: &[u8], most: u64) -> (io::Result<(u8, Vec<u8>)>, Vec<u8>) {
        // A child that ends early breaks the pipe; how it ended says more.
        let _ = self.input.write_all(bytes);
        drop(self.input);
        let answer = read_answer(&mut self.output, most);
        let mut said = Vec::new();
        let _ = (&mut self.words).take(WORDS).read_to_end(&mut said);
        (answer, said)
    }
}

fn read_answer(output: &mut impl Read, most: u64) -> io::Result<(u8, Vec<u8>)> {
    let mut status = [0];
    output.read_exact(&mut status)?;
    let mut length = [0; 8];
    output.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    let mut body = Vec::new();
    // What a child made fits in its memory.
    let read = output.take(length.min(most)).read_to_end(&mut body)?;
    if u64::try_from(read).ok() != Some(length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let [status] = status;
    Ok((status, body))
}

fn refused(reason: &[u8], compiler: &ChildCompiler) -> SandboxError {
    let reason = String::from_utf8_lossy(reason);
    if OUT_OF_MEMORY.iter().any(|words| reason.contains(words)) {
        return over_memory(compiler);
    }
    SandboxError::not_a_guest(one_line(&reason, MESSAGE))
}

fn over_memory(compiler: &ChildCompiler) -> SandboxError {
    SandboxError::TooCostly {
        cost: CompileCost::MemoryBytes,
        allowed: compiler.memory_bytes,
    }
}

/// Why a child that gave no answer ended.
fn ended(status: ExitStatus, said: &[u8], compiler: &ChildCompiler) -> SandboxError {
    let said = one_line(&String::from_utf8_lossy(said), MESSAGE);
    if status.signal() == Some(Signal::XCPU.as_raw()) {
        return SandboxError::TooCostly {
            cost: CompileCost::CpuSeconds,
            allowed: compiler.cpu_seconds,
        };
    }
    if OUT_OF_MEMORY.iter().any(|words| said.contains(words)) {
        return over_memory(compiler);
    }
    match status.signal() {
        Some(signal) => {
            SandboxError::not_a_guest(format!("the compiler crashed on it (signal {signal}): {said}"))
        }
        None => SandboxError::host(format!(
            "the process that compiles guests failed ({status}): {said}"
        )),
    }
}
