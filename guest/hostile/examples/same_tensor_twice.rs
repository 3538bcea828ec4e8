//! Passes the same tensor as two inputs.

use frostline_hostile::frostline_guest::{Tensor, TensorType};

frostline_hostile::extracts!("same_tensor_twice", |samples, job| {
    use frostline_hostile::frostline_guest::bindings::wasi::nn::graph::load_by_name;
    let handle = Tensor::new(&[1], TensorType::U8, &[0]).take_handle();
    // SAFETY: deliberately violated, since the host must withstand this.
    let twice = unsafe { [Tensor::from_handle(handle), Tensor::from_handle(handle)] };
    let inputs = twice.into_iter().map(|tensor| (job.input.clone(), tensor));
    load_by_name(&job.stage)?
        .init_execution_context()?
        .compute(inputs.collect())?;
    Ok(frostline_hostile::answer(&samples))
});
