//! Runs a guest that uses plain `wasi:nn` on the reference host (the crate wasmtime-wasi-nn with our engine)
//! and on our host. Both must return the same tensors and error codes.

use crate::fakes::{context, samples, sandbox};
use crate::files::built;
use frostline_engine::{Session, SessionOptions};
use frostline_graph::onnx::{
    Dimension, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetId, TensorProto, TensorShape,
    TensorType, TypeProto, ValueInfo, data_type,
};
use frostline_sandbox::{Call, CutView, Limits, ModelView};
use frostline_tensor::{BoxFuture, DType, Data, GraphExecutor, OpError, OpErrorCode, Stage, Tensor};
use prost::Message;
use std::sync::{Arc, Mutex};

/// Results reported by the guest. Contains the tensor of the successful attempt and the error codes of the
/// failed attempts.
#[derive(Debug, PartialEq)]
struct GuestReport {
    dims: Vec<usize>,
    bytes: Vec<u8>,
    codes: Vec<OpErrorCode>,
}

/// Samples for all attempts of the guest: two rows and five failing attempts.
const SAMPLES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

async fn on_our_host(bytes: Vec<u8>) -> GuestReport {
    let cut = CutView {
        name: "y".to_owned(),
        shape: vec![2],
    };
    let model = Arc::new(ModelView {
        sha256: "c0".repeat(32),
        input: "x".to_owned(),
        input_shape: vec![3],
        joined_inputs: Vec::new(),
        cuts: vec![cut],
    });
    let guest = sandbox().prepare(bytes).await.unwrap();
    let call = Call::new(model.clone(), &guest.describe(&model, "").await.unwrap(), "y", "").unwrap();
    let executor = Arc::new(Engine::new());
    let extracted = guest
        .extract(&samples(&SAMPLES), &call, context(executor, Limits::default()))
        .await
        .unwrap();
    GuestReport {
        dims: extracted.activations.shape().dims().to_vec(),
        bytes: extracted.activations.as_bytes().to_vec(),
        codes: extracted
            .failed
            .iter()
            .map(|failure| failure.error.code)
            .collect(),
    }
}

/// Our engine with the network of this test.
struct Engine(Mutex<Session>);

impl Engine {
    fn new() -> Self {
        Self(Mutex::new(
            Session::open(&network(), &SessionOptions::default()).unwrap(),
        ))
    }

    fn run(&self, inputs: &[(&str, &Tensor)]) -> Result<Vec<(String, Tensor)>, OpError> {
        self.0
            .lock()
            .unwrap()
            .run(inputs)
            .map_err(|error| OpError::new(error.code(), error.to_string()))
    }
}

impl GraphExecutor for Engine {
    fn submit(&self, stage: &Stage, batch: Tensor) -> BoxFuture<Result<Tensor, OpError>> {
        let done = self
            .run(&[(&stage.from, &batch)])
            .map(|mut outputs| outputs.remove(0).1);
        Box::pin(async { done })
    }
}

/// Returns the network `y = max(x · w, 0)`, with rows of 3 and 2 elements.
fn network() -> Vec<u8> {
    let node = |op: &str, inputs: &[&str], output: &str| NodeProto {
        op_type: op.to_owned(),
        input: inputs.iter().map(|name| (*name).to_owned()).collect(),
        output: vec![output.to_owned()],
        ..Default::default()
    };
    let weights = TensorProto {
        name: "w".to_owned(),
        dims: vec![3, 2],
        data_type: data_type::FLOAT,
        float_data: vec![1.5, -0.5, 0.25, 3.0, -2.0, 1.0],
        ..Default::default()
    };
    let graph = GraphProto {
        node: vec![node("MatMul", &["x", "w"], "h"), node("Relu", &["h"], "y")],
        name: "conformance".to_owned(),
        input: vec![rows_of("x", 3)],
        output: vec![rows_of("y", 2)],
        initializer: vec![weights],
        ..Default::default()
    };
    let opset = OperatorSetId {
        domain: String::new(),
        version: 17,
    };
    ModelProto {
        ir_version: 8,
        opset_import: vec![opset],
        graph: Some(graph),
        ..Default::default()
    }
    .encode_to_vec()
}

fn rows_of(name: &str, width: i64) -> ValueInfo {
    let dimension = |value| Dimension {
        value: Some(value),
        ..Default::default()
    };
    let dim = vec![
        dimension(DimensionValue::DimParam("batch".to_owned())),
        dimension(DimensionValue::DimValue(width)),
    ];
    let tensor_type = TensorType {
        elem_type: data_type::FLOAT,
        shape: Some(TensorShape { dim }),
    };
    ValueInfo {
        name: name.to_owned(),
        r#type: Some(TypeProto {
            tensor_type: Some(tensor_type),
            ..Default::default()
        }),
        ..Default::default()
    }
}

mod reference {
    use super::{DType, Data, Engine, GuestReport, OpErrorCode, SAMPLES, Tensor};
    use std::sync::Arc;
    use wasmtime::component::{Component, HasSelf, Linker, Resource, ResourceTable};
    use wasmtime::{Config, Store};
    use wasmtime_wasi_nn::backend::{
        BackendError, BackendExecutionContext, BackendGraph, Id, NamedTensor as BackendTensor,
    };
    use wasmtime_wasi_nn::wit::{TensorType, WasiNnCtx, WasiNnView};
    use wasmtime_wasi_nn::{ExecutionContext, Graph, GraphRegistry, Registry, Tensor as GuestTensor};

    mod bindings {
        #![allow(unreachable_pub)]
        wasmtime::component::bindgen!({
            path: "../../guest/wit",
            world: "frozen-prefix",
            with: {
                "wasi:nn/graph.graph": wasmtime_wasi_nn::Graph,
                "wasi:nn/tensor.tensor": wasmtime_wasi_nn::Tensor,
                "wasi:nn/inference.graph-execution-context": wasmtime_wasi_nn::ExecutionContext,
                "wasi:nn/errors.error": wasmtime_wasi_nn::wit::Error,
                "frostline:pushdown/tensors.tensor": wasmtime_wasi_nn::Tensor,
            },
        });
    }
    use bindings::exports::frostline::pushdown::prefix;
    use bindings::frostline::pushdown::types::{self, ErrorCode, Sample};
    use bindings::frostline::pushdown::{descriptions, images, log, tensors};

    struct State {
        table: ResourceTable,
        nn: WasiNnCtx,
    }

    impl types::Host for State {}

    impl tensors::Host for State {}

    /// Only the conversions are used.
    impl tensors::HostTensor for State {
        fn zeros(&mut self, _: tensors::ElementType, _: Vec<u32>) -> Result<Handle, types::Error> {
            unreachable!()
        }

        fn from_bytes(
            &mut self,
            _: tensors::ElementType,
            _: Vec<u32>,
            _: Vec<u8>,
        ) -> Result<Handle, types::Error> {
            unreachable!()
        }

        fn concat(&mut self, _: Vec<Handle>) -> Result<Handle, types::Error> {
            unreachable!()
        }

        fn from_nn(&mut self, tensor: Handle) -> Handle {
            tensor
        }

        fn into_nn(&mut self, tensor: Handle) -> Handle {
            tensor
        }

        fn shape(&mut self, _: Handle) -> Vec<u32> {
            unreachable!()
        }

        fn element_type(&mut self, _: Handle) -> tensors::ElementType {
            unreachable!()
        }

        fn read(&mut self, _: Handle, _: u64, _: u64) -> Result<Vec<u8>, types::Error> {
            unreachable!()
        }

        fn write(&mut self, _: Handle, _: u64, _: Vec<u8>) -> Result<(), types::Error> {
            unreachable!()
        }

        fn slice(&mut self, _: Handle, _: u32, _: u32) -> Result<Handle, types::Error> {
            unreachable!()
        }

        fn cast(&mut self, _: Handle, _: tensors::ElementType) -> Result<Handle, types::Error> {
            unreachable!()
        }

        fn drop(&mut self, tensor: Handle) -> wasmtime::Result<()> {
            self.table.delete(tensor)?;
            Ok(())
        }
    }

    type Handle = Resource<GuestTensor>;

    impl images::Host for State {
        fn load(
            &mut self,
            _: Vec<Sample>,
            _: images::Recipe,
            _: images::PixelFormat,
        ) -> Result<images::Loaded, types::Error> {
            unreachable!()
        }
    }

    impl descriptions::Host for State {}

    /// The guest is not described.
    impl descriptions::HostDescription for State {
        fn set_name(&mut self, _: Resource<descriptions::Description>, _: String, _: String) {
            unreachable!()
        }

        fn set_media_types(
            &mut self,
            _: Resource<descriptions::Description>,
            _: Vec<String>,
        ) -> Result<(), types::Error> {
            unreachable!()
        }

        fn set_recipe(
            &mut self,
            _: Resource<descriptions::Description>,
            _: images::Recipe,
        ) -> Result<(), types::Error> {
            unreachable!()
        }

        fn set_max_samples(
            &mut self,
            _: Resource<descriptions::Description>,
            _: u32,
        ) -> Result<(), types::Error> {
            unreachable!()
        }

        fn serve(&mut self, _: Resource<descriptions::Description>, _: String) -> Result<(), types::Error> {
            unreachable!()
        }

        fn serve_custom(
            &mut self,
            _: Resource<descriptions::Description>,
            _: String,
            _: Vec<tensors::TensorInfo>,
        ) -> Result<(), types::Error> {
            unreachable!()
        }

        fn drop(&mut self, _: Resource<descriptions::Description>) -> wasmtime::Result<()> {
            unreachable!()
        }
    }

    impl log::Host for State {
        fn write(&mut self, _: log::Level, message: String) {
            eprintln!("{message}");
        }
    }

    pub(super) fn on_the_reference(bytes: &[u8]) -> GuestReport {
        let engine = wasmtime::Engine::new(Config::new().wasm_component_model(true)).unwrap();
        let mut linker = Linker::<State>::new(&engine);
        wasmtime_wasi_nn::wit::add_to_linker(&mut linker, |state| {
            WasiNnView::new(&mut state.table, &mut state.nn)
        })
        .unwrap();
        let mut store = Store::new(&engine, state());
        let component = Component::new(&engine, bytes).unwrap();
        // The guest logs panics. All other Frostline interfaces are not called.
        log::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state).unwrap();
        types::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state).unwrap();
        tensors::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state).unwrap();
        images::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state).unwrap();
        descriptions::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state).unwrap();
        let guest = bindings::FrozenPrefix::instantiate(&mut store, &component, &linker).unwrap();
        let samples: Vec<_> = SAMPLES
            .iter()
            .map(|key| Sample {
                key: (*key).to_owned(),
                etag: None,
            })
            .collect();
        let input = tensors::TensorInfo {
            name: "x".to_owned(),
            element_type: tensors::ElementType::Float32,
            shape: vec![3],
        };
        let job = prefix::Job {
            samples,
            cut: "y".to_owned(),
            graph: "y".to_owned(),
            inputs: vec![input],
            parameters: String::new(),
        };
        let answer = guest.frostline_pushdown_prefix().call_extract(&mut store, &job);
        let mut answer = answer.unwrap().unwrap();
        let (_, tensor) = answer.tensors.remove(0);
        let tensor = store.data_mut().table.delete(tensor).unwrap();
        GuestReport {
            dims: tensor.dimensions.iter().map(|&dim| dim as usize).collect(),
            bytes: tensor.data,
            codes: answer
                .failed
                .into_iter()
                .map(|failure| code(failure.error.code))
                .collect(),
        }
    }

    fn state() -> State {
        let graph: Box<dyn BackendGraph> = Box::new(OverOurEngine(Arc::new(Engine::new())));
        let registry = Registry::from(OneGraph(Graph::from(graph)));
        State {
            table: ResourceTable::new(),
            nn: WasiNnCtx::new([], registry),
        }
    }

    struct OneGraph(Graph);

    impl GraphRegistry for OneGraph {
        fn get(&self, name: &str) -> Option<&Graph> {
            (name == "y").then_some(&self.0)
        }

        fn get_mut(&mut self, name: &str) -> Option<&mut Graph> {
            (name == "y").then_some(&mut self.0)
        }
    }

    /// Backend for the reference host. The backend included in the crate needs another version of ort.
    #[derive(Clone)]
    struct OverOurEngine(Arc<Engine>);

    impl BackendGraph for OverOurEngine {
        fn init_execution_context(&self) -> Result<ExecutionContext, BackendError> {
            let context: Box<dyn BackendExecutionContext> = Box::new(self.clone());
            Ok(context.into())
        }
    }

    impl BackendExecutionContext for OverOurEngine {
        fn set_input(&mut self, _: Id, _: &GuestTensor) -> Result<(), BackendError> {
            unreachable!("components cannot call set_input")
        }

        fn get_output(&mut self, _: Id) -> Result<GuestTensor, BackendError> {
            unreachable!("components cannot call get_output")
        }

        fn compute(
            &mut self,
            inputs: Option<Vec<BackendTensor>>,
        ) -> Result<Option<Vec<BackendTensor>>, BackendError> {
            let inputs: Vec<(String, Tensor)> = inputs
                .unwrap()
                .into_iter()
                .map(|input| (input.name, to_engine(&input.tensor)))
                .collect();
            let borrowed: Vec<(&str, &Tensor)> = inputs
                .iter()
                .map(|(name, tensor)| (name.as_str(), tensor))
                .collect();
            let outputs = self
                .0
                .run(&borrowed)
                .map_err(|error| BackendError::BackendAccess(wasmtime::Error::new(error)))?;
            let held = outputs.into_iter().map(|(name, tensor)| BackendTensor {
                name,
                tensor: from_engine(&tensor),
            });
            Ok(Some(held.collect()))
        }
    }

    fn to_engine(held: &GuestTensor) -> Tensor {
        let dtype = match held.ty {
            TensorType::Fp32 => DType::F32,
            TensorType::I32 => DType::I32,
            other => panic!("unexpected tensor type {other:?}"),
        };
        let dims: Vec<usize> = held.dimensions.iter().map(|&dim| dim as usize).collect();
        Tensor::new(dims, Data::from_bytes(dtype, &held.data).unwrap()).unwrap()
    }

    fn from_engine(tensor: &Tensor) -> GuestTensor {
        let dims = tensor
            .shape()
            .dims()
            .iter()
            .map(|&dim| u32::try_from(dim).unwrap())
            .collect();
        assert_eq!(tensor.dtype(), DType::F32);
        GuestTensor::new(dims, TensorType::Fp32, tensor.as_bytes().to_vec())
    }

    fn code(code: ErrorCode) -> OpErrorCode {
        match code {
            ErrorCode::NotFound => OpErrorCode::NotFound,
            ErrorCode::Failed => OpErrorCode::RuntimeError,
            other => panic!("unexpected error {other:?}"),
        }
    }
}

mod needs_guests {
    use super::*;

    #[tokio::test]
    async fn our_host_answers_a_guest_as_the_reference_does() {
        let bytes = built("conformance");
        let ours = on_our_host(bytes.clone()).await;
        assert_eq!(ours.dims, [2, 2]);
        assert!(ours.bytes.iter().any(|&byte| byte != 0));
        use OpErrorCode::{NotFound, RuntimeError};
        assert_eq!(
            ours.codes,
            [NotFound, RuntimeError, RuntimeError, RuntimeError, RuntimeError]
        );
        assert_eq!(reference::on_the_reference(&bytes), ours);
    }
}
