//! Parent side of compilation in a child process.

use crate::compiler::{COMPILED, ChildCompiler, REFUSED};
use crate::error::{CompileCost, SandboxError};
use crate::text::{MAX_MESSAGE_BYTES, one_line};
use crate::unchecked::Compiled;
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

/// Poll interval for the exit status after the child has closed the output.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Maximum number of bytes read from standard error.
const STDERR_LIMIT: u64 = 4096;

/// Fragments of out-of-memory messages of Rust's allocator and the system.
const OUT_OF_MEMORY: [&str; 3] = ["memory allocation of", "Cannot allocate memory", "out of memory"];

/// State of the child process.
#[derive(Default)]
struct ChildState {
    child: Option<Child>,
    cancelled: bool,
}

/// Compilation in a child process. Clones refer to the same process.
#[derive(Clone, Default)]
pub(crate) struct Compilation(Arc<Mutex<ChildState>>);

/// On drop, kills the child process of a compilation or prevents its start.
pub(crate) struct KillOnDrop(pub(crate) Compilation);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let mut slot = self.0.0.lock();
        slot.cancelled = true;
        if let Some(Err(error)) = slot.child.as_mut().map(Child::kill) {
            tracing::warn!(%error, "cannot kill a compiler process");
        }
    }
}

impl Compilation {
    /// Compiles a guest that passed [`upload::check`](crate::upload::check). Blocks until the child exits.
    pub(crate) fn run(
        &self,
        program: &Path,
        arguments: &[OsString],
        compiler: &ChildCompiler,
        bytes: &[u8],
    ) -> Result<Compiled, SandboxError> {
        let pipes = self
            .start(program, arguments, compiler)
            .map_err(|error| cannot_run(program, error))?;
        let (answer, stderr) = pipes.exchange(bytes, compiler.memory_bytes);
        let status = self.wait().map_err(|error| cannot_run(program, error))?;
        match answer {
            Ok((COMPILED, code)) if status.success() => Ok(Compiled::from_child(code)),
            Ok((REFUSED, reason)) if status.success() => Err(refused(&reason, compiler)),
            _ => Err(exit_error(status, &stderr, compiler)),
        }
    }

    fn start(&self, program: &Path, arguments: &[OsString], compiler: &ChildCompiler) -> io::Result<Pipes> {
        let mut slot = self.0.lock();
        if slot.cancelled {
            return Err(io::Error::other("the compilation was cancelled"));
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
        let pipes = Pipes::from_child(&mut child);
        slot.child = Some(child);
        pipes.ok_or_else(|| io::Error::other("cannot open pipes to the standard streams"))
    }

    fn wait(&self) -> io::Result<ExitStatus> {
        loop {
            // Not locked while sleeping, so that another thread can kill the child.
            let exited = self.0.lock().child.as_mut().map(Child::try_wait);
            match exited {
                Some(Ok(Some(status))) => return Ok(status),
                Some(Ok(None)) => std::thread::sleep(EXIT_POLL_INTERVAL),
                Some(Err(error)) => return Err(error),
                None => return Err(io::Error::other("the process was not started")),
            }
        }
    }
}

struct Pipes {
    input: ChildStdin,
    output: ChildStdout,
    stderr: ChildStderr,
}

impl Pipes {
    fn from_child(child: &mut Child) -> Option<Self> {
        Some(Self {
            input: child.stdin.take()?,
            output: child.stdout.take()?,
            stderr: child.stderr.take()?,
        })
    }

    /// Sends the guest and returns the answer and the standard error output.
    fn exchange(mut self, bytes: &[u8], most: u64) -> (io::Result<(u8, Vec<u8>)>, Vec<u8>) {
        // Writing fails if the child exits early. The exit status gives the reason.
        let _ = self.input.write_all(bytes);
        drop(self.input);
        let answer = read_answer(&mut self.output, most);
        let mut stderr = Vec::new();
        let _ = (&mut self.stderr).take(STDERR_LIMIT).read_to_end(&mut stderr);
        (answer, stderr)
    }
}

fn read_answer(output: &mut impl Read, most: u64) -> io::Result<(u8, Vec<u8>)> {
    let mut status = [0];
    output.read_exact(&mut status)?;
    let mut length = [0; 8];
    output.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    let mut body = Vec::new();
    // The answer was built within the child's memory limit.
    let read = output.take(length.min(most)).read_to_end(&mut body)?;
    if u64::try_from(read).ok() != Some(length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let [status] = status;
    Ok((status, body))
}

fn cannot_run(program: &Path, error: io::Error) -> SandboxError {
    let text = format!("cannot run the compiler {}", program.display());
    SandboxError::host(Cause::with_message(text, error))
}

fn refused(reason: &[u8], compiler: &ChildCompiler) -> SandboxError {
    let reason = String::from_utf8_lossy(reason);
    if OUT_OF_MEMORY.iter().any(|words| reason.contains(words)) {
        return memory_exceeded(compiler);
    }
    SandboxError::not_a_guest(one_line(&reason, MAX_MESSAGE_BYTES))
}

fn memory_exceeded(compiler: &ChildCompiler) -> SandboxError {
    SandboxError::TooCostly {
        cost: CompileCost::MemoryBytes,
        allowed: compiler.memory_bytes,
    }
}

/// Converts the exit of a child without a valid answer to an error.
fn exit_error(status: ExitStatus, stderr: &[u8], compiler: &ChildCompiler) -> SandboxError {
    let stderr = one_line(&String::from_utf8_lossy(stderr), MAX_MESSAGE_BYTES);
    if status.signal() == Some(Signal::XCPU.as_raw()) {
        return SandboxError::TooCostly {
            cost: CompileCost::CpuSeconds,
            allowed: compiler.cpu_seconds,
        };
    }
    if OUT_OF_MEMORY.iter().any(|words| stderr.contains(words)) {
        return memory_exceeded(compiler);
    }
    match status.signal() {
        Some(signal) => {
            SandboxError::not_a_guest(format!("the compiler crashed (signal {signal}): {stderr}"))
        }
        None => SandboxError::host(format!("the compiler process failed ({status}): {stderr}")),
    }
}
