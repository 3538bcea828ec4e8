use std::time::Duration;

/// Usage of a request over all guest calls. Returned by [`Allowance::usage`](crate::Allowance::usage).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of guest calls, including running ones.
    pub calls: u64,
    /// CPU time of guest code. Does not include work of the host, such as decoding and stage execution.
    pub cpu: Duration,
    /// Compile time.
    pub compiling: Duration,
    /// Maximum size of linear memory in bytes, over all instances.
    pub memory_peak: u64,
    /// Maximum bytes of live host-side tensors.
    pub tensor_bytes_peak: u64,
    /// Number of objects read and sizes requested.
    pub object_reads: u64,
    /// Bytes read from objects, including those recorded with
    /// [`Allowance::record_object_bytes`](crate::Allowance::record_object_bytes).
    pub object_bytes: u64,
    /// Bytes of returned activations.
    pub output_bytes: u64,
    /// Bytes of accepted log lines.
    pub log_bytes: u64,
}

/// Time spent on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// CPU time of threads that run guest code.
    Cpu(Duration),
    /// Compile time.
    Compiling(Duration),
}
