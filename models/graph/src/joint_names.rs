//! Names and limits of joint cuts and joint inputs.

/// Maximum number of tensors of a cut. A network has up to this number of inputs as well.
pub(crate) const MOST_TENSORS: usize = 8;

/// Prefix of the nodes and tensors that joint cuts and joint inputs add. No exporter uses it.
pub(crate) const ADDED: &str = "frostline.joint/";

/// First version of ONNX's operators in which `Split` takes the sizes as an input.
pub(crate) const SPLIT_WITH_INPUT: i64 = 13;

pub(crate) fn size(elements: usize) -> i64 {
    i64::try_from(elements).unwrap_or(i64::MAX)
}
