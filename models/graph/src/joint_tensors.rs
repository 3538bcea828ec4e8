//! Tensors that a joint cut contains, read from the nodes that concatenate them.

use crate::analysis::Analysis;
use crate::joint_names::{ADDED, MOST_TENSORS, added};
use crate::onnx::{NodeProto, data_type};
use crate::tensor_info::{TensorInfo, info_of_any};

/// Returns the tensors of the joint cut `cut` in the order of their elements, or `None` for other cuts. The nodes that
/// flatten and concatenate the tensors are checked, so the result is also consistent for a slice that ends at the cut,
/// and for a model from an untrusted source.
pub(crate) fn tensors(analysis: &Analysis<'_>, cut: &TensorInfo) -> Option<Vec<TensorInfo>> {
    let (_, concat) = analysis.links.producer(&cut.name)?;
    let is_joint = concat.name.strip_prefix(ADDED) == Some(&cut.name)
        && is_along_elements(concat, "Concat")
        && (2..=MOST_TENSORS).contains(&concat.input.len());
    if !is_joint {
        return None;
    }
    let mut tensors: Vec<TensorInfo> = Vec::with_capacity(concat.input.len());
    let mut total = 0_usize;
    for (number, flat) in concat.input.iter().enumerate() {
        let tensor = flattened(analysis, flat, &added("f32", &cut.name, number))?;
        if tensors.iter().any(|other| other.name == tensor.name) {
            return None;
        }
        let elements = tensor.shape.elements().ok().filter(|elements| *elements > 0)?;
        total = total.checked_add(elements)?;
        tensors.push(tensor);
    }
    (cut.shape.dims() == [total]).then_some(tensors)
}

/// Returns the tensor that is flattened to `flat`. `converted` is its name after the conversion to `f32`, if it is
/// converted.
fn flattened(analysis: &Analysis<'_>, flat: &str, converted: &str) -> Option<TensorInfo> {
    let (_, flatten) = analysis.links.producer(flat)?;
    if !is_along_elements(flatten, "Flatten") {
        return None;
    }
    let mut source = flatten.input_name(0)?;
    if source == converted {
        let (_, cast) = analysis.links.producer(source)?;
        let is_cast =
            cast.standard_operator() == Some("Cast") && cast.int("to") == Some(i64::from(data_type::FLOAT));
        source = cast.input_name(0).filter(|_| is_cast)?;
    }
    // A tensor that an earlier joint cut contains has an additional prefix for each of these cuts.
    let name = source.trim_start_matches(ADDED);
    let tensor = info_of_any(analysis, source).filter(|_| !name.is_empty())?;
    Some(TensorInfo {
        name: name.to_owned(),
        ..tensor
    })
}

/// Returns true if a node has this operator and treats all axes after the batch as one.
fn is_along_elements(node: &NodeProto, operator: &str) -> bool {
    node.standard_operator() == Some(operator) && node.int("axis") == Some(1)
}
