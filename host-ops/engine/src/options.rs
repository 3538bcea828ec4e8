use crate::Device;
use frostline_tensor::Precision;
use serde::{Deserialize, Serialize};

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

/// Options of ONNX Runtime's CUDA provider. They have no effect on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CudaOptions {
    /// Layout of convolutions: channels last (NHWC) if true, channels first if false. `None`, the default,
    /// selects channels last for reduced precisions. Tensor cores read this layout, which is a quarter faster
    /// with TF32 (ResNet50 on an H200) and a seventh slower in full precision.
    pub nhwc: Option<bool>,
    /// Computes a convolution, its bias and the following activation in a single operator of cuDNN, if cuDNN
    /// has one. The default is false. Each shape is compiled when it first occurs.
    pub fuse_conv_bias: bool,
    /// Captures the kernels of a stage's first execution in a CUDA graph, and launches them together for later
    /// batches of the same shape. The default is false. Networks with nodes on the CPU are executed without a
    /// graph.
    pub graphs: bool,
}

impl CudaOptions {
    /// Returns true if convolutions of this precision use channels last.
    pub fn uses_nhwc(self, precision: Precision) -> bool {
        self.nhwc.unwrap_or(!precision.is_full())
    }
}
