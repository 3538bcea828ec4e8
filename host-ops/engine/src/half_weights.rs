//! Detection of f16 weights in the bytes of a network.

/// Fields of [`onnx.proto`](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto): the graph of a model, the
/// weights of a graph, and the element type of a weight.
const GRAPH: u64 = 7;
const INITIALIZER: u64 = 5;
const DATA_TYPE: u64 = 2;

/// Number of the element type f16.
const FLOAT16: u64 = 10;

/// A field of a Protobuf message: the number, the value if it is an integer, and the bytes if it has a length.
type Field<'a> = (u64, u64, &'a [u8]);

/// Returns true if the ONNX model has weights of the type f16. Weights are skipped, not read. The result for
/// malformed bytes is arbitrary.
pub(crate) fn has_half_weights(model: &[u8]) -> bool {
    let weights = messages(model, GRAPH).flat_map(|graph| messages(graph, INITIALIZER));
    let mut fields = weights.flat_map(fields);
    fields.any(|(number, value, _)| (number, value) == (DATA_TYPE, FLOAT16))
}

/// Returns the messages in the field `number`.
fn messages(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    fields(message).filter_map(move |(found, _, bytes)| (found == number).then_some(bytes))
}

/// Returns the fields up to the end or the first malformed one.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = Field<'_>> {
    std::iter::from_fn(move || next_field(&mut rest))
}

fn next_field<'a>(rest: &mut &'a [u8]) -> Option<Field<'a>> {
    let key = varint(rest)?;
    let number = key >> 3;
    match key & 7 {
        0 => Some((number, varint(rest)?, &[][..])),
        1 => rest.split_off(..8).map(|_| (number, 0, &[][..])),
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            Some((number, 0, rest.split_off(..length)?))
        }
        5 => rest.split_off(..4).map(|_| (number, 0, &[][..])),
        _ => None,
    }
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = rest.split_off_first()?;
        value |= u64::from(byte & 127) << shift;
        if byte & 128 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_graph::Model;
    use frostline_graph::build::{batched, initializer, model, node};
    use frostline_graph::onnx::GraphProto;
    use frostline_tensor::Tensor;

    fn network(data_type: i32) -> Vec<u8> {
        let mut weight = initializer("w", &Tensor::f32([4], vec![1.0; 4]).unwrap());
        weight.data_type = data_type;
        let graph = GraphProto {
            node: vec![node("Add", &["x", "w"], &["y"])],
            initializer: vec![weight],
            input: vec![batched("x", &[4])],
            output: vec![batched("y", &[4])],
            ..GraphProto::default()
        };
        Model::from_proto(model(17, graph)).unwrap().to_bytes().unwrap()
    }

    #[test]
    fn weights_of_f16_are_found_and_malformed_bytes_end_the_search() {
        assert!(has_half_weights(&network(10)));
        for other in [1, 16] {
            assert!(!has_half_weights(&network(other)));
        }
        let whole = network(10);
        for length in 0..whole.len() {
            has_half_weights(&whole[..length]);
        }
        assert!(!has_half_weights(&[0xff; 64]));
    }
}
