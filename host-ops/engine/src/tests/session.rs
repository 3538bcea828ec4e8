use super::networks::{floats, network, node, relu, value, weight};
use crate::{Device, EngineError, Interrupt, InterruptCause, Session, SessionOptions};
use frostline_graph::onnx::data_type;
use frostline_tensor::{Data, Tensor};
use half::{bf16, f16};

fn open(model: &[u8]) -> Session {
    Session::open(model, &SessionOptions::default()).unwrap()
}

#[test]
fn the_library_says_its_version() {
    let version = crate::library_version().unwrap();
    assert!(version.starts_with("1."), "{version}");
    assert!(crate::library::library_path().unwrap().is_file());
}

#[test]
fn a_network_runs_at_any_batch_even_none() {
    let mut session = open(&relu(3));
    for rows in [2_usize, 1, 5, 0] {
        let values: Vec<f32> = (0..rows * 3)
            .map(|i| if i % 2 == 0 { -1.0 } else { 2.5 })
            .collect();
        let expected: Vec<f32> = values.iter().map(|v| v.max(0.0)).collect();
        let batch = Tensor::f32([rows, 3], values).unwrap();
        let outputs = session.run(&[("x", &batch)]).unwrap();
        assert_eq!(
            outputs,
            vec![("y".to_owned(), Tensor::f32([rows, 3], expected).unwrap())]
        );
    }
}

#[test]
fn slots_describe_the_network() {
    let session = open(&relu(3));
    assert_eq!(session.inputs()[0].describe(), "f32[?, 3]");
    assert_eq!(session.inputs()[0].shape, vec![None, Some(3)]);
    assert_eq!(session.outputs()[0].name, "y");
}

#[test]
fn every_element_type_passes_unchanged() {
    let cases = [
        (data_type::UINT8, Data::U8(vec![0, 255])),
        (data_type::FLOAT16, Data::F16(vec![f16::MIN, f16::MAX])),
        (data_type::BFLOAT16, Data::Bf16(vec![bf16::MIN, bf16::MAX])),
        (data_type::FLOAT, Data::F32(vec![f32::MIN, f32::MAX])),
        (data_type::DOUBLE, Data::F64(vec![f64::MIN, f64::MAX])),
        (data_type::INT32, Data::I32(vec![i32::MIN, i32::MAX])),
        (data_type::INT64, Data::I64(vec![i64::MIN, i64::MAX])),
    ];
    for (kind, data) in cases {
        let slots = |name| vec![value(name, kind, &[-1, 2])];
        let mut session = open(&network(
            vec![node("Identity", &["x"], "y")],
            slots("x"),
            slots("y"),
            vec![],
        ));
        let tensor = Tensor::new([1, 2], data).unwrap();
        assert_eq!(session.run(&[("x", &tensor)]).unwrap()[0].1, tensor);
    }
}

#[test]
fn inputs_that_do_not_fit_are_named() {
    let mut session = open(&relu(3));
    let good = Tensor::f32([1, 3], vec![0.0; 3]).unwrap();
    let wide = Tensor::f32([1, 4], vec![0.0; 4]).unwrap();
    let flat = Tensor::f32([3], vec![0.0; 3]).unwrap();
    let whole = Tensor::i64([1, 3], vec![0; 3]).unwrap();
    for wrong in [&wide, &flat, &whole] {
        let error = session.run(&[("x", wrong)]).unwrap_err();
        assert!(matches!(error, EngineError::InputMismatch { .. }), "{error}");
        assert!(error.to_string().contains("`x` takes f32[?, 3], not"), "{error}");
    }
    let unknown = session.run(&[("z", &good)]).unwrap_err();
    assert_eq!(unknown.to_string(), "unknown input `z`, expected one of `x`");
    assert!(matches!(
        session.run(&[]),
        Err(EngineError::InputCount { times: 0, .. })
    ));
    let twice = session.run(&[("x", &good), ("x", &good)]);
    assert!(matches!(twice, Err(EngineError::InputCount { times: 2, .. })));
    assert!(session.run(&[("x", &good)]).is_ok(), "the session still works");
}

#[test]
fn bytes_that_are_no_model_are_refused_with_the_engines_text() {
    let mut cut = relu(3);
    cut.truncate(cut.len() / 2);
    let unknown_operator = network(
        vec![node("NoSuchOperator", &["x"], "y")],
        vec![floats("x", &[1])],
        vec![floats("y", &[1])],
        vec![],
    );
    for bytes in [&b""[..], b"not a model", &cut, &unknown_operator] {
        let error = Session::open(bytes, &SessionOptions::default()).unwrap_err();
        assert!(
            matches!(&error, EngineError::Model { reason } if !reason.is_empty()),
            "{error}"
        );
    }
    let error = Session::open(&unknown_operator, &SessionOptions::default()).unwrap_err();
    assert!(error.to_string().contains("NoSuchOperator"), "{error}");
}

#[test]
fn a_kernel_that_fails_tells_why() {
    let product = network(
        vec![node("MatMul", &["x", "w"], "y")],
        vec![floats("x", &[-1, -1])],
        vec![floats("y", &[-1, 2])],
        vec![weight("w", &[3, 2], vec![1.0; 6])],
    );
    let mut session = open(&product);
    let batch = Tensor::f32([1, 5], vec![0.0; 5]).unwrap();
    let error = session.run(&[("x", &batch)]).unwrap_err();
    assert!(
        matches!(&error, EngineError::Run { reason } if reason.contains("MatMul")),
        "{error}"
    );
}

#[test]
fn an_output_of_another_kind_is_refused() {
    let nodes = vec![node("Greater", &["x", "zero"], "y")];
    let outputs = vec![value("y", data_type::BOOL, &[-1])];
    let mut session = open(&network(
        nodes,
        vec![floats("x", &[-1])],
        outputs,
        vec![weight("zero", &[], vec![0.0])],
    ));
    let error = session
        .run(&[("x", &Tensor::f32([1], vec![1.0]).unwrap())])
        .unwrap_err();
    assert!(matches!(error, EngineError::OutputType { .. }), "{error}");
}

/// An index that does not exist on any machine, including those with GPUs.
pub(super) const ABSENT: Device = Device::Cuda(4095);

#[test]
fn an_absent_gpu_is_an_error() {
    let options = SessionOptions {
        device: ABSENT,
        ..SessionOptions::default()
    };
    let error = Session::open(&relu(3), &options).unwrap_err();
    assert!(
        matches!(error, EngineError::Device { device: ABSENT, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("use `cpu`"), "{error}");
}

mod needs_gpu {
    use super::*;
    use frostline_tensor::Precision;

    #[test]
    #[ignore = "requires a GPU, run by cargo xtask test"]
    fn convolutions_on_a_gpu_match_the_cpu() {
        let weights: Vec<f32> = (0..16 * 3 * 9)
            .map(|index| (index % 11) as f32 / 11.0 - 0.5)
            .collect();
        let network = network(
            vec![node("Conv", &["x", "w"], "c"), node("Relu", &["c"], "y")],
            vec![floats("x", &[-1, 3, 16, 16])],
            vec![floats("y", &[-1, 16, 14, 14])],
            vec![weight("w", &[16, 3, 3, 3], weights)],
        );
        let pixels = (0..2 * 3 * 256)
            .map(|index| (index % 251) as f32 / 251.0)
            .collect();
        let batch = Tensor::f32([2, 3, 16, 16], pixels).unwrap();
        let expected = open(&network).run(&[("x", &batch)]).unwrap();
        for (precision, error) in [(Precision::Full, 1e-5), (Precision::Tf32, 1e-2)] {
            let options = SessionOptions {
                device: Device::Cuda(0),
                precision,
                ..SessionOptions::default()
            };
            let found = Session::open(&network, &options)
                .unwrap()
                .run(&[("x", &batch)])
                .unwrap();
            let [Data::F32(expected), Data::F32(found)] =
                [&expected, &found].map(|outputs| outputs[0].1.data())
            else {
                panic!("the output is f32");
            };
            let differences = expected.iter().zip(found).map(|(a, b)| (a - b).abs());
            let worst = differences.fold(0.0, f32::max);
            assert!(worst < error, "{precision:?}: {worst}");
        }
    }
}

#[test]
fn an_interrupt_triggered_before_stops_everything() {
    let interrupt = Interrupt::new();
    interrupt.trigger(InterruptCause::Cancelled);
    interrupt.trigger(InterruptCause::Shutdown);
    assert_eq!(
        interrupt.cause(),
        Some(InterruptCause::Cancelled),
        "only the first cause is recorded"
    );
    let refused = Session::open_until(&relu(3), &SessionOptions::default(), &interrupt);
    assert!(matches!(refused, Err(EngineError::Interrupted { .. })));
    let batch = Tensor::f32([1, 3], vec![0.0; 3]).unwrap();
    let refused = open(&relu(3)).run_until(&[("x", &batch)], &interrupt);
    assert!(matches!(refused, Err(EngineError::Interrupted { .. })));
}

#[test]
fn an_interrupt_ends_a_run_and_the_session_lives_on() {
    let mut session = open(&super::networks::slow(256, 400));
    let batch = Tensor::f32([256, 256], vec![1.0; 256 * 256]).unwrap();
    let interrupt = Interrupt::new();
    let handle = interrupt.clone();
    let result = std::thread::scope(|scope| {
        scope.spawn(move || {
            while !handle.has_target() {
                std::thread::yield_now();
            }
            handle.trigger(InterruptCause::Cancelled);
        });
        session.run_until(&[("x", &batch)], &interrupt)
    });
    assert_eq!(
        result,
        Err(EngineError::Interrupted {
            cause: InterruptCause::Cancelled
        })
    );
    assert_eq!(
        session.run(&[("x", &batch)]).unwrap()[0].1,
        batch,
        "the identity, 400 times"
    );
}
