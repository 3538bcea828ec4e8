//! Passes the bytes of a model to the host.

use frostline_hostile::frostline_guest::bindings::wasi::nn::graph::{ExecutionTarget, GraphEncoding, load};

frostline_hostile::extracts!("load_bytes", |_| {
    load(
        &[b"not a model".to_vec()],
        GraphEncoding::Onnx,
        ExecutionTarget::Cpu,
    )?;
    Err(Error::invalid("the host took model bytes from a guest"))
});
