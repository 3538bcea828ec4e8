//! Fuzz target for the ONNX reader and the admission of untrusted models.

use bytes::Bytes;
use frostline_graph::build::{batched, initializer, int, integers, ints, model, node};
use frostline_graph::onnx::GraphProto;
use frostline_graph::tensors::dtype_of;
use frostline_graph::{Model, ModelLimits};
use frostline_tensor::{DType, Tensor};
use prost::Message;

/// Number of cuts to test per model.
const CUTS: usize = 3;

/// Reads the bytes as a model, slices it, and admits it as an untrusted model.
///
/// # Panics
/// Panics if a slice cannot be read again, or a value of an admitted model exceeds the computed bound.
pub fn onnx_reader(data: &[u8]) {
    let file = Bytes::copy_from_slice(data);
    if let Ok(model) = Model::from_bytes(file.clone()) {
        let _ = model.parameters();
        let _ = model.replace_head(3, 1);
        cut(&model);
    }
    if let Ok(admitted) = Model::admit(file, &ModelLimits::default()) {
        check_bound(&admitted);
    }
}

fn cut(model: &Model) {
    let Ok(network) = model.network() else { return };
    for cut in network
        .cuts
        .iter()
        .filter(|cut| cut.bytes_per_sample > 0)
        .take(CUTS)
    {
        for part in [
            model.slice(None, Some(&cut.name)),
            model.slice(Some(&cut.name), None),
        ] {
            let Some(bytes) = part.ok().and_then(|part| part.to_bytes().ok()) else {
                continue;
            };
            let again = Model::from_bytes(bytes.into());
            assert!(again.is_ok(), "cannot read the slice at {}: {again:?}", cut.name);
        }
    }
}

/// Checks the bound at batches including two that it was not computed from.
fn check_bound(model: &Model) {
    let footprint = model.footprint();
    let all = footprint.map(|footprint| footprint.total);
    assert!(all.is_ok(), "admitted without a bound: {all:?}");
    for batch in [1, 8, 1009] {
        let (Ok(shapes), Ok(all)) = (model.shapes(batch), &all) else {
            continue;
        };
        let bytes = |name: &String| {
            let shape = shapes.get(name)?;
            let width = dtype_of(shape.data_type).map_or(1, DType::size) as u64;
            let dims = shape.dims.iter().map(|&dim| dim as u64);
            Some(dims.fold(width, u64::saturating_mul))
        };
        let outputs = model.nodes().iter().flat_map(|node| &node.output);
        let sum = outputs.filter_map(bytes).fold(0, u64::saturating_add);
        let bound = all
            .per_sample
            .saturating_mul(batch as u64)
            .saturating_add(all.fixed);
        assert!(sum <= bound, "{sum} bytes at batch {batch}, bounded by {bound}");
    }
}

/// Returns small networks with many operators, and small hostile models.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    const SMALL: usize = 4096;
    let hostile = frostline_hostile::models()
        .into_iter()
        .map(|hostile| hostile.file);
    let own = [convolutions(), attention()].into_iter().flatten();
    own.chain(hostile.filter(|file| file.len() <= SMALL)).collect()
}

fn weight(name: &str, dims: &[usize]) -> Option<frostline_graph::onnx::TensorProto> {
    let values = vec![0.5; dims.iter().product()];
    Some(initializer(name, &Tensor::f32(dims.to_vec(), values).ok()?))
}

/// Creates a network with a convolution, pooling, a reshape by shape arithmetic, and a classifier.
fn convolutions() -> Option<Vec<u8>> {
    let nodes = vec![
        node("Conv", &["x", "k"], &["c"]).with([ints("pads", &[1, 1, 1, 1]), ints("strides", &[1, 1])]),
        node("Relu", &["c"], &["a"]),
        node("MaxPool", &["a"], &["p"]).with([ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])]),
        node("Shape", &["p"], &["s"]),
        node("Gather", &["s", "i"], &["n"]).with([int("axis", 0)]),
        node("Concat", &["n", "m"], &["t"]).with([int("axis", 0)]),
        node("Reshape", &["p", "t"], &["r"]),
        node("Gemm", &["r", "w", "b"], &["y"]),
    ];
    let weights = vec![
        weight("k", &[2, 3, 3, 3])?,
        weight("w", &[8, 5])?,
        weight("b", &[5])?,
        integers("i", &[0]),
        integers("m", &[-1]),
    ];
    let graph = GraphProto {
        node: nodes,
        initializer: weights,
        input: vec![batched("x", &[3, 4, 4])],
        output: vec![batched("y", &[5])],
        ..GraphProto::default()
    };
    Some(model(17, graph).encode_to_vec())
}

/// Creates a network with attention: a class token that is expanded to the batch and concatenated, and
/// products of rows.
fn attention() -> Option<Vec<u8>> {
    let nodes = vec![
        node("Shape", &["x"], &["s"]),
        node("Gather", &["s", "zero"], &["n"]).with([int("axis", 0)]),
        node("Concat", &["n", "minus"], &["target"]).with([int("axis", 0)]),
        node("Equal", &["target", "ones"], &["is"]),
        node("Where", &["is", "two", "target"], &["wanted"]),
        node("Slice", &["wanted", "zero", "one"], &["batch"]),
        node("Concat", &["batch", "rows"], &["size"]).with([int("axis", 0)]),
        node("Expand", &["token", "size"], &["tokens"]),
        node("Concat", &["tokens", "x"], &["joined"]).with([int("axis", 1)]),
        node("Transpose", &["joined"], &["turned"]).with([ints("perm", &[0, 2, 1])]),
        node("MatMul", &["joined", "turned"], &["scores"]),
        node("Softmax", &["scores"], &["shares"]).with([int("axis", -1)]),
        node("MatMul", &["shares", "joined"], &["mixed"]),
        node("ReduceMean", &["mixed"], &["mean"]).with([ints("axes", &[1]), int("keepdims", 0)]),
        node("Gemm", &["mean", "w"], &["y"]).with([int("transB", 1)]),
    ];
    let weights = vec![
        weight("token", &[1, 1, 4])?,
        weight("w", &[3, 4])?,
        integers("zero", &[0]),
        integers("one", &[1]),
        integers("minus", &[-1]),
        integers("ones", &[-1, -1]),
        integers("two", &[1, 4]),
        integers("rows", &[1, 4]),
    ];
    let graph = GraphProto {
        node: nodes,
        initializer: weights,
        input: vec![batched("x", &[2, 4])],
        output: vec![batched("y", &[3])],
        ..GraphProto::default()
    };
    Some(model(17, graph).encode_to_vec())
}
