use crate::artifact_load::Compiled;
use crate::config::SandboxConfig;
use crate::error::SandboxError;
use crate::text::{MESSAGE, one_line};
use crate::{engine, upload};
use frostline_walls::Files;
use rustix::process::{Resource, Rlimit, nice, setrlimit};
use std::io::{self, Read, Write};
use std::process::ExitCode;
use wasmtime::Engine;

/// The inside of a child process that compiles one guest: limits itself, reads the guest from standard input, and answers
/// on standard output. As flags: `--memory-bytes`, `--cpu-seconds` and `--memory-reservation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildCompiler {
    /// The most memory it may take: address space, in which the program itself lies as well.
    pub memory_bytes: u64,
    /// The most CPU time it may take, in seconds.
    pub cpu_seconds: u64,
    /// As [`SandboxConfig::memory_reservation`]; compiled code depends on it.
    pub memory_reservation: u64,
    /// Whether to refuse to compile where a wall (`frostline-walls`) is missing.
    pub require_walls: bool,
}

/// First byte of the child's answer: machine code follows.
pub(super) const COMPILED: u8 = 0;
/// First byte of the child's answer: the reason of the refusal follows.
pub(super) const REFUSED: u8 = 1;

/// Compiling yields to lanes and running guests.
const NICENESS: i32 = 10;

impl ChildCompiler {
    pub(super) fn from_config(config: &SandboxConfig) -> Self {
        Self {
            memory_bytes: config.compiler_memory_bytes,
            cpu_seconds: config.compiler_cpu_seconds,
            memory_reservation: config.memory_reservation,
            // Set by an argument of the program.
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

    /// Compiles and returns the process's exit code. Call it first thing in `main`.
    pub fn run(&self) -> ExitCode {
        match self.confine().and_then(|()| self.answer()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        }
    }

    /// Drops the privileges that compiling does not need, such as opening files.
    fn confine(&self) -> io::Result<()> {
        frostline_walls::close_inherited()?;
        limit(Resource::Fsize, 0)?;
        limit(Resource::As, self.memory_bytes)?;
        limit(Resource::Data, self.memory_bytes)?;
        let time = Rlimit {
            current: Some(self.cpu_seconds),
            // The hard limit kills without naming a reason.
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

fn limit(resource: Resource, value: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(value),
        maximum: Some(value),
    };
    Ok(setrlimit(resource, limit)?)
}

/// Machine code for a guest whose bytes have been checked.
pub(crate) fn compile(engine: &Engine, bytes: &[u8]) -> Result<Compiled, SandboxError> {
    let component = upload::into_component(bytes)?;
    let compiled = Compiled::compile(engine, &component);
    compiled.map_err(|error| SandboxError::not_a_guest(one_line(&format!("{error:#}"), MESSAGE)))
}
