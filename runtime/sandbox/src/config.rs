use crate::bounds::GuestBounds;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// How a host runs guests. The defaults suit one machine with a handful of tenants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxConfig {
    /// Threads that run guest code and nothing else. A guest mostly waits for the host's own work, so as many threads as
    /// cores let guests that do compute use the machine without starving each other.
    pub guest_threads: usize,
    /// Guest calls that may run at once; further ones wait for a permit. A tenant holds at most as many permits as it leaves
    /// free. Each reserves address space (not memory) for one linear memory, see [`Self::memory_reservation`].
    pub instances: u32,
    /// The most linear memory one instance may take, in bytes. 64 MiB is thirty times what the stock guest needs and
    /// holds a dozen decoded photos for a guest that preprocesses bytes itself; pixels loaded by the host do not count.
    pub memory_bytes: usize,
    /// Address space reserved for each linear memory, in bytes. With 4 GiB, compiled code needs no bounds checks; lower
    /// it where address space is scarce (`ulimit -v`), never below [`Self::memory_bytes`].
    pub memory_reservation: u64,
    /// The most entries one table of a guest may have; a large Rust program has some thousand functions in its table.
    pub table_elements: usize,
    /// Host-side handles (tensors, graphs, contexts, errors) one instance may hold. An extraction needs about five; a
    /// thousand lets a guest work sample by sample, and stops one that keeps every handle it gets.
    pub handles: usize,
    /// How often guest code is interrupted to switch guests and check deadlines. Shorter costs more switches; deadlines are exceeded
    /// by up to one tick.
    pub tick: Duration,
    /// The largest guest that is accepted, in bytes. Guests in Rust take tens of kilobytes; compiling takes time in
    /// proportion, and cannot be interrupted.
    pub upload_bytes: usize,
    /// Bounds of a guest's parts.
    pub bounds: GuestBounds,
    /// Where guests are compiled.
    pub compiler: Compiler,
    /// The most memory a [`Compiler::Child`] may take, in bytes of address space: the program itself takes some hundred
    /// million, the compiler a hundred times the code of the guest it works on.
    pub compiler_memory_bytes: u64,
    /// The most CPU time a [`Compiler::Child`] may take, in seconds. The most functions that a guest may have take 14 s at
    /// the stock guest's pace: three times that, for slow machines.
    pub compiler_cpu_seconds: u64,
    /// How long [`Sandbox::prepare`](crate::Sandbox::prepare) may take, with waiting for other compilations.
    pub prepare_deadline: Duration,
    /// How long a guest may take to describe itself: it computes nothing, so this is generous.
    pub describe_deadline: Duration,
    /// How long a call may wait for one of [`Self::instances`].
    pub permit_deadline: Duration,
    /// A directory of this host alone for compiled guests, created when missing. Without it every start recompiles.
    pub artifacts: Option<PathBuf>,
    /// The most bytes of compiled guests there; the least recently used are evicted. A compiled guest takes about four
    /// times its component, so this holds thousands.
    pub artifact_bytes: u64,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self {
            guest_threads: std::thread::available_parallelism().map_or(1, Into::into),
            instances: 32,
            memory_bytes: 64 << 20,
            memory_reservation: 4 << 30,
            table_elements: 20_000,
            handles: 1_000,
            tick: Duration::from_millis(5),
            upload_bytes: 16 << 20,
            bounds: GuestBounds::default(),
            compiler: Compiler::default(),
            compiler_memory_bytes: 2 << 30,
            compiler_cpu_seconds: 45,
            prepare_deadline: Duration::from_secs(60),
            describe_deadline: Duration::from_secs(5),
            permit_deadline: Duration::from_secs(60),
            artifacts: None,
            artifact_bytes: 1 << 30,
        }
    }
}

/// Where guests are compiled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Compiler {
    /// In this process, for trusted guests: only the guest's size bounds the cost.
    #[default]
    InProcess,
    /// Each guest in a child process, which is killed when it exceeds a limit or its caller is gone.
    Child {
        /// The program, by its full path; it runs [`ChildCompiler::run`](crate::ChildCompiler::run).
        program: PathBuf,
        /// Arguments before the flags of [`ChildCompiler`](crate::ChildCompiler).
        arguments: Vec<OsString>,
    },
}

/// What one extraction may use, over all of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long one call of `extract` may take, with all it waits for. A batch of 64 through the slowest of the usual
    /// networks (ViT-B/16 on two cores) takes 12 s; the rest is for queues before the lanes.
    pub call_deadline: Duration,
    /// CPU time of guest code, in seconds. A guest that decodes and resizes photos itself takes 0.1 s for each: a request
    /// of a thousand, three times over. The stock guest takes microseconds.
    pub cpu_seconds: u64,
    /// CPU time of guest code between two of its calls to the host. A grant of 64 photos that the guest preprocesses itself
    /// takes 6 s; a guest that computes for longer without a host call is stuck.
    pub slice: Duration,
    /// Bytes of tensors alive at any time on the guest's behalf, on the host: inputs, outputs and what the guest made.
    /// A batch of 64 at VGG's widest cut takes 0.8 GB; half of the default would refuse two calls of it at once.
    pub tensor_bytes: usize,
    /// Objects read, by `objects.read` and `images.load` together, and sizes requested. A request has some thousand
    /// samples; more than ten reads of each is abuse of the store.
    pub object_reads: u64,
    /// Bytes read of objects, by `objects.read`, `images.load` and the host itself. A request of a thousand 4 MB photos read once.
    pub object_bytes: u64,
    /// Bytes of the activations that all calls return. A thousand photos at VGG's widest cut come to 13 GB.
    pub output_bytes: u64,
    /// Bytes of log lines, each with 128 for what it takes beside its text; further ones are dropped. Enough for a line a sample.
    pub log_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            call_deadline: Duration::from_secs(120),
            cpu_seconds: 300,
            slice: Duration::from_secs(20),
            tensor_bytes: 2 << 30,
            object_reads: 50_000,
            object_bytes: 4 << 30,
            output_bytes: 16 << 30,
            log_bytes: 256 << 10,
        }
    }
}
