//! Fuzz target for admission and execution of networks. It converts bytes to tiny networks of all permitted
//! operators and runs them in ONNX Runtime.

mod grow;

use frostline_engine::{Interrupt, InterruptCause, Session, SessionOptions};
use frostline_graph::{Model, ModelLimits};
use frostline_tensor::Tensor;
use grow::{INPUT, ROW, network_from_bytes};
use prost::Message;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Maximum duration of an execution.
const MAX_DURATION: Duration = Duration::from_secs(20);

/// Converts the bytes to a network, admits it and runs it.
///
/// # Panics
/// Panics if an admitted network has an empty value, shapes differ from the computed ones, an execution
/// exceeds the time limit, or outputs change after another execution, which indicates uninitialized memory.
pub fn model_run(data: &[u8]) {
    let bytes = network_from_bytes(data).encode_to_vec();
    let Ok(model) = Model::admit(bytes.clone().into(), &ModelLimits::default()) else {
        return;
    };
    let options = SessionOptions {
        arena: false,
        ..SessionOptions::default()
    };
    let Ok(mut session) = Session::open(&bytes, &options) else {
        return;
    };
    for batch in [1, 3] {
        let [Some(first), Some(other)] = [0.5, -1.25].map(|step| input(batch, step)) else {
            return;
        };
        let Some(before) = run(&mut session, &first) else {
            return;
        };
        check_shapes(&model, batch, &before);
        run(&mut session, &other);
        let again = run(&mut session, &first);
        let bits = |outputs: &[(String, Tensor)]| -> Vec<Vec<u8>> {
            outputs
                .iter()
                .map(|(_, tensor)| tensor.as_bytes().to_vec())
                .collect()
        };
        assert_eq!(
            again.as_deref().map(bits),
            Some(bits(&before)),
            "different bits for the same input"
        );
    }
}

/// Runs the network. After [`MAX_DURATION`], interrupts it and panics. A kernel that never returns hangs the
/// target, because it cannot be interrupted.
fn run(session: &mut Session, input: &Tensor) -> Option<Vec<(String, Tensor)>> {
    let interrupt = Interrupt::new();
    let (ended, end) = mpsc::channel::<()>();
    let watched = interrupt.clone();
    let watch = thread::spawn(move || {
        let late = end.recv_timeout(MAX_DURATION) == Err(mpsc::RecvTimeoutError::Timeout);
        if late {
            watched.trigger(InterruptCause::Deadline { limit: MAX_DURATION });
        }
        late
    });
    let outputs = session.run_until(&[(INPUT, input)], &interrupt).ok();
    drop(ended);
    assert!(
        !watch.join().unwrap_or(true),
        "the execution exceeded {MAX_DURATION:?}"
    );
    outputs
}

fn input(batch: usize, step: f32) -> Option<Tensor> {
    let numbers = batch * ROW.iter().product::<usize>();
    let values = (0..numbers).map(|number| (number % 7) as f32 * step).collect();
    let shape: Vec<usize> = [batch].into_iter().chain(ROW).collect();
    Tensor::f32(shape, values).ok()
}

fn check_shapes(model: &Model, batch: usize, outputs: &[(String, Tensor)]) {
    let Ok(shapes) = model.shapes(batch) else {
        return;
    };
    for (name, tensor) in outputs {
        if let Some(computed) = shapes.dims(name) {
            let nodes = model.nodes();
            assert_eq!(
                tensor.shape().dims(),
                computed,
                "{name} at batch {batch} in {nodes:#?}"
            );
            // Axes and sizes may be empty lists.
            assert!(computed.len() == 1 || !computed.contains(&0), "{name} is empty");
        }
    }
}

/// Returns inputs that begin with each operator once.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    grow::seeds()
}
