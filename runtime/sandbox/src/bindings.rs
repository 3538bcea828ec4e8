//! Host bindings of the world `frozen-prefix`, generated from the WIT.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::indexing_slicing)]

wasmtime::component::bindgen!({
    path: "../../guest/wit",
    world: "frozen-prefix",
    imports: {
        "wasi:nn/inference.[method]graph-execution-context.compute": async | trappable,
        "frostline:pushdown/objects.size": async | trappable,
        "frostline:pushdown/objects.read": async | trappable,
        "frostline:pushdown/images.load": async | trappable,
        default: trappable,
    },
    exports: { default: async },
    with: {
        "wasi:nn/tensor.tensor": crate::state::GuestTensor,
        "wasi:nn/graph.graph": crate::state::Graph,
        "wasi:nn/inference.graph-execution-context": crate::state::Graph,
        "wasi:nn/errors.error": frostline_tensor::OpError,
        "frostline:pushdown/tensors.tensor": crate::state::GuestTensor,
        "frostline:pushdown/descriptions.description": crate::description_builder::DescriptionBuilder,
    },
    trappable_error_type: {
        "frostline:pushdown/types.error" => crate::breach::ImportError,
    },
});
