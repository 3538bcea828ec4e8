//! Converts arguments to the types of the guest interface.

use crate::call::{Call, ModelView};
use crate::error::SandboxError;
use crate::{bindings, stage_name};
use frostline_tensor::SampleRef;
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) fn samples(samples: &[SampleRef]) -> Vec<bindings::Sample> {
    let one = |sample: &SampleRef| bindings::Sample {
        key: sample.key.clone(),
        etag: sample.etag.clone(),
    };
    samples.iter().map(one).collect()
}

/// Returns the etags of samples by key, for reads of the guest.
pub(crate) fn versions(samples: &[SampleRef]) -> Arc<HashMap<String, String>> {
    let versioned = |sample: &SampleRef| Some((sample.key.clone(), sample.etag.clone()?));
    Arc::new(samples.iter().filter_map(versioned).collect())
}

pub(crate) fn model_view(model: &ModelView) -> Result<bindings::ModelView, SandboxError> {
    let cuts = model.cuts.iter().map(|cut| {
        Ok(bindings::Cut {
            name: cut.name.clone(),
            shape: dims(&cut.shape)?,
        })
    });
    Ok(bindings::ModelView {
        input: model.input.clone(),
        input_shape: dims(&model.input_shape)?,
        cuts: cuts.collect::<Result<_, SandboxError>>()?,
    })
}

pub(crate) fn job(call: &Call) -> Result<bindings::Job, SandboxError> {
    Ok(bindings::Job {
        split: call.split.clone(),
        stage: stage_name::stage_to(&call.split),
        input: call.model.input.clone(),
        input_shape: dims(&call.model.input_shape)?,
        parameters: call.parameters.clone(),
    })
}

fn dims(shape: &[usize]) -> Result<Vec<u32>, SandboxError> {
    let dims: Result<_, _> = shape.iter().map(|&dim| u32::try_from(dim)).collect();
    dims.map_err(|_| {
        SandboxError::host(format!(
            "the model's shape {shape:?} exceeds 32 bits, which guests cannot represent"
        ))
    })
}
