use clap::Args;
use frostline_sandbox::ChildCompiler;

/// Subcommand for [`CompileGuest`].
pub(crate) const COMPILE_GUEST: &str = "compile-guest";

/// Flag for [`CompileGuest::require_walls`].
pub(crate) const REQUIRE_WALLS: &str = "--require-walls";

/// Compile a single guest in a child process of `frostline serve`
#[derive(Debug, Args)]
#[command(after_help = "Example: none. `frostline serve` starts this command for every guest it compiles.")]
pub(crate) struct CompileGuest {
    /// Memory limit in bytes
    #[arg(long)]
    memory_bytes: u64,
    /// CPU time limit in seconds
    #[arg(long)]
    cpu_seconds: u64,
    /// Address space reserved for a linear memory, in bytes
    #[arg(long)]
    memory_reservation: u64,
    /// Refuse to compile without Landlock and seccomp
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
