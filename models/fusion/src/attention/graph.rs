use frostline_graph::onnx::{NodeProto, data_type};
use frostline_graph::{GraphError, Links, Model, Shapes, ValueShape};

/// Domain of ONNX Runtime's own operators.
pub(super) const DOMAIN: &str = "com.microsoft";

/// Batch sizes for which shapes are inferred. A size that is equal for both does not depend on the batch.
/// They are primes beyond usual lengths of sequences, so that no axis is mistaken for the batch.
const BATCHES: [usize; 2] = [1009, 1013];

/// Network in which attention is searched.
pub(super) struct AttentionGraph<'a> {
    pub(super) links: Links<'a>,
    pub(super) shapes: Shapes,
    /// Shapes for another batch size.
    pub(super) others: Shapes,
}

impl<'a> AttentionGraph<'a> {
    /// Links the nodes of `model` and infers the shapes.
    ///
    /// # Errors
    /// Returns the errors of [`Model::shapes`].
    pub(super) fn new(model: &'a Model) -> Result<Self, GraphError> {
        Ok(Self {
            links: Links::of_model(model),
            shapes: model.shapes(BATCHES[0])?,
            others: model.shapes(BATCHES[1])?,
        })
    }

    pub(super) fn dims(&self, value: &str) -> Option<&[usize]> {
        self.shapes.dims(value)
    }

    /// Returns the shape of the value as the target of a `Reshape`. Axes that depend on the batch are -1.
    pub(super) fn target(&self, value: &str) -> Option<Vec<i64>> {
        let [dims, others] = [self.dims(value)?, self.others.dims(value)?];
        let sizes = dims.iter().zip(others).map(|(size, other)| match size == other {
            true => i64::try_from(*size).unwrap_or(i64::MAX),
            false => -1,
        });
        Some(sizes.collect())
    }

    /// Returns the shape if the element type is the one of a network and only the first axis depends on the
    /// batch.
    pub(super) fn floats(&self, value: &str) -> Option<ValueShape> {
        let [shape, other] = [self.shapes.get(value)?, self.others.get(value)?];
        let fixed = shape.dims.get(1..) == other.dims.get(1..);
        let float = matches!(shape.data_type, data_type::FLOAT | data_type::FLOAT16);
        let full = shape.dims.iter().all(|&dim| dim > 0);
        (fixed && float && full).then_some(shape)
    }

    /// Returns the operand and the factor of a node that multiplies a value by a constant number.
    pub(super) fn scaled(&self, node: &'a NodeProto) -> Option<(&'a str, f64)> {
        let [first, second] = [node.input_name(0)?, node.input_name(1)?];
        let (value, factor) = match node.standard_operator()? {
            "Mul" => match self.number(second) {
                Some(factor) => (first, factor),
                None => (second, self.number(first)?),
            },
            "Div" => (first, self.number(second)?.recip()),
            _ => return None,
        };
        let keeps_shape = self.dims(value)? == self.dims(node.output_name(0)?)?;
        keeps_shape.then_some((value, factor))
    }

    /// Returns the only element of a value if it is known and does not depend on the batch.
    pub(super) fn number(&self, value: &str) -> Option<f64> {
        let [number, other] = [&self.shapes, &self.others].map(|shapes| shapes.numbers(value));
        match number? {
            &[number] if other == Some(&[number]) => Some(number),
            _ => None,
        }
    }

    /// Returns the input if the node does not change it.
    pub(super) fn unchanged(&self, node: &'a NodeProto) -> Option<&'a str> {
        let input = node.input_name(0)?;
        match node.standard_operator()? {
            "Identity" => Some(input),
            "Cast" => {
                let [from, to] = [input, node.output_name(0)?].map(|value| self.shapes.get(value));
                (from?.data_type == to?.data_type).then_some(input)
            }
            _ => None,
        }
    }
}
