use super::networks::{floats, int_attribute, network, node, step};
use crate::{EngineError, ResidentSlot, ResidentState, Session, SessionOptions};
use frostline_graph::onnx::NodeProto;
use frostline_tensor::Tensor;

fn open(model: &[u8]) -> Session {
    Session::open(model, &SessionOptions::default()).unwrap()
}

fn vector(values: &[f32]) -> Tensor {
    Tensor::f32([values.len()], values.to_vec()).unwrap()
}

fn rate(value: f32) -> Tensor {
    Tensor::f32([0; 0], vec![value]).unwrap()
}

fn state(weights: &[f32]) -> ResidentState {
    let slot = |input: &str, output: &str, values: &[f32]| ResidentSlot {
        input: input.to_owned(),
        output: output.to_owned(),
        initial: vector(values),
    };
    ResidentState::new([
        slot("w", "next_w", weights),
        slot("m", "next_m", &vec![0.0; weights.len()]),
    ])
    .unwrap()
}

#[test]
fn resident_steps_equal_steps_through_tensors() {
    let mut session = open(&step(3));
    let mut other = open(&step(3));
    let mut resident = state(&[1.0, 2.0, 3.0]);
    let (mut weights, mut moments) = (vector(&[1.0, 2.0, 3.0]), vector(&[0.0; 3]));
    for index in 0_u8..7 {
        let (x, rate) = (vector(&[f32::from(index), 0.5, -1.0]), rate(0.1));
        let expected = open(&step(3))
            .run(&[("w", &weights), ("m", &moments), ("x", &x), ("rate", &rate)])
            .unwrap();
        let engine = if index % 3 == 2 { &mut other } else { &mut session };
        let sum = engine
            .step(&mut resident, &[("x", &x), ("rate", &rate)], &["sum"])
            .unwrap();
        assert_eq!(sum, vec![expected[2].1.clone()]);
        weights = expected[0].1.clone();
        moments = expected[1].1.clone();
    }
    assert_eq!(resident.tensor("w").unwrap(), weights);
    assert_eq!(
        resident.tensors().unwrap(),
        vec![("w".to_owned(), weights), ("m".to_owned(), moments)]
    );
}

#[test]
fn a_binding_gives_the_same_step() {
    let (x, rate) = (vector(&[1.0, -2.0]), rate(0.5));
    let inputs = [("x", &x), ("rate", &rate)];
    let mut session = open(&step(2));
    let (mut plain, bound) = (state(&[4.0, 5.0]), state(&[4.0, 5.0]));
    let expected = session.step(&mut plain, &inputs, &["sum", "next_w"]).unwrap();
    let run = session.step_on_device(&bound, &inputs, &["sum", "next_w"], &crate::Interrupt::new());
    let (tensors, successors) = run.unwrap();
    assert_eq!(tensors, expected);
    assert_eq!(
        crate::values::extract("w", successors[0].as_ref().unwrap()).unwrap(),
        plain.tensor("w").unwrap()
    );
}

#[test]
fn a_step_that_fails_leaves_the_state() {
    let mut session = open(&step(2));
    let mut resident = state(&[4.0, 5.0]);
    let (x, short, rate) = (vector(&[1.0, 1.0]), vector(&[1.0]), rate(1.0));
    let wrong_shape = session.step(&mut resident, &[("x", &short), ("rate", &rate)], &["sum"]);
    assert!(matches!(wrong_shape, Err(EngineError::InputMismatch { .. })));
    let missing = session.step(&mut resident, &[("x", &x)], &["sum"]);
    assert!(matches!(missing, Err(EngineError::InputCount { times: 0, .. })));
    let unknown = session.step(&mut resident, &[("x", &x), ("rate", &rate)], &["loss"]);
    assert!(matches!(unknown, Err(EngineError::UnknownOutput { .. })));
    assert_eq!(resident.tensor("w").unwrap(), vector(&[4.0, 5.0]));
    assert_eq!(resident.tensor("m").unwrap(), vector(&[0.0, 0.0]));
    session
        .step(&mut resident, &[("x", &x), ("rate", &rate)], &[])
        .unwrap();
    assert_eq!(resident.tensor("w").unwrap(), vector(&[3.0, 4.0]));
}

#[test]
fn a_state_that_changes_its_shape_is_refused() {
    let concat = NodeProto {
        attribute: vec![int_attribute("axis", 0)],
        ..node("Concat", &["w", "w"], "next_w")
    };
    let growing = network(
        vec![concat],
        vec![floats("w", &[-1])],
        vec![floats("next_w", &[-1])],
        vec![],
    );
    let slot = ResidentSlot {
        input: "w".into(),
        output: "next_w".into(),
        initial: vector(&[1.0]),
    };
    let mut resident = ResidentState::new([slot]).unwrap();
    let error = open(&growing).step(&mut resident, &[], &[]).unwrap_err();
    assert!(matches!(error, EngineError::OutputType { .. }), "{error}");
    assert_eq!(resident.tensor("w").unwrap(), vector(&[1.0]));
}

#[test]
fn slots_that_a_session_does_not_know_stay() {
    let twice = network(
        vec![node("Add", &["w", "w"], "next_w")],
        vec![floats("w", &[2])],
        vec![floats("next_w", &[2])],
        vec![],
    );
    let mut resident = state(&[1.0, 2.0]);
    open(&twice).step(&mut resident, &[], &[]).unwrap();
    assert_eq!(resident.tensor("w").unwrap(), vector(&[2.0, 4.0]));
    assert_eq!(resident.tensor("m").unwrap(), vector(&[0.0, 0.0]));
}
