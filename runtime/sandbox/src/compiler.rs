use crate::config::SandboxConfig;
use crate::error::SandboxError;
use crate::text::{MAX_MESSAGE_BYTES, one_line};
use crate::unchecked::Compiled;
use crate::{engine, upload};
use frostline_walls::{Files, limit};
use rustix::process::{Resource, Rlimit, nice, setrlimit};
use std::io::{self, Read, Write};
use std::process::ExitCode;
use wasmtime::Engine;

/// Main function of a child process for compiling a guest. Limits the process, reads the guest from standard
/// input and writes the answer to standard output. The parent passes the flags `--memory-bytes`,
/// `--cpu-seconds` and `--memory-reservation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildCompiler {
    /// Maximum address space in bytes, including the program itself.
    pub memory_bytes: u64,
    /// Maximum CPU time in seconds.
    pub cpu_seconds: u64,
    /// Same as [`SandboxConfig::memory_reservation`]. Affects compiled code.
    pub memory_reservation: u64,
    /// Refuses to compile if a wall (`frostline-walls`) is not available.
    pub require_walls: bool,
}

/// First byte of an answer with machine code.
pub(super) const COMPILED: u8 = 0;
/// First byte of an answer with the reason for a refusal.
pub(super) const REFUSED: u8 = 1;

/// Gives lanes and running guests priority over compilation.
const NICENESS: i32 = 10;

impl ChildCompiler {
    pub(super) fn from_config(config: &SandboxConfig) -> Self {
        Self {
            memory_bytes: config.compiler_memory_bytes,
            cpu_seconds: config.compiler_cpu_seconds,
            memory_reservation: config.memory_reservation,
            // The program sets this from an argument.
            require_walls: false,
        }
    }

    pub(super) fn flags(&self) -> [String; 3] {
        [
            format!("--memory-bytes={}", self.memory_bytes),
            format!("--cpu-seconds={}", self.cpu_seconds),
            format!("--memory-reservation={}", self.memory_reservation),
        ]
    }

    /// Compiles the guest and returns the exit code of the process. Call this at the start of `main`.
    pub fn run(&self) -> ExitCode {
        match self.confine().and_then(|()| self.answer()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        }
    }

    /// Limits memory and CPU time, lowers the priority, and drops privileges that compilation does not need,
    /// such as opening files.
    ///
    /// # Errors
    /// Returns an error if a limit cannot be set, or if walls are required but not available.
    fn confine(&self) -> io::Result<()> {
        frostline_walls::close_inherited()?;
        frostline_walls::die_first()?;
        limit(Resource::Fsize, 0)?;
        limit(Resource::As, self.memory_bytes)?;
        limit(Resource::Data, self.memory_bytes)?;
        let time = Rlimit {
            current: Some(self.cpu_seconds),
            // The hard limit kills the process without a reason. At the soft limit it receives SIGXCPU, which
            // the parent recognizes.
            maximum: Some(self.cpu_seconds.saturating_add(1)),
        };
        setrlimit(Resource::Cpu, time)?;
        nice(NICENESS)?;
        match frostline_walls::enter(Files::None)
            .map_err(io::Error::other)?
            .first()
        {
            Some(missing) if self.require_walls => Err(io::Error::other(format!(
                "walls are required, but {missing} is not available: allow it for the host's process, or do not require walls"
            ))),
            _ => Ok(()),
        }
    }

    fn answer(&self) -> io::Result<()> {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes)?;
        let compiled = engine::compile_only(self.memory_reservation)
            .map_err(|error| SandboxError::host(format!("{error:#}")))
            .and_then(|engine| compile(&engine, &bytes));
        let (status, body) = match compiled {
            Ok(compiled) => (COMPILED, compiled.into_bytes()),
            Err(SandboxError::NotAGuest { reason }) => (REFUSED, reason.into_bytes()),
            Err(other) => return Err(io::Error::other(other)),
        };
        let mut output = io::stdout().lock();
        output.write_all(&[status])?;
        output.write_all(&u64::try_from(body.len()).map_err(io::Error::other)?.to_le_bytes())?;
        output.write_all(&body)?;
        output.flush()
    }
}

/// Compiles a guest that passed [`upload::check`].
pub(crate) fn compile(engine: &Engine, bytes: &[u8]) -> Result<Compiled, SandboxError> {
    let component = upload::into_component(bytes)?;
    let compiled = Compiled::compile(engine, &component);
    compiled.map_err(|error| SandboxError::not_a_guest(one_line(&format!("{error:#}"), MAX_MESSAGE_BYTES)))
}
