use super::networks::{floats, int_attribute, integers, network, node, step};
use crate::{EngineError, Interrupt, ResidentSlot, ResidentState, Session, SessionOptions};
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
    let mut weights = vector(&[1.0, 2.0, 3.0]);
    let mut moments = vector(&[0.0; 3]);
    for index in 0_u8..7 {
        let x = vector(&[f32::from(index), 0.5, -1.0]);
        let rate = rate(0.1);
        let expected = open(&step(3))
            .run(&[("w", &weights), ("m", &moments), ("x", &x), ("rate", &rate)])
            .unwrap();
        let engine = if index % 3 == 2 { &mut other } else { &mut session };
        let sum = engine
            .step(
                &mut resident,
                &[("x", &x), ("rate", &rate)],
                &["sum"],
                &Interrupt::new(),
            )
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
fn steps_in_place_equal_other_steps() {
    let x = vector(&[1.0, -2.0]);
    let rate = rate(0.5);
    let inputs = [("x", &x), ("rate", &rate)];
    let mut plain = open(&step(2));
    let mut in_place = open(&step(2));
    in_place.write_in_place(["next_w".to_owned(), "next_m".to_owned()]);
    let mut expected = state(&[4.0, 5.0]);
    let mut written = state(&[4.0, 5.0]);
    for _ in 0..3 {
        let wanted = ["sum", "next_w"];
        assert_eq!(
            in_place
                .step(&mut written, &inputs, &wanted, &Interrupt::new())
                .unwrap(),
            plain
                .step(&mut expected, &inputs, &wanted, &Interrupt::new())
                .unwrap()
        );
        assert_eq!(written.tensors().unwrap(), expected.tensors().unwrap());
    }
}

#[test]
fn a_state_is_lost_when_a_run_in_place_fails() {
    let looked_up = network(
        vec![
            node("Add", &["w", "w"], "next_w"),
            node("Gather", &["next_w", "place"], "found"),
        ],
        vec![floats("w", &[2]), integers("place", &[1])],
        vec![floats("next_w", &[2]), floats("found", &[1])],
        vec![],
    );
    let mut session = open(&looked_up);
    session.write_in_place(["next_w".to_owned()]);
    let mut resident = state(&[1.0, 2.0]);
    let inside = places(1);
    let outside = places(7);
    let found = session
        .step(
            &mut resident,
            &[("place", &inside)],
            &["found"],
            &Interrupt::new(),
        )
        .unwrap();
    assert_eq!(found, vec![vector(&[4.0])]);
    let interrupt = crate::Interrupt::new();
    interrupt.trigger(crate::InterruptCause::Cancelled);
    let ended = session.step(&mut resident, &[("place", &inside)], &[], &interrupt);
    assert!(matches!(ended, Err(EngineError::Interrupted { .. })), "{ended:?}");
    assert_eq!(resident.tensor("w").unwrap(), vector(&[2.0, 4.0]));
    let failed = session.step(
        &mut resident,
        &[("place", &outside)],
        &["found"],
        &Interrupt::new(),
    );
    assert!(matches!(failed, Err(EngineError::Run { .. })), "{failed:?}");
    assert!(resident.tensor("w").is_err() && resident.tensors().is_err());
    let again = session.step(
        &mut resident,
        &[("place", &inside)],
        &["found"],
        &Interrupt::new(),
    );
    assert!(
        again
            .unwrap_err()
            .to_string()
            .contains("start again from a checkpoint")
    );
}

fn places(place: i64) -> Tensor {
    Tensor::i64([1], vec![place]).unwrap()
}

#[test]
fn a_step_that_fails_leaves_the_state() {
    let mut session = open(&step(2));
    let mut resident = state(&[4.0, 5.0]);
    let x = vector(&[1.0, 1.0]);
    let short = vector(&[1.0]);
    let rate = rate(1.0);
    let wrong_shape = session.step(
        &mut resident,
        &[("x", &short), ("rate", &rate)],
        &["sum"],
        &Interrupt::new(),
    );
    assert!(matches!(wrong_shape, Err(EngineError::InputMismatch { .. })));
    let missing = session.step(&mut resident, &[("x", &x)], &["sum"], &Interrupt::new());
    assert!(matches!(missing, Err(EngineError::InputCount { times: 0, .. })));
    let unknown = session.step(
        &mut resident,
        &[("x", &x), ("rate", &rate)],
        &["loss"],
        &Interrupt::new(),
    );
    assert!(matches!(unknown, Err(EngineError::UnknownOutput { .. })));
    assert_eq!(resident.tensor("w").unwrap(), vector(&[4.0, 5.0]));
    assert_eq!(resident.tensor("m").unwrap(), vector(&[0.0, 0.0]));
    session
        .step(
            &mut resident,
            &[("x", &x), ("rate", &rate)],
            &[],
            &Interrupt::new(),
        )
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
    let error = open(&growing)
        .step(&mut resident, &[], &[], &Interrupt::new())
        .unwrap_err();
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
    open(&twice)
        .step(&mut resident, &[], &[], &Interrupt::new())
        .unwrap();
    assert_eq!(resident.tensor("w").unwrap(), vector(&[2.0, 4.0]));
    assert_eq!(resident.tensor("m").unwrap(), vector(&[0.0, 0.0]));
}
