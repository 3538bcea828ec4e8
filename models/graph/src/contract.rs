//! Requirements for a network. It must have a single input with a fixed size per sample, a single output, and
//! a dynamic batch.

use crate::onnx::{Dimension, DimensionValue, ModelProto, ValueInfo};
use crate::{GraphError, Model, operators};

/// Newest version of the ONNX format whose messages are known.
const NEWEST_FORMAT: i64 = 13;

/// Checks a network and adapts it. A fixed batch of 1 becomes dynamic. With `image_size`, open axes of the
/// input are set to a square RGB image of this size.
pub(crate) fn network_from(proto: ModelProto, image_size: Option<usize>) -> Result<Model, GraphError> {
    let mut model = Model::from_proto(proto)?;
    check_versions(&model)?;
    if let Some(size) = image_size {
        model = sized(&model, size)?;
    }
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
            why: format!("this is the first axis of input `{}`", input.name),
        }),
    }
}

/// Refuses versions that engines do not know.
fn check_versions(model: &Model) -> Result<(), GraphError> {
    let (format, operators) = (model.frame().ir_version, model.opset());
    let newest = *operators::VERSIONS.end();
    let too_new = |what, version, most| Err(GraphError::Version { what, version, most });
    match () {
        () if format > NEWEST_FORMAT => too_new("ONNX format (IR) version", format, NEWEST_FORMAT),
        () if operators > newest => too_new("ONNX operator set", operators, newest),
        () => Ok(()),
    }
}

/// Sets the input to images with three channels and `size` pixels per side.
fn sized(model: &Model, size: usize) -> Result<Model, GraphError> {
    let names: Vec<&str> = model.inputs().map(|input| input.name.as_str()).collect();
    let mut graph = model.graph().clone();
    for input in graph
        .input
        .iter_mut()
        .filter(|input| names.contains(&input.name.as_str()))
    {
        let name = input.name.clone();
        let wrong = |why: String| GraphError::InputShape {
            input: name.clone(),
            why,
        };
        let tensor = input.r#type.as_mut().and_then(|of| of.tensor_type.as_mut());
        let dims = tensor.and_then(|tensor| tensor.shape.as_mut());
        let dims = dims.map_or(&mut [][..], |shape| &mut shape.dim);
        let [_, image @ ..] = dims else {
            return Err(wrong("the shape is missing".into()));
        };
        if image.len() != 3 {
            return Err(wrong("it is not an image [3, height, width]".into()));
        }
        for (dim, size) in image.iter_mut().zip([3, size, size]) {
            let wanted = DimensionValue::DimValue(i64::try_from(size).unwrap_or(i64::MAX));
            match &dim.value {
                Some(DimensionValue::DimValue(fixed)) if *fixed > 0 && dim.value != Some(wanted.clone()) => {
                    return Err(wrong(format!(
                        "an axis is fixed to {fixed}, but --image-size is {size}"
                    )));
                }
                _ => {
                    *dim = Dimension {
                        value: Some(wanted),
                        ..Dimension::default()
                    }
                }
            }
        }
    }
    model.with_graph(graph)
}

fn names<'a>(values: impl Iterator<Item = &'a ValueInfo>) -> String {
    values
        .map(|value| format!("`{}`", value.name))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the batch size to which the input is fixed, if any, and checks that all other axes are fixed.
fn fixed_batch(input: &ValueInfo) -> Result<Option<u64>, GraphError> {
    let wrong = |why: String| GraphError::InputShape {
        input: input.name.clone(),
        why,
    };
    let shape = input.tensor().and_then(|tensor| tensor.shape.as_ref());
    let shape = shape.ok_or_else(|| wrong("the shape is missing".into()))?;
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
