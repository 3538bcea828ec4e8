//! Checks that a model only contains parts, operators and attributes that classifiers need, and that the
//! number of parts and the length of names are bounded.

use super::refusal::shown;
use super::{Inadmissible, ModelLimits, weights};
use crate::onnx::{AttributeProto, AttributeType, GraphProto, ModelProto, NodeProto, ValueInfo};
use crate::operators;
use std::collections::HashSet;

/// Checks the parts of the model. The connections between nodes and the results of nodes are not checked
/// here.
pub(super) fn check(model: &ModelProto, limits: &ModelLimits) -> Result<(), Inadmissible> {
    check_parts(model)?;
    let version = opset(model)?;
    let Some(graph) = &model.graph else { return Ok(()) };
    for value in graph.input.iter().chain(&graph.output) {
        check_end(value, limits)?;
    }
    check_weights(graph, limits)?;
    distinct("inputs", graph.input.iter().map(|input| input.name.as_str()))?;
    let values = graph.node.iter().map(|node| node.output.len()).sum();
    Inadmissible::check_count("the model", "values", values, limits.values)?;
    graph
        .node
        .iter()
        .try_for_each(|node| check_node(node, version, limits))
}

fn check_parts(model: &ModelProto) -> Result<(), Inadmissible> {
    let sparse = model
        .graph
        .as_ref()
        .is_some_and(|graph| !graph.sparse_initializer.is_empty());
    for (is_found, what, instead) in [
        (
            !model.functions.is_empty(),
            "local functions",
            "export it with inlined functions",
        ),
        (
            !model.training_info.is_empty(),
            "training graphs",
            "export it for inference",
        ),
        (
            !model.configuration.is_empty(),
            "a configuration of devices",
            "export the model without device placement",
        ),
        (sparse, "sparse weights", "export it with dense ones"),
    ] {
        if is_found {
            return Err(Inadmissible::Holds { what, instead });
        }
    }
    Ok(())
}

/// Returns the version of ONNX's standard operators. Other domains may be listed if no node uses them.
fn opset(model: &ModelProto) -> Result<i64, Inadmissible> {
    let mut versions = model
        .opset_import
        .iter()
        .filter(|set| matches!(set.domain.as_str(), "" | "ai.onnx"))
        .map(|set| set.version);
    let version = versions.next().unwrap_or(0);
    let second = versions.next();
    if second.is_some() {
        return Err(Inadmissible::DuplicateName {
            what: "operator sets",
            name: "ai.onnx".into(),
        });
    }
    if operators::VERSIONS.contains(&version) {
        return Ok(version);
    }
    Err(Inadmissible::Opset {
        version,
        least: *operators::VERSIONS.start(),
        most: *operators::VERSIONS.end(),
    })
}

/// Checks that an input or output is a tensor.
fn check_end(value: &ValueInfo, limits: &ModelLimits) -> Result<(), Inadmissible> {
    check_name(&value.name, limits)?;
    match value.r#type.as_ref().map(|r#type| &r#type.tensor_type) {
        Some(Some(tensor)) => weights::check_type(&value.name, tensor.elem_type),
        Some(None) => Err(Inadmissible::ElementType {
            name: shown(&value.name),
            what: "not a tensor".into(),
        }),
        None => Ok(()),
    }
}

fn check_weights(graph: &GraphProto, limits: &ModelLimits) -> Result<(), Inadmissible> {
    for weight in &graph.initializer {
        check_name(&weight.name, limits)?;
        weights::check(&weight.name, weight)?;
    }
    distinct(
        "weights",
        graph.initializer.iter().map(|weight| weight.name.as_str()),
    )
}

fn distinct<'a>(what: &'static str, names: impl Iterator<Item = &'a str>) -> Result<(), Inadmissible> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Inadmissible::DuplicateName {
                what,
                name: shown(name),
            });
        }
    }
    Ok(())
}

fn check_name(name: &str, limits: &ModelLimits) -> Result<(), Inadmissible> {
    let why = match name.len() {
        0 => "is missing, but every input, output and weight needs one".to_owned(),
        bytes if bytes > limits.name_bytes => {
            format!("has {bytes} bytes, but the limit is {}", limits.name_bytes)
        }
        _ if name.chars().any(char::is_control) => "contains control characters".to_owned(),
        _ => return Ok(()),
    };
    Err(Inadmissible::Name {
        start: shown(name),
        why,
    })
}

fn check_node(node: &NodeProto, version: i64, limits: &ModelLimits) -> Result<(), Inadmissible> {
    // Omitted inputs, omitted outputs and unnamed nodes have empty names.
    let texts = [&node.name, &node.op_type, &node.domain, &node.overload];
    let names = texts.into_iter().chain(&node.input).chain(&node.output);
    let mut given = names.filter(|name| !name.is_empty());
    given.try_for_each(|name| check_name(name, limits))?;
    check_operator(node, version)?;
    let place = format!("node `{}`", shown(node.label()));
    for (what, count, limit) in [
        ("inputs", node.input.len(), limits.arguments),
        ("outputs", node.output.len(), limits.arguments),
        ("attributes", node.attribute.len(), limits.attributes),
    ] {
        Inadmissible::check_count(&place, what, count, limit)?;
    }
    let attributes = &node.attribute;
    distinct(
        "attributes",
        attributes.iter().map(|attribute| attribute.name.as_str()),
    )?;
    attributes
        .iter()
        .try_for_each(|attribute| check_attribute(node, attribute, limits))
}

/// Accepts only listed operators of the standard domain that exist in operator set `version`.
fn check_operator(node: &NodeProto, version: i64) -> Result<(), Inadmissible> {
    let name = shown(node.label());
    let operator = shown(&node.op_type);
    if node.standard_operator().is_none() {
        return Err(Inadmissible::Domain {
            node: name,
            operator,
            domain: shown(&node.domain),
        });
    }
    match operators::find(node).and_then(|operator| operator.versions) {
        Some((first, last)) if (first..=last).contains(&version) => Ok(()),
        Some((first, last)) => Err(Inadmissible::NotInOpset {
            node: name,
            operator,
            version,
            since: if version < first {
                format!("added in {first}")
            } else {
                format!("removed after {last}")
            },
        }),
        None if operators::is_control_flow(node) => Err(Inadmissible::ControlFlow { node: name, operator }),
        None => Err(Inadmissible::Operator { node: name, operator }),
    }
}

/// Accepts only numbers, short texts and tensors.
fn check_attribute(
    node: &NodeProto,
    attribute: &AttributeProto,
    limits: &ModelLimits,
) -> Result<(), Inadmissible> {
    check_name(&attribute.name, limits)?;
    let is_supported = matches!(
        AttributeType::try_from(attribute.r#type),
        Ok(AttributeType::Float
            | AttributeType::Int
            | AttributeType::String
            | AttributeType::Tensor
            | AttributeType::Floats
            | AttributeType::Ints)
    );
    let numbers = attribute.ints.len().max(attribute.floats.len());
    for (is_refused, why) in [
        (!is_supported, "is of an unsupported kind"),
        (
            holds_other(attribute),
            "contains graphs, sparse tensors, or lists of texts or tensors",
        ),
        (
            !attribute.ref_attr_name.is_empty(),
            "refers to the attribute of a function",
        ),
        (
            numbers > limits.attribute_numbers,
            "has too many numbers, which must be stored as a weight",
        ),
        (
            attribute.s.len() > limits.name_bytes,
            "has a text that exceeds the length limit",
        ),
    ] {
        if is_refused {
            return Err(Inadmissible::Attribute {
                node: shown(node.label()),
                attribute: shown(&attribute.name),
                why,
            });
        }
    }
    match &attribute.t {
        Some(tensor) => weights::check(&format!("{} of node {}", attribute.name, node.label()), tensor),
        None => Ok(()),
    }
}

/// Returns true if an attribute contains data of an unsupported kind, whatever kind it declares.
fn holds_other(attribute: &AttributeProto) -> bool {
    attribute.g.is_some()
        || !attribute.graphs.is_empty()
        || !attribute.strings.is_empty()
        || !attribute.tensors.is_empty()
        || attribute.tp.is_some()
        || !attribute.type_protos.is_empty()
        || attribute.sparse_tensor.is_some()
        || !attribute.sparse_tensors.is_empty()
}
