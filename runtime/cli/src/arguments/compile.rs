use clap::Args;
use frostline_sandbox::ChildCompiler;

/// The name of the command of [`CompileGuest`].
pub(crate) const COMPILE_GUEST: &str = "compile-guest";

/// The flag of it that [`CompileGuest::require_walls`] stands for.
pub(crate) const REQUIRE_WALLS: &str = "--require-walls";

/// Compile one guest: the inside of a process that `frostline serve` starts for it
#[derive(Debug, Args)]
#[command(after_help = "Example: none. `frostline serve` runs it for every guest it compiles.")]
pub(crate) struct CompileGuest {
    /// The most memory, in bytes
    #[arg(long)]
    memory_bytes: u64,
    /// The most CPU time, in seconds
    #[arg(long)]
    cpu_seconds: u64,
    /// Address space of a linear memory, in bytes
    #[arg(long)]
    memory_reservation: u64,
    /// Compile nothing without Landlock and seccomp
    #[arg(long)]
    require_walls: bool,
}

impl CompileGuest {
    pub(crate) fn compiler(&self) -> ChildCompiler {
        ChildCompiler {
            memory_bytes: self.memory_bytes,
            cpu_seconds: self.cpu_seconds,
            memory_reservation: self.memory_reservation,
            require_walls: self.require_walls,
        }
    }
}
