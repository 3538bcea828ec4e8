//! Converts arguments to the types of the guest interface.

use crate::bindings::exports::frostline::pushdown::prefix;
use crate::bindings::frostline::pushdown::tensors;
use crate::bindings::frostline::pushdown::types::Sample;
use crate::call::{Call, CutView, ModelView};
use crate::error::SandboxError;
use crate::stage_name;
use crate::tensors::element_type_of;
use frostline_tensor::SampleRef;
use frostline_wire::TensorInfo;
use std::collections::HashMap;
use std::sync::Arc;

/// Returns the etags of samples by key, for reads of the guest.
pub(crate) fn versions(samples: &[SampleRef]) -> Arc<HashMap<String, String>> {
    Arc::new(
        samples
            .iter()
            .filter_map(|sample| Some((sample.key.clone(), sample.etag.clone()?)))
            .collect(),
    )
}

pub(crate) fn model(model: &ModelView) -> Result<prefix::Model, SandboxError> {
    Ok(prefix::Model {
        inputs: infos(&model.inputs())?,
        cuts: model.cuts.iter().map(cut).collect::<Result<_, _>>()?,
    })
}

fn cut(cut: &CutView) -> Result<prefix::Cut, SandboxError> {
    Ok(prefix::Cut {
        name: cut.name.clone(),
        tensors: infos(&[cut.info()])?,
    })
}

pub(crate) fn job(call: &Call, samples: &[SampleRef]) -> Result<prefix::Job, SandboxError> {
    let samples = samples.iter().map(|sample| Sample {
        key: sample.key.clone(),
        etag: sample.etag.clone(),
    });
    Ok(prefix::Job {
        samples: samples.collect(),
        cut: call.split.clone(),
        graph: stage_name::stage_to(&call.split),
        inputs: infos(&call.model.inputs())?,
        parameters: call.parameters.clone(),
    })
}

fn infos(tensors: &[TensorInfo]) -> Result<Vec<tensors::TensorInfo>, SandboxError> {
    let mut infos = Vec::new();
    for tensor in tensors {
        infos.push(tensors::TensorInfo {
            name: tensor.name.clone(),
            element_type: element_type_of(tensor.dtype),
            shape: dims(&tensor.shape)?,
        });
    }
    Ok(infos)
}

fn dims(shape: &[usize]) -> Result<Vec<u32>, SandboxError> {
    let dims: Result<_, _> = shape.iter().map(|&dim| u32::try_from(dim)).collect();
    dims.map_err(|_| {
        SandboxError::host(format!(
            "the model's shape {shape:?} exceeds 32 bits, which guests cannot represent"
        ))
    })
}
