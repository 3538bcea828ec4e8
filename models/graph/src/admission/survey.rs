//! Counts the contents of an encoded file. Decoding turns an empty node of 2 bytes into a structure of 300
//! bytes, so this count bounds the memory that decoding uses. The survey does not store data. The recursion
//! ends at the tensors in the attributes of a node.

use super::refusal::shown;
use super::{Inadmissible, ModelLimits};
use crate::GraphError;
use crate::onnx::{
    AttributeProto, Dimension, GraphProto, NodeProto, OperatorSetId, StringStringEntry, TensorProto,
    TensorType, TypeProto, ValueInfo,
};
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};
use std::mem::size_of;

/// Factor for the unused capacity of lists. The capacity doubles when a list grows, so up to half is unused.
const ROOM: usize = 2;

/// Message types that the survey descends into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageType {
    Model,
    OperatorSet,
    Entry,
    Graph,
    Node,
    Attribute,
    Tensor,
    Value,
    Type,
    TensorType,
    Shape,
    Dimension,
}

/// Representation of a field in memory.
enum Field {
    /// Does not use additional memory.
    Nothing,
    /// Copied text.
    Text,
    /// Bytes that remain a slice of the file.
    Slice,
    /// Integers with this size in memory. The encoded size is at least a byte.
    Integers(usize),
    /// Message with this size in memory.
    Message(MessageType, usize),
    /// A graph inside a node.
    Body,
}

impl MessageType {
    /// Returns the representation of a field with this number in `onnx.proto`. The messages are defined in
    /// [`crate::onnx`].
    fn field(self, number: u32) -> Field {
        match (self, number) {
            (Self::Model, 7) => Field::Message(Self::Graph, size_of::<GraphProto>()),
            (Self::Model, 8) => Field::Message(Self::OperatorSet, size_of::<OperatorSetId>()),
            (Self::Model, 14) | (Self::Graph | Self::Tensor, 16) | (Self::Node, 9) | (Self::Tensor, 13) => {
                Field::Message(Self::Entry, size_of::<StringStringEntry>())
            }
            (Self::Value, 4) => Field::Message(Self::Entry, size_of::<StringStringEntry>()),
            (Self::Graph, 1) => Field::Message(Self::Node, size_of::<NodeProto>()),
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) => {
                Field::Message(Self::Tensor, size_of::<TensorProto>())
            }
            (Self::Graph, 11..=13) => Field::Message(Self::Value, size_of::<ValueInfo>()),
            (Self::Node, 5) => Field::Message(Self::Attribute, size_of::<AttributeProto>()),
            (Self::Attribute, 6 | 11) => Field::Body,
            (Self::Value, 2) => Field::Message(Self::Type, size_of::<TypeProto>()),
            (Self::Type, 1) => Field::Message(Self::TensorType, size_of::<TensorType>()),
            (Self::TensorType, 2) => Field::Message(Self::Shape, 0),
            (Self::Shape, 1) => Field::Message(Self::Dimension, size_of::<Dimension>()),
            (Self::Attribute, 8) | (Self::Tensor, 1 | 7 | 11) => Field::Integers(size_of::<i64>()),
            (Self::Tensor, 5) => Field::Integers(size_of::<i32>()),
            // Floats have the same size in memory and in the file.
            (Self::Attribute, 2 | 7) | (Self::Tensor, 4 | 10) => Field::Nothing,
            (Self::Attribute, 4 | 9 | 14 | 15 | 22 | 23) | (Self::Tensor, 3 | 6 | 9) => Field::Slice,
            (Self::Model, 20 | 25 | 26) | (Self::Graph, 14 | 15) | (Self::Node, 10) => Field::Slice,
            (Self::Type, 4 | 5 | 7 | 8 | 9) => Field::Slice,
            _ => Field::Text,
        }
    }
}

struct ModelSurvey<'a> {
    limits: &'a ModelLimits,
    /// Encoded node that is used in error messages.
    node: &'a [u8],
    nodes: usize,
    weights: usize,
    /// Bytes of memory, not counting slices of the file.
    bytes: usize,
}

/// Counts the nodes, weights and bytes of an encoded model and returns an error if a limit is exceeded.
pub(super) fn survey(file: &[u8], limits: &ModelLimits) -> Result<(), GraphError> {
    let mut survey = ModelSurvey {
        limits,
        node: &[],
        nodes: 0,
        weights: 0,
        bytes: 0,
    };
    survey
        .message(MessageType::Model, file)
        .map_err(|error| match error {
            GraphError::NotOnnx { .. } => crate::read::not_onnx(file),
            error => error,
        })
}

fn broken(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> GraphError {
    GraphError::NotOnnx { why: why.into() }
}

/// Removes the first `length` bytes from `rest` and returns them.
fn split_off<'a>(rest: &mut &'a [u8], length: u64) -> Result<&'a [u8], GraphError> {
    let parts = usize::try_from(length)
        .ok()
        .and_then(|length| rest.split_at_checked(length));
    let (taken, left) = parts.ok_or_else(|| broken("the file is truncated"))?;
    *rest = left;
    Ok(taken)
}

/// Returns the number of the next field, and its bytes if it is length-delimited.
fn next<'a>(rest: &mut &'a [u8]) -> Result<(u32, Option<&'a [u8]>), GraphError> {
    let (number, wire) = decode_key(rest).map_err(broken)?;
    let body = match wire {
        WireType::Varint => decode_varint(rest).map(|_| None).map_err(broken)?,
        WireType::ThirtyTwoBit => split_off(rest, 4).map(|_| None)?,
        WireType::SixtyFourBit => split_off(rest, 8).map(|_| None)?,
        WireType::LengthDelimited => {
            let length = decode_varint(rest).map_err(broken)?;
            Some(split_off(rest, length)?)
        }
        WireType::StartGroup | WireType::EndGroup => {
            return Err(broken("protobuf groups are not supported"));
        }
    };
    Ok((number, body))
}

/// Name and operator of a node, for error messages.
#[derive(Clone, PartialEq, Message)]
struct NodeName {
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    operator: String,
}

fn control_flow(node: &[u8]) -> Inadmissible {
    // If decoding fails, the node is refused without a name.
    let NodeName { name, operator } = NodeName::decode(node).unwrap_or_default();
    Inadmissible::ControlFlow {
        node: shown(&name),
        operator: shown(&operator),
    }
}

impl<'a> ModelSurvey<'a> {
    fn message(&mut self, kind: MessageType, mut rest: &'a [u8]) -> Result<(), GraphError> {
        while !rest.is_empty() {
            let (number, body) = next(&mut rest)?;
            match (kind.field(number), body) {
                (Field::Message(inner, bytes), Some(body)) => {
                    self.entered(kind, inner, body)?;
                    self.charge(ROOM * bytes)?;
                    self.message(inner, body)?;
                }
                (Field::Body, Some(_)) => return Err(control_flow(self.node).into()),
                (Field::Text, Some(body)) => self.charge(ROOM * size_of::<String>() + body.len())?,
                (Field::Slice, Some(_)) => self.charge(ROOM * size_of::<bytes::Bytes>())?,
                (Field::Integers(bytes), Some(body)) => {
                    let last_bytes = body.iter().filter(|&&byte| byte < 0x80).count();
                    self.charge(last_bytes.saturating_mul(ROOM * bytes))?;
                }
                (Field::Integers(bytes), None) => self.charge(ROOM * bytes)?,
                (Field::Nothing, _) | (_, None) => {}
            }
        }
        Ok(())
    }

    /// Counts a message `body` of kind `inner` inside a message of kind `outer`.
    fn entered(
        &mut self,
        outer: MessageType,
        inner: MessageType,
        body: &'a [u8],
    ) -> Result<(), Inadmissible> {
        if inner == MessageType::Node {
            self.node = body;
        }
        let (count, what, limit) = match (outer, inner) {
            (MessageType::Graph, MessageType::Node) => (&mut self.nodes, "nodes", self.limits.nodes),
            (MessageType::Graph, MessageType::Tensor) => (&mut self.weights, "weights", self.limits.weights),
            _ => return Ok(()),
        };
        *count += 1;
        Inadmissible::check_count("the model", what, *count, limit)
    }

    fn charge(&mut self, bytes: usize) -> Result<(), Inadmissible> {
        self.bytes = self.bytes.saturating_add(bytes);
        let limit = self.limits.description_bytes;
        if self.bytes > limit {
            return Err(Inadmissible::Description { limit });
        }
        Ok(())
    }
}
