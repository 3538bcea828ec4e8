use crate::SessionOptions;
use ort::ep::cuda::ConvAlgorithmSearch;
use ort::ep::{ArenaExtendStrategy, CUDA};

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
    use crate::CudaOptions;
    use frostline_tensor::Precision;

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
