use std::time::Duration;

/// What an extraction, or another request of a tenant, used over all its calls; from [`Allowance::usage`](crate::Allowance::usage).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Guest calls, running ones included.
    pub calls: u64,
    /// CPU time of guest code; what the host computes for it (decoding, the engine) does not count.
    pub cpu: Duration,
    /// Time of the compiler.
    pub compiling: Duration,
    /// Bytes of linear memory of the largest instance.
    pub memory_peak: u64,
    /// The most bytes of tensors alive at once on the guest's behalf, on the host.
    pub tensor_bytes_peak: u64,
    /// Objects read, and sizes requested.
    pub object_reads: u64,
    /// Bytes read by the guest itself; images that the host loads do not count.
    pub object_bytes: u64,
    /// Bytes of the activations returned.
    pub output_bytes: u64,
    /// Bytes of log lines kept.
    pub log_bytes: u64,
}

/// Time that was spent on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// CPU time of guest code.
    Cpu(Duration),
    /// Time of the compiler.
    Compiling(Duration),
}
