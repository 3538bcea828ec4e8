//! Passes the same tensor as two inputs.

use frostline_hostile::{NnTensor, TensorType};

frostline_hostile::extracts!("same_tensor_twice", |job| {
    use frostline_hostile::frostline_guest::bindings::wasi::nn::graph::load_by_name;
    let handle = NnTensor::new(&[1], TensorType::U8, &[0]).take_handle();
    // SAFETY: deliberately violated, since the host must withstand this.
    let twice = unsafe { [NnTensor::from_handle(handle), NnTensor::from_handle(handle)] };
    let inputs = twice
        .into_iter()
        .map(|tensor| (job.inputs[0].name.clone(), tensor));
    load_by_name(&job.graph)?
        .init_execution_context()?
        .compute(inputs.collect())?;
    frostline_hostile::answer(&job)
});
