use crate::{CudaOptions, Device};
use frostline_tensor::Precision;

/// Options of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOptions {
    /// Device that executes the network.
    pub device: Device,
    /// Number of threads per operator; 0 means 1. Threads sleep between executions: when two sessions had
    /// spinning threads on the same cores, ResNet50 slowed down from 41 to 1,138 ms per image.
    pub threads: usize,
    /// Enables ONNX Runtime's CPU arena, which keeps memory for the next execution. If disabled, memory usage
    /// grows evenly with the rows, and the memory is freed after each execution.
    pub arena: bool,
    /// Precision on a GPU. For [`Precision::F16`], the network itself has to be f16.
    pub precision: Precision,
    /// Limit for ONNX Runtime's GPU arena in bytes. CUDA's context, kernel code and the workspaces of cuDNN
    /// and cuBLAS are not included.
    pub arena_bytes: Option<u64>,
    /// Options of the CUDA provider.
    pub cuda: CudaOptions,
    /// Allows matrix products to read a transposed operand directly instead of copying it in order first.
    /// This needs less memory, but is slower in training steps that transpose the smaller operand on purpose.
    pub fused_transposes: bool,
    /// Allows ONNX Runtime to optimize the network. Without optimizations, execution is slower and needs more
    /// memory, but errors of the optimizations cannot change the result.
    pub optimizations: bool,
}

impl Default for SessionOptions {
    /// Returns options for one thread on the CPU.
    fn default() -> Self {
        Self {
            device: Device::Cpu,
            threads: 1,
            arena: true,
            precision: Precision::Full,
            arena_bytes: None,
            cuda: CudaOptions::default(),
            fused_transposes: true,
            optimizations: true,
        }
    }
}
