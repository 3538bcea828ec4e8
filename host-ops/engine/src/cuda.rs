use crate::SessionOptions;
use frostline_tensor::Precision;
use ort::ep::cuda::ConvAlgorithmSearch;
use ort::ep::{ArenaExtendStrategy, CUDA};
use serde::{Deserialize, Serialize};

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

/// Returns the CUDA provider for the GPU `index`.
///
/// TF32 keeps 10 bits of each product's fraction. Losses would depend on the split, so it has to be allowed
/// explicitly. Layers of an f16 network that remain f32 use it as well, because f16 has the same fraction. A
/// doubling arena would allocate unused memory. Other algorithm searches and larger workspaces bring no
/// improvement.
pub(crate) fn provider(index: i32, options: &SessionOptions) -> CUDA {
    let provider = CUDA::default()
        .with_device_id(index)
        .with_tf32(!options.precision.is_full())
        .with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested)
        .with_conv_algorithm_search(ConvAlgorithmSearch::Heuristic)
        .with_conv_max_workspace(false)
        .with_fuse_conv_bias(options.cuda.fuse_conv_bias)
        .with_cuda_graph(options.cuda.graphs)
        .with_prefer_nhwc(options.cuda.uses_nhwc(options.precision));
    match options.arena_bytes {
        Some(bytes) => provider.with_memory_limit(usize::try_from(bytes).unwrap_or(usize::MAX)),
        None => provider,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of an option of the provider.
    fn option(options: &SessionOptions, key: &str) -> String {
        let text = format!("{:?}", provider(0, options));
        let (_, rest) = text.split_once(&format!("\"{key}\"")).unwrap();
        rest.split('"').nth(1).unwrap().to_owned()
    }

    #[test]
    fn reduced_precisions_use_channels_last_unless_a_layout_is_given() {
        for (precision, nhwc, expected) in [
            (Precision::Full, None, false),
            (Precision::Tf32, None, true),
            (Precision::F16, None, true),
            (Precision::Full, Some(true), true),
            (Precision::Tf32, Some(false), false),
        ] {
            let options = SessionOptions {
                precision,
                cuda: CudaOptions {
                    nhwc,
                    ..CudaOptions::default()
                },
                ..SessionOptions::default()
            };
            assert_eq!(
                option(&options, "prefer_nhwc"),
                expected.to_string(),
                "{options:?}"
            );
        }
    }

    #[test]
    fn options_reach_the_provider() {
        let usual = SessionOptions::default();
        assert_eq!(option(&usual, "fuse_conv_bias"), "false");
        assert_eq!(option(&usual, "use_tf32"), "false");
        assert_eq!(option(&usual, "enable_cuda_graph"), "false");
        let changed = SessionOptions {
            precision: Precision::Tf32,
            arena_bytes: Some(1 << 30),
            cuda: CudaOptions {
                fuse_conv_bias: true,
                graphs: true,
                ..CudaOptions::default()
            },
            ..usual
        };
        assert_eq!(option(&changed, "fuse_conv_bias"), "true");
        assert_eq!(option(&changed, "use_tf32"), "true");
        assert_eq!(option(&changed, "enable_cuda_graph"), "true");
        assert_eq!(option(&changed, "gpu_mem_limit"), "1073741824");
    }
}
