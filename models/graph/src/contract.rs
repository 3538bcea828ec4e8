//! Requirements for a network. It must have a single input with a fixed size per sample, a single output, and
//! a dynamic batch.

use crate::form::{drop_unread, drop_unread_inputs};
use crate::network::quoted;
use crate::onnx::{Dimension, DimensionValue, ModelProto, ValueInfo};
use crate::{GraphError, InputSize, Model, operators};

/// Newest supported version of the ONNX format (IR).
const NEWEST_FORMAT: i64 = 13;

/// Choices for networks that leave their input or output open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// Height and width of images in pixels. Open axes of the input become `[3, height, width]`.
    pub image_size: Option<usize>,
    /// Name of the output, for networks with several outputs. Layers and inputs that only other outputs need
    /// are removed.
    pub output: Option<String>,
}

/// Checks a network and adapts it. A fixed batch of 1 becomes dynamic.
pub(crate) fn network_from(proto: ModelProto, interface: &Interface) -> Result<Model, GraphError> {
    with_one_input(with_interface(proto, interface)?)
}

/// Checks a network and adapts it as [`network_from`] does, after joining its inputs.
pub(crate) fn joined_network_from(proto: ModelProto, interface: &Interface) -> Result<Model, GraphError> {
    with_one_input(with_interface(proto, interface)?.with_joint_input()?)
}

/// Reads a network with the selected size of images and output.
fn with_interface(proto: ModelProto, interface: &Interface) -> Result<Model, GraphError> {
    let mut model = Model::from_proto(proto)?;
    check_versions(&model)?;
    if let Some(output) = &interface.output {
        model = with_output(&model, output)?;
    }
    if let Some(size) = interface.image_size {
        model = sized(&model, size)?;
    }
    Ok(model)
}

/// Checks the input, the output and the batch of a network. A fixed batch of 1 becomes dynamic.
fn with_one_input(model: Model) -> Result<Model, GraphError> {
    let inputs: Vec<&ValueInfo> = model.inputs().collect();
    let [input] = inputs.as_slice() else {
        let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
        return Err(GraphError::Inputs {
            count: names.len(),
            names: quoted(&names),
        });
    };
    if model.outputs().len() != 1 {
        return Err(GraphError::Outputs {
            names: output_names(&model),
        });
    }
    let batch = fixed_batch(input);
    match batch.map_err(|why| wrong_shape(&input.name, why, fitting_size(&model, input)))? {
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
    let supported = [
        (
            "ONNX format (IR) version",
            model.frame().ir_version,
            NEWEST_FORMAT,
        ),
        ("ONNX operator set", model.opset(), *operators::VERSIONS.end()),
    ];
    for (what, version, most) in supported {
        if version > most {
            return Err(GraphError::Version { what, version, most });
        }
    }
    Ok(())
}

fn output_names(model: &Model) -> Vec<String> {
    model.outputs().iter().map(|output| output.name.clone()).collect()
}

/// Reduces the network to what one of its outputs needs.
fn with_output(model: &Model, name: &str) -> Result<Model, GraphError> {
    let mut graph = model.graph().clone();
    graph.output.retain(|output| output.name == name);
    if graph.output.is_empty() {
        return Err(GraphError::UnknownOutput {
            name: name.to_owned(),
            names: output_names(model),
        });
    }
    drop_unread(&mut graph);
    drop_unread_inputs(&mut graph);
    model.with_graph(graph)
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
        let tensor = input.r#type.as_mut().and_then(|of| of.tensor_type.as_mut());
        let dims = tensor.and_then(|tensor| tensor.shape.as_mut());
        let dims = dims.map_or(&mut [][..], |shape| &mut shape.dim);
        let [_, image @ ..] = dims else {
            return Err(wrong_shape(&input.name, "the shape is missing", InputSize::Unfit));
        };
        if image.len() != 3 {
            let why = "it is not an image [3, height, width]";
            return Err(wrong_shape(&input.name, why, InputSize::Unfit));
        }
        for (dim, size) in image.iter_mut().zip([3, size, size]) {
            let wanted = DimensionValue::DimValue(i64::try_from(size).unwrap_or(i64::MAX));
            match &dim.value {
                Some(DimensionValue::DimValue(fixed)) if *fixed > 0 && dim.value != Some(wanted.clone()) => {
                    let why = format!("an axis is fixed to {fixed}, but the image size is {size}");
                    return Err(wrong_shape(&input.name, why, InputSize::Fixed));
                }
                _ => *dim = wanted.into(),
            }
        }
    }
    model.with_graph(graph)
}

fn wrong_shape(input: &str, why: impl Into<String>, size: InputSize) -> GraphError {
    GraphError::InputShape {
        input: input.to_owned(),
        why: why.into(),
        size,
    }
}

/// Returns the batch size to which the input is fixed, if any, and checks that all other axes are fixed. An
/// error is the reason for which the shape is refused.
fn fixed_batch(input: &ValueInfo) -> Result<Option<u64>, String> {
    let shape = input.tensor().and_then(|tensor| tensor.shape.as_ref());
    let shape = shape.ok_or("the shape is missing")?;
    let (batch, rest) = shape.dim.split_first().ok_or("it is a scalar")?;
    for (axis, dim) in rest.iter().enumerate() {
        match &dim.value {
            Some(DimensionValue::DimValue(size)) if *size > 0 => {}
            Some(DimensionValue::DimParam(name)) => {
                return Err(format!("axis {} is `{name}`", axis + 1));
            }
            _ => return Err(format!("axis {} is open", axis + 1)),
        }
    }
    Ok(batch.fixed().map(|size| size as u64))
}

/// Common sizes of images in pixels per side. The first that fits is suggested for an input with open axes.
const COMMON_SIZES: [usize; 4] = [224, 256, 384, 32];

/// Returns an image size with which the network is accepted.
fn fitting_size(model: &Model, input: &ValueInfo) -> InputSize {
    let dims = input.tensor().and_then(|tensor| tensor.shape.as_ref());
    let fixed = dims.into_iter().flat_map(|shape| shape.dim.iter().skip(2));
    let size = fixed
        .filter_map(Dimension::fixed)
        .chain(COMMON_SIZES)
        .find(|size| sized(model, *size).and_then(|model| model.network()).is_ok());
    size.map_or(InputSize::Unfit, InputSize::Open)
}
