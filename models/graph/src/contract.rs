//! What a network must be for frostline: one input of fixed size per sample, one output, any batch.

use crate::onnx::{DimensionValue, ModelProto, ValueInfo};
use crate::{GraphError, Model};

/// The network as frostline takes it, checked; a batch of 1 is opened.
pub(crate) fn network_from(proto: ModelProto) -> Result<Model, GraphError> {
    let model = Model::from_proto(proto)?;
    let inputs: Vec<&ValueInfo> = model.inputs().collect();
    let [input] = inputs.as_slice() else {
        return Err(GraphError::Inputs {
            count: inputs.len(),
            names: names(inputs.into_iter()),
        });
    };
    if model.outputs().len() != 1 {
        return Err(GraphError::Outputs {
            count: model.outputs().len(),
            names: names(model.outputs().iter()),
        });
    }
    match fixed_batch(input)? {
        None => Ok(model),
        Some(1) => crate::rebatch::open_batch(&model),
        Some(batch) => Err(GraphError::FixedBatch {
            batch,
            why: format!("input `{}` says so", input.name),
        }),
    }
}

fn names<'a>(values: impl Iterator<Item = &'a ValueInfo>) -> String {
    values
        .map(|value| format!("`{}`", value.name))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The batch the input is fixed to, if it is; checks that all other axes are fixed.
fn fixed_batch(input: &ValueInfo) -> Result<Option<u64>, GraphError> {
    let wrong = |why: String| GraphError::InputShape {
        input: input.name.clone(),
        why,
    };
    let shape = input.tensor().and_then(|tensor| tensor.shape.as_ref());
    let shape = shape.ok_or_else(|| wrong("it states no shape".into()))?;
    let (batch, rest) = shape
        .dim
        .split_first()
        .ok_or_else(|| wrong("it is a scalar".into()))?;
    for (axis, dim) in rest.iter().enumerate() {
        match &dim.value {
            Some(DimensionValue::DimValue(size)) if *size > 0 => {}
            Some(DimensionValue::DimParam(name)) => {
                return Err(wrong(format!("axis {} is `{name}`", axis + 1)));
            }
            _ => return Err(wrong(format!("axis {} is open", axis + 1))),
        }
    }
    Ok(match batch.value {
        Some(DimensionValue::DimValue(size)) if size > 0 => u64::try_from(size).ok(),
        _ => None,
    })
}
