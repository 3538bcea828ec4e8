//! Networks in f16 on the CPU.

mod needs_shared {
    use crate::{Session, SessionOptions};
    use frostline_graph::Model;
    use frostline_graph::onnx::{TensorProto, data_type};

    /// Converts an f32 tensor to f16 zeros.
    fn halve(tensor: &mut TensorProto) {
        if tensor.data_type == data_type::FLOAT {
            let count: i64 = tensor.dims.iter().product();
            tensor.data_type = data_type::FLOAT16;
            tensor.float_data = Vec::new();
            tensor.raw_data = vec![0; 2 * count as usize].into();
        }
    }

    /// ONNX Runtime 1.31.1 ends with SIGSEGV if all optimizers run.
    #[test]
    fn a_vision_transformer_in_f16_opens() {
        let path = frostline_needs::shared_file("models/skeletons/vit_b_16.opset17.onnx");
        let skeleton = Model::read(path).unwrap();
        let mut graph = skeleton.graph().clone();
        graph.value_info = Vec::new();
        graph.initializer.iter_mut().for_each(halve);
        for node in &mut graph.node {
            for attribute in &mut node.attribute {
                attribute.t.iter_mut().for_each(halve);
                if node.op_type == "Cast" && attribute.i == i64::from(data_type::FLOAT) {
                    attribute.i = i64::from(data_type::FLOAT16);
                }
            }
        }
        for value in graph.input.iter_mut().chain(&mut graph.output) {
            let tensor = value.r#type.as_mut().and_then(|kind| kind.tensor_type.as_mut());
            tensor.unwrap().elem_type = data_type::FLOAT16;
        }
        let half = skeleton.with_graph(graph).unwrap().to_bytes().unwrap();
        Session::open(&half, &SessionOptions::default()).unwrap();
    }
}
