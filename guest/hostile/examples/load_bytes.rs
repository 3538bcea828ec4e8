//! Passes the bytes of a model to the host.

use frostline_guest::{Activations, Description, Failure, FrozenPrefix, Job, ModelView, Sample};

struct Hostile;

impl FrozenPrefix for Hostile {
    fn describe(model: ModelView, _: String) -> Result<Description, Failure> {
        frostline_hostile::describe("load_bytes", model)
    }

    fn extract(samples: Vec<Sample>, job: Job) -> Result<Activations, Failure> {
        let _ = (samples, job);
        use frostline_guest::bindings::wasi::nn::graph::{ExecutionTarget, GraphEncoding, load};
        load(
            &[b"not a model".to_vec()],
            GraphEncoding::Onnx,
            ExecutionTarget::Cpu,
        )?;
        Err(Failure::invalid("the host took model bytes from a guest"))
    }
}

frostline_guest::export!(Hostile);
