//! Executions with buffers that a lane reuses.

use super::networks::{floats, network, node, relu, slow, value, whole};
use super::setup::stage;
use crate::binding::{StageRun, Staging};
use crate::capture::Capture;
use crate::normalizer::Normalizer;
use crate::{Device, EngineError, Interrupt, InterruptCause, Session, SessionOptions, values};
use frostline_graph::onnx::data_type;
use frostline_tensor::{Data, Normalization, PixelSpec, Stage, Tensor};
use half::{bf16, f16};
use ort::memory::Allocator;
use ort::value::{DynTensor, TensorElementType};

fn open(model: &[u8]) -> Session {
    Session::open(model, &SessionOptions::default()).unwrap()
}

/// Returns the output `y` and its address.
fn run(
    session: &mut Session,
    staging: &mut Staging,
    batch: &Tensor,
    interrupt: &Interrupt,
) -> Result<(Tensor, usize), EngineError> {
    let stage = stage("any");
    let run = StageRun {
        stage: &stage,
        batch,
        interrupt,
    };
    session.run_bound(staging, run, |view| {
        (view.tensor().unwrap(), view.bytes.as_ptr() as usize)
    })
}

#[test]
fn bound_outputs_equal_unbound_outputs() {
    let rows = |rows: usize| {
        let values = (0..rows * 4).map(|index| index as f32 - 7.5).collect();
        Tensor::f32([rows, 4], values).unwrap()
    };
    let undeclared = network(
        vec![node("Relu", &["x"], "y")],
        vec![floats("x", &[-1, -1])],
        vec![floats("y", &[-1, -1])],
        vec![],
    );
    let mut staging = Staging::default();
    for model in [relu(4), undeclared] {
        let mut session = open(&model);
        for batch in [3, 5, 3, 0, 1].map(rows) {
            let bound = run(&mut session, &mut staging, &batch, &Interrupt::new()).unwrap();
            assert_eq!(bound.0, session.run(&[("x", &batch)]).unwrap()[0].1);
        }
    }
}

#[test]
fn every_element_type_is_bound() {
    let cases = [
        (data_type::UINT8, Data::U8(vec![0, 255])),
        (data_type::FLOAT16, Data::F16(vec![f16::MIN, f16::MAX])),
        (data_type::BFLOAT16, Data::Bf16(vec![bf16::MIN, bf16::MAX])),
        (data_type::FLOAT, Data::F32(vec![f32::MIN, f32::MAX])),
        (data_type::DOUBLE, Data::F64(vec![f64::MIN, f64::MAX])),
        (data_type::INT32, Data::I32(vec![i32::MIN, i32::MAX])),
        (data_type::INT64, Data::I64(vec![i64::MIN, i64::MAX])),
    ];
    let mut staging = Staging::default();
    for (kind, data) in cases {
        let slots = |name| vec![value(name, kind, &[-1, 2])];
        let nodes = vec![node("Identity", &["x"], "y")];
        let mut session = open(&network(nodes, slots("x"), slots("y"), vec![]));
        let tensor = Tensor::new([1, 2], data).unwrap();
        let made = run(&mut session, &mut staging, &tensor, &Interrupt::new()).unwrap();
        assert_eq!(made.0, tensor);
    }
}

#[test]
fn memory_stays_from_one_run_to_the_next_of_the_same_shape() {
    let mut session = open(&relu(4));
    let mut staging = Staging::default();
    let mut place = |rows: usize, value: f32| {
        let batch = Tensor::f32([rows, 4], vec![value; rows * 4]).unwrap();
        let (made, place) = run(&mut session, &mut staging, &batch, &Interrupt::new()).unwrap();
        assert_eq!(made, batch);
        place
    };
    let first = place(1000, 1.0);
    assert_eq!(place(1000, 2.0), first);
    place(10, 3.0);
    let other = place(1000, 4.0);
    assert_eq!(place(1000, 5.0), other);
}

#[test]
fn shapes_that_are_not_what_was_declared_are_errors() {
    // The output's shape depends on the batch's values, so ONNX Runtime does not know it in advance.
    let lying = network(
        vec![
            node("Reshape", &["x", "flat"], "shape"),
            node("Reshape", &["x", "shape"], "y"),
        ],
        vec![value("x", data_type::INT64, &[-1, 2])],
        vec![value("y", data_type::INT64, &[-1, 2])],
        vec![whole("flat", -1)],
    );
    let mut session = open(&lying);
    let mut staging = Staging::default();
    for (values, as_declared) in [(vec![1, 2], true), (vec![2, 1], false), (vec![1, 2], true)] {
        let batch = Tensor::i64([1, 2], values).unwrap();
        let made = run(&mut session, &mut staging, &batch, &Interrupt::new());
        match made {
            Ok((made, _)) => assert_eq!((made, as_declared), (batch, true)),
            Err(error) => assert!(
                matches!(error, EngineError::Run { .. }) && !as_declared,
                "{error}"
            ),
        }
    }
    let batch = Tensor::f32([2, 4], vec![1.0; 8]).unwrap();
    let mut session = open(&relu(4));
    let wide = Tensor::f32([2, 5], vec![1.0; 10]).unwrap();
    let error = run(&mut session, &mut staging, &wide, &Interrupt::new()).unwrap_err();
    assert!(matches!(error, EngineError::InputMismatch { .. }), "{error}");
    assert!(run(&mut session, &mut staging, &batch, &Interrupt::new()).is_ok());
}

#[test]
fn an_interrupt_ends_a_bound_run_and_what_is_kept_serves_on() {
    let mut session = open(&slow(256, 400));
    let mut staging = Staging::default();
    let batch = Tensor::f32([256, 256], vec![1.0; 256 * 256]).unwrap();
    let interrupt = Interrupt::new();
    let handle = interrupt.clone();
    let ended = std::thread::scope(|scope| {
        scope.spawn(move || {
            while !handle.has_target() {
                std::thread::yield_now();
            }
            handle.trigger(InterruptCause::Cancelled);
        });
        run(&mut session, &mut staging, &batch, &interrupt)
    });
    assert!(matches!(ended, Err(EngineError::Interrupted { .. })), "{ended:?}");
    let whole = run(&mut session, &mut staging, &batch, &Interrupt::new()).unwrap();
    assert_eq!(whole.0, batch, "the identity, 400 times");
}

#[test]
fn a_device_makes_the_same_floats_of_pixels_as_the_host() {
    // Loads the library, which an allocator needs.
    let mut normalizer = Normalizer::open(Device::Cpu).unwrap();
    let bytes: Vec<u8> = (0..6).flat_map(|_| 0..=u8::MAX).collect();
    let pixels = Tensor::new([2, 3, 16, 16], Data::U8(bytes)).unwrap();
    let mut staged = DynTensor::new(
        &Allocator::default(),
        TensorElementType::Uint8,
        [2_usize, 3, 16, 16],
    )
    .unwrap();
    values::write(&pixels, &mut staged).unwrap();
    let usual = PixelSpec::imagenet(16, 16);
    let other = |mean, std| PixelSpec { mean, std, ..usual };
    let specs = [
        usual,
        other([0.0; 3], [1.0; 3]),
        other([0.5; 3], [0.5; 3]),
        other(
            [0.481_454_66, 0.457_827_5, 0.408_210_73],
            [0.268_629_54, 0.261_302_6, 0.275_777_1],
        ),
        other([1.0, -3.0, 1e-9], [1e-3, 255.0, 7.0]),
    ];
    for spec in specs {
        let normalization = Normalization::from_spec(&spec);
        let made = normalizer
            .run(&staged, normalization, None, &Interrupt::new())
            .unwrap();
        let made = values::extract("floats", &made).unwrap();
        assert_eq!(
            made.as_bytes(),
            normalization.apply(&pixels).unwrap().as_bytes(),
            "{spec:?}"
        );
    }
}

/// A session that treats the CPU like a device with graphs.
fn capturing(model: &[u8]) -> Session {
    let mut session = open(model);
    session.capture = Capture::Ready;
    session
}

#[test]
fn batches_of_a_graph_use_the_same_tensors_and_give_the_same_outputs() {
    let mut session = capturing(&relu(4));
    let mut plain = open(&relu(4));
    let mut staging = Staging::default();
    let mut run_both = |session: &mut Session, rows: usize, start: f32| {
        let values = (0..rows * 4).map(|index| index as f32 * 0.5 + start).collect();
        let batch = Tensor::f32([rows, 4], values).unwrap();
        let (made, _) = run(session, &mut staging, &batch, &Interrupt::new()).unwrap();
        assert_eq!(made, plain.run(&[("x", &batch)]).unwrap()[0].1);
    };
    run_both(&mut session, 32, -3.0);
    let addresses = session.capture.addresses().unwrap();
    // Batches of other shapes are executed without the graph.
    for (rows, start) in [(32, -9.0), (7, 1.0), (32, -40.0), (64, 2.0), (32, -5.0)] {
        run_both(&mut session, rows, start);
        assert_eq!(session.capture.addresses(), Some(addresses));
    }
}

#[test]
fn pixels_are_normalized_into_the_tensor_of_a_graph() {
    let identity = network(
        vec![node("Relu", &["x"], "y")],
        vec![floats("x", &[-1, 3, 8, 8])],
        vec![floats("y", &[-1, 3, 8, 8])],
        vec![],
    );
    let mut sessions = [open(&identity), capturing(&identity)];
    let pixels = |first: u8| {
        let bytes = (0..2 * 3 * 64).map(|index: usize| first.wrapping_add(index as u8));
        Tensor::new([2, 3, 8, 8], Data::U8(bytes.collect())).unwrap()
    };
    for batch in [pixels(0), pixels(77), pixels(200)] {
        let [expected, found] = sessions.each_mut().map(|session| {
            let stage = Stage {
                pixels: Some(Normalization::from_spec(&PixelSpec::imagenet(8, 8))),
                ..stage("any")
            };
            let run = StageRun {
                stage: &stage,
                batch: &batch,
                interrupt: &Interrupt::new(),
            };
            let mut staging = Staging::default();
            let made = session.run_bound(&mut staging, run, |view| view.tensor());
            made.unwrap().unwrap()
        });
        assert_eq!(expected.as_bytes(), found.as_bytes());
    }
    assert!(matches!(sessions[1].capture, Capture::For(_)));
}

/// ONNX Runtime may have captured a part of an interrupted execution.
#[test]
fn a_graph_is_abandoned_after_an_interrupt() {
    let mut session = capturing(&relu(4));
    let mut staging = Staging::default();
    let batch = Tensor::f32([8, 4], vec![1.0; 32]).unwrap();
    run(&mut session, &mut staging, &batch, &Interrupt::new()).unwrap();
    let interrupt = Interrupt::new();
    interrupt.trigger(InterruptCause::Cancelled);
    let ended = run(&mut session, &mut staging, &batch, &interrupt);
    assert!(matches!(ended, Err(EngineError::Interrupted { .. })), "{ended:?}");
    assert!(matches!(session.capture, Capture::Abandoned { .. }));
    let (made, _) = run(&mut session, &mut staging, &batch, &Interrupt::new()).unwrap();
    assert_eq!(made, batch);
    assert!(matches!(session.capture, Capture::Abandoned { .. }));
}
