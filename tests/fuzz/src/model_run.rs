//! Admission, followed by a run in ONNX Runtime: of tiny networks that the bytes are made into, of all the operators that hosts take.

mod grow;

use frostline_engine::{Interrupt, InterruptCause, Session, SessionOptions};
use frostline_graph::{Model, ModelLimits};
use frostline_tensor::Tensor;
use grow::{INPUT, ROW, grown};
use prost::Message;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long a network of some hundred numbers may run.
const LONGEST: Duration = Duration::from_secs(20);

/// Makes a network of the bytes, and runs it where a host would.
///
/// # Panics
/// When an admitted network has an empty value, another shape at run time than was computed, runs without end, or gives other bits for the
/// same input after another run: an output that it leaves unwritten.
pub fn model_run(data: &[u8]) {
    let bytes = grown(data).encode_to_vec();
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
            "other bits for the same input"
        );
    }
}

/// Runs it; ends the process where it does not come back, since a kernel cannot be interrupted.
fn run(session: &mut Session, input: &Tensor) -> Option<Vec<(String, Tensor)>> {
    let interrupt = Interrupt::new();
    let (ended, end) = mpsc::channel::<()>();
    let watched = interrupt.clone();
    let watch = thread::spawn(move || {
        let late = end.recv_timeout(LONGEST) == Err(mpsc::RecvTimeoutError::Timeout);
        if late {
            watched.trigger(InterruptCause::Deadline { limit: LONGEST });
        }
        late
    });
    let outputs = session.run_until(&[(INPUT, input)], &interrupt).ok();
    drop(ended);
    assert!(!watch.join().unwrap_or(true), "it ran longer than {LONGEST:?}");
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
                "{name} at batch {batch} of {nodes:#?}"
            );
            // Lists of axes and sizes may be empty.
            assert!(computed.len() == 1 || !computed.contains(&0), "{name} is empty");
        }
    }
}

/// Bytes that begin with each operator once, alone and behind others.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    grow::seeds()
}
