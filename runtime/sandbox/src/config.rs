use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Configuration of the sandbox. The defaults suit a machine with a handful of tenants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxConfig {
    /// Number of threads for guest code. Guests mostly wait for operations of the host. With a thread per
    /// core, guests that compute can use the whole machine without starving each other.
    pub guest_threads: usize,
    /// Maximum number of concurrent guest calls. Further calls wait for a permit. Tenants can hold up to half
    /// of the permits not held by others. Each call reserves address space (not memory) for a linear memory,
    /// see [`Self::memory_reservation`].
    pub instances: u32,
    /// Maximum linear memory of an instance in bytes. 64 MiB is thirty times the need of the stock guest, and
    /// enough for a dozen decoded photos in guests with custom preprocessing. Pixels loaded by the host do
    /// not count.
    pub memory_bytes: usize,
    /// Address space reserved for each linear memory in bytes. With 4 GiB, compiled code needs no bounds
    /// checks. Lower it if address space is scarce (`ulimit -v`), but not below [`Self::memory_bytes`].
    pub memory_reservation: u64,
    /// Maximum number of entries of a table. Large Rust programs have a table with some thousand functions.
    pub table_elements: usize,
    /// Maximum number of host-side handles (tensors, graphs, contexts, errors) per instance. An extraction
    /// needs about five. A thousand allows guests to process samples individually, but stops a guest from
    /// leaking handles.
    pub handles: usize,
    /// Maximum size of an uploaded guest in bytes. Guests in Rust have tens of kilobytes. Compile time is
    /// proportional to the size, and an in-process compilation cannot be interrupted.
    pub upload_bytes: usize,
    /// Process in which guests are compiled.
    pub compiler: Compiler,
    /// Maximum address space of a [`Compiler::Child`] in bytes. The program needs some hundred megabytes, and
    /// compilation a hundred times the code size of the guest.
    pub compiler_memory_bytes: u64,
    /// Maximum CPU time of a [`Compiler::Child`] in seconds. A guest with the maximum number of functions
    /// needs 14 s at the rate of the stock guest. The default triples this for slow machines.
    pub compiler_cpu_seconds: u64,
    /// Maximum duration of [`Sandbox::prepare`](crate::Sandbox::prepare), including the time waiting for
    /// other compilations.
    pub prepare_deadline: Duration,
    /// Maximum duration of a description. Guests compute nothing in `describe`, so this is generous.
    pub describe_deadline: Duration,
    /// Maximum time that a call waits for an instance.
    pub permit_deadline: Duration,
    /// Directory for compiled guests, created if missing. Hosts must not share it. If `None`,
    /// [`Sandbox::prepare`](crate::Sandbox::prepare) always compiles.
    pub artifacts: Option<PathBuf>,
    /// Maximum size of the compiled guests in that directory in bytes. The host evicts the least recently
    /// used files. A compiled guest is about four times as large as the component, so the default is enough
    /// for thousands.
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
            upload_bytes: 16 << 20,
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

/// Process in which guests are compiled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Compiler {
    /// Compiles in this process. Use this for trusted guests only, since the size of a guest is the only
    /// bound on the cost.
    #[default]
    InProcess,
    /// Compiles each guest in a child process, which is killed if it exceeds a limit or the request is
    /// dropped.
    Child {
        /// Full path of the program. It must call [`ChildCompiler::run`](crate::ChildCompiler::run).
        program: PathBuf,
        /// Arguments that precede the flags of [`ChildCompiler`](crate::ChildCompiler).
        arguments: Vec<OsString>,
    },
}

/// Limits of an extraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum duration of an `extract` call, including the time spent waiting. A batch of 64 through the
    /// slowest common network (ViT-B/16 on two cores) takes 12 s. The rest is for queues before the lanes.
    pub call_deadline: Duration,
    /// Maximum CPU time of guest code in seconds. Guests that decode and resize photos need 0.1 s per photo.
    /// The default is enough for three thousand photos. The stock guest needs microseconds.
    pub cpu_seconds: u64,
    /// Maximum CPU time of guest code between two calls to the host. Preprocessing a grant of 64 photos in
    /// Wasm takes 6 s. A guest that computes for longer without a call to the host is stuck.
    pub slice: Duration,
    /// Maximum bytes of live host-side tensors, including inputs, outputs and tensors created by the guest. A
    /// batch of 64 needs 0.8 GB at the widest cut of VGG, so half of the default would be too small for two
    /// concurrent calls.
    pub tensor_bytes: usize,
    /// Maximum number of objects read (`objects.read`, `images.load` and the host itself) plus sizes
    /// requested. Requests have some thousand samples. More than ten reads per sample would be abuse of the
    /// store.
    pub object_reads: u64,
    /// Maximum bytes read from objects (`objects.read`, `images.load` and the host itself). The default is
    /// enough to read a thousand 4 MB photos once.
    pub object_bytes: u64,
    /// Maximum bytes of the activations returned by all calls. A thousand photos at the widest cut of VGG
    /// have 13 GB.
    pub output_bytes: u64,
    /// Maximum bytes of log lines, with an overhead of 128 bytes per line. Further lines are dropped. The
    /// default allows a line for every sample.
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
