//! Standardizes features of a linear classifier and numeric targets.
//!
//! During training, each feature has mean 0 and standard deviation 1 over the training samples. This matches
//! scikit-learn's `StandardScaler`. The exported classifier reads raw features. Numeric targets are
//! standardized in the same way, as with scikit-learn's `TransformedTargetRegressor`, and the exported
//! network outputs original units.

use crate::error::ComputeError;
use frostline_graph::Model;
use frostline_graph::onnx::NodeProto;
use frostline_graph::tensors::from_proto;
use frostline_tensor::Tensor;

/// Smaller deviations, relative to the mean, are rounding errors of a constant feature.
const ROUNDING: f64 = 1e-5;

/// Operators allowed around the classifier's matrix product. These operators keep features separate or
/// average values within a feature.
const ALLOWED_OPERATORS: [&str; 12] = [
    "Add",
    "AveragePool",
    "Cast",
    "Dropout",
    "Flatten",
    "GlobalAveragePool",
    "Identity",
    "ReduceMean",
    "Reshape",
    "Shape",
    "Squeeze",
    "Unsqueeze",
];

/// Suffix that consists only of a linear classifier on features `[features, ..]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinearHead {
    weight: String,
    bias: String,
    features: usize,
    /// True if the weight is `[outputs, features, ..]`, false if it is `[features, outputs]`.
    outputs_first: bool,
}

impl LinearHead {
    /// Finds the classifier in `suffix`. `row` is the shape of the suffix's input without the batch axis.
    ///
    /// # Errors
    /// Returns [`ComputeError::Standardize`] if the suffix contains more than a linear classifier.
    pub fn from_suffix(suffix: &Model, row: &[usize]) -> Result<Self, ComputeError> {
        let head = suffix
            .network()?
            .head
            .ok_or_else(|| not_standardized("no classifier found in the model"))?;
        let names = suffix.head_weights()?;
        let [weight, bias] = names.as_slice() else {
            return Err(not_standardized(
                "the classifier must be one matrix product with one bias",
            ));
        };
        if suffix
            .parameters()
            .iter()
            .any(|parameter| !names.contains(&parameter.name))
        {
            return Err(not_standardized(
                "other layers are trained in addition to the classifier; freeze up to the last cut before it",
            ));
        }
        let mut operators = suffix.nodes().iter().map(|node| node.op_type.as_str());
        if let Some(other) = operators
            .find(|name| *name != head.operator && !ALLOWED_OPERATORS.contains(name) && *name != "Constant")
        {
            return Err(not_standardized(format!(
                "{other} is between the freeze cut and the classifier; freeze up to a later cut"
            )));
        }
        if row.first() != Some(&head.features) {
            let why = format!(
                "features at the freeze cut have the shape {row:?}; the first axis must be the classifier's {} features",
                head.features
            );
            return Err(not_standardized(why));
        }
        let product = suffix.nodes().iter().find(|node| node.op_type == head.operator);
        Ok(Self {
            weight: weight.clone(),
            bias: bias.clone(),
            features: head.features,
            outputs_first: product.is_some_and(has_outputs_first),
        })
    }

    /// Converts the classifier in `weights` from standardized to raw features. With `s = 1 / deviation`,
    /// `W·((x - m)·s) + b` equals `(W·s)·x + (b - (W·s)·m)`.
    pub(crate) fn fold(
        &self,
        standard: &Standard,
        weights: &mut [(String, Tensor)],
    ) -> Result<(), ComputeError> {
        let found = [&self.weight, &self.bias].map(|name| find_weight(weights, name));
        let [Some((weight, old)), Some((bias, shift))] = found else {
            return Err(ComputeError::Ended { part: "classifier" });
        };
        let outputs = shift.shape().elements()?;
        let mut moved: Vec<f64> = shift
            .as_f32()
            .unwrap_or_default()
            .iter()
            .copied()
            .map(f64::from)
            .collect();
        let mut folded = Vec::with_capacity(self.features * outputs);
        for (index, value) in old.as_f32().unwrap_or_default().iter().enumerate() {
            let (output, feature) = if self.outputs_first {
                (index / self.features, index % self.features)
            } else {
                (index % outputs.max(1), index / outputs.max(1))
            };
            let (mean, scale) = standard.per_feature.get(feature).copied().unwrap_or((0.0, 1.0));
            let own = f64::from(*value) * scale;
            folded.push(own as f32);
            moved
                .get_mut(output)
                .into_iter()
                .for_each(|bias| *bias -= own * mean);
        }
        let folded = Tensor::f32(old.shape().clone(), folded)?;
        let moved = Tensor::f32(
            shift.shape().clone(),
            moved.into_iter().map(|bias| bias as f32).collect(),
        )?;
        for (place, tensor) in [(weight, folded), (bias, moved)] {
            if let Some((_, known)) = weights.get_mut(place) {
                *known = tensor;
            }
        }
        Ok(())
    }
}

fn not_standardized(why: impl Into<String>) -> ComputeError {
    ComputeError::Standardize { why: why.into() }
}

/// Returns the index of the weight called `name` with its tensor.
fn find_weight(weights: &[(String, Tensor)], name: &str) -> Option<(usize, Tensor)> {
    let index = weights.iter().position(|(known, _)| known == name)?;
    let (_, tensor) = weights.get(index)?;
    Some((index, tensor.clone()))
}

/// Means and squared deviations per feature, over rows `[features, ..]`. Batches are combined with the method of
/// Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
#[derive(Debug, Clone, Default)]
pub struct Moments {
    count: f64,
    /// Mean, and sum of squared deviations from the mean.
    per_feature: Vec<(f64, f64)>,
}

impl Moments {
    /// Adds a batch of rows `[rows, features, ..]` in `f32`.
    pub fn add(&mut self, rows: &Tensor) {
        let features = rows.shape().dims().get(1).copied().unwrap_or(0);
        self.add_values(
            rows.as_f32().unwrap_or_default(),
            features,
            rows.rows().unwrap_or(0),
        );
    }

    /// Adds `count` rows of `features` features each, in row-major order.
    pub fn add_values(&mut self, values: &[f32], features: usize, count: usize) {
        let each = values.len() / (features * count).max(1);
        if each == 0 {
            return;
        }
        self.per_feature.resize(features, (0.0, 0.0));
        let more = (count * each) as f64;
        let total = self.count + more;
        for (feature, (mean, spread)) in self.per_feature.iter_mut().enumerate() {
            let own = values
                .chunks_exact(each)
                .skip(feature)
                .step_by(features)
                .flatten()
                .copied()
                .map(f64::from);
            let own_mean = own.clone().sum::<f64>() / more;
            let own_spread: f64 = own.map(|value| (value - own_mean).powi(2)).sum();
            let off = own_mean - *mean;
            *mean += off * more / total;
            *spread += own_spread + off * off * self.count * more / total;
        }
        self.count = total;
    }

    /// Computes the standardization. Constant features are only centered, which matches scikit-learn.
    pub fn standard(&self) -> Standard {
        Standard {
            per_feature: self
                .per_feature
                .iter()
                .map(|(mean, spread)| {
                    let deviation = (spread / self.count.max(1.0)).sqrt();
                    let varies =
                        deviation > ROUNDING * mean.abs() && deviation > f64::from(f32::MIN_POSITIVE);
                    (*mean, if varies { 1.0 / deviation } else { 1.0 })
                })
                .collect(),
        }
    }
}

/// Mean and reciprocal of the standard deviation per feature.
#[derive(Debug, Clone, PartialEq)]
pub struct Standard {
    per_feature: Vec<(f64, f64)>,
}

impl Standard {
    /// Creates a standardization from means and reciprocals of standard deviations.
    pub fn new(per_feature: Vec<(f64, f64)>) -> Self {
        Self { per_feature }
    }

    /// Returns mean and reciprocal standard deviation for each feature.
    pub fn features(&self) -> &[(f64, f64)] {
        &self.per_feature
    }

    /// Standardizes each feature of `rows`, `[rows, features, ..]`.
    pub(crate) fn apply(&self, rows: &Tensor) -> Result<Tensor, ComputeError> {
        let values = rows.as_f32().unwrap_or_default();
        let each = values.len() / (self.per_feature.len() * rows.rows()?).max(1);
        let features = values.chunks(each.max(1)).zip(self.per_feature.iter().cycle());
        let standardized = features.flat_map(|(values, (mean, scale))| {
            values
                .iter()
                .map(move |value| ((f64::from(*value) - mean) * scale) as f32)
        });
        Ok(Tensor::f32(rows.shape().clone(), standardized.collect())?)
    }

    /// Returns true if `suffix` can be trained on standardized numbers: all operators after the head are
    /// linear.
    ///
    /// # Errors
    /// Returns [`ComputeError::Graph`] if the head cannot be found.
    pub fn applies_to(suffix: &Model) -> Result<bool, ComputeError> {
        Ok(gain(suffix)?.is_some())
    }

    /// Converts the head in `weights` from standardized to original units. With deviation `d` and mean `m`,
    /// the weight becomes `W·d`. Biases become `b·d` plus a shift that moves the output by `m`.
    pub(crate) fn restore_units(
        &self,
        suffix: &Model,
        weights: &mut [(String, Tensor)],
    ) -> Result<(), ComputeError> {
        let gain = gain(suffix)?.ok_or(ComputeError::Ended { part: "classifier" })?;
        let names = suffix.head_weights()?;
        for pair in names.chunks(2) {
            let [weight, bias] = pair else {
                return Err(ComputeError::Ended { part: "classifier" });
            };
            let product = suffix.nodes().iter().find(|node| node.input.contains(weight));
            let outputs_first = product.is_some_and(has_outputs_first);
            for (name, tensor) in weights
                .iter_mut()
                .filter(|(name, _)| name == weight || name == bias)
            {
                let outputs = self.per_feature.len().max(1);
                let values = tensor.as_f32().unwrap_or_default();
                let run = if name == weight && outputs_first {
                    values.len() / outputs
                } else {
                    1
                };
                let moves = name == bias;
                let scaled = values.iter().enumerate().map(|(index, value)| {
                    let output = index / run.max(1) % outputs;
                    let (mean, scale) = self.per_feature.get(output).copied().unwrap_or((0.0, 1.0));
                    (f64::from(*value) / scale + if moves { mean / gain } else { 0.0 }) as f32
                });
                *tensor = Tensor::f32(tensor.shape().clone(), scaled.collect())?;
            }
        }
        Ok(())
    }
}

/// Returns the change of the outputs if all biases of the head increase by 1. A head can have several layers,
/// and a later operator can divide the sum. Returns `None` if an operator after the head is not linear.
fn gain(suffix: &Model) -> Result<Option<f64>, ComputeError> {
    let head = suffix.head_weights()?;
    let mut gain = head.len() as f64 / 2.0;
    for node in suffix.nodes().iter().skip_while(|node| !reads_any(node, &head)) {
        let factor = match node.op_type.as_str() {
            "Constant" => Some(1.0),
            "Mul" => number(suffix, node, 0).or(number(suffix, node, 1)),
            "Div" => number(suffix, node, 1).map(|divisor| 1.0 / divisor),
            name => (reads_any(node, &head) || ALLOWED_OPERATORS.contains(&name)).then_some(1.0),
        };
        let Some(factor) = factor else { return Ok(None) };
        gain *= factor;
    }
    Ok(Some(gain).filter(|gain| gain.is_normal()))
}

/// Returns true if the weight of a matrix product is `[outputs, features, ..]`.
fn has_outputs_first(product: &NodeProto) -> bool {
    product.op_type == "Conv" || product.int("transB").unwrap_or(0) != 0
}

/// Returns true if `node` reads one of `tensors`.
fn reads_any(node: &NodeProto, tensors: &[String]) -> bool {
    node.input.iter().any(|name| tensors.contains(name))
}

/// Returns the scalar constant that `node` reads in this slot. Returns `None` if it is trained or not a scalar.
fn number(suffix: &Model, node: &NodeProto, slot: usize) -> Option<f64> {
    let name = node.input_name(slot)?;
    if suffix.parameters().iter().any(|weight| weight.name == name) {
        return None;
    }
    let held = || {
        suffix
            .nodes()
            .iter()
            .find(|node| node.op_type == "Constant" && node.output_name(0) == Some(name))?
            .tensor("value")
    };
    let stored = suffix.initializers().get(name).copied().or_else(held)?;
    match from_proto(stored).ok()?.as_f32() {
        Some([number]) => Some(f64::from(*number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::Forward;
    use crate::tests::network;
    use frostline_engine::{Interrupt, SessionOptions};
    use frostline_graph::build;
    use frostline_graph::onnx::GraphProto;

    #[test]
    fn moments_of_batches_are_those_of_all_rows() {
        let values: Vec<f32> = (0..24).map(|index| 100.0 + ((index * 7) % 11) as f32).collect();
        let mut moments = Moments::default();
        for (count, part) in [(1, &values[..6]), (3, &values[6..])] {
            moments.add(&Tensor::f32([count, 3, 2], part.to_vec()).unwrap());
        }
        let rows = Tensor::f32([4, 3, 2], values).unwrap();
        let mut again = Moments::default();
        again.add(&moments.standard().apply(&rows).unwrap());
        for (mean, spread) in again.per_feature {
            assert!(
                mean.abs() < 1e-5 && (spread / 8.0 - 1.0).abs() < 1e-4,
                "{mean}, {spread}"
            );
        }
        let mut constant = Moments::default();
        constant.add(&Tensor::f32([2, 1], vec![3.0, 3.0]).unwrap());
        assert_eq!(constant.standard().per_feature, [(3.0, 1.0)]);
    }

    #[test]
    fn the_folded_classifier_scores_features_as_the_other_scores_standardized_ones() {
        let standard = Standard {
            per_feature: vec![(1.0, 2.0), (-3.0, 0.5)],
        };
        let features = [0.25_f32, 4.0];
        for outputs_first in [true, false] {
            let head = LinearHead {
                weight: "w".to_owned(),
                bias: "b".to_owned(),
                features: 2,
                outputs_first,
            };
            // The weight has three outputs.
            let weight = |output: usize, feature: usize| (output * 2 + feature) as f32 - 2.0;
            let place = |index: usize| {
                if outputs_first {
                    weight(index / 2, index % 2)
                } else {
                    weight(index % 3, index / 3)
                }
            };
            let shape = if outputs_first { [3, 2] } else { [2, 3] };
            let tensor = Tensor::f32(shape, (0..6).map(place).collect()).unwrap();
            let bias = Tensor::f32([3], vec![0.5, 0.0, -1.0]).unwrap();
            let mut weights = vec![("b".to_owned(), bias), ("w".to_owned(), tensor)];
            let rows = Tensor::f32([1, 2], features.to_vec()).unwrap();
            let standardized = standard.apply(&rows).unwrap();
            let scores = |weights: &[(String, Tensor)], x: &[f32]| -> Vec<f32> {
                let b = weights[0].1.as_f32().unwrap();
                let w = weights[1].1.as_f32().unwrap();
                let at = |output: usize, feature: usize| {
                    if outputs_first {
                        w[output * 2 + feature]
                    } else {
                        w[feature * 3 + output]
                    }
                };
                (0..3)
                    .map(|output| b[output] + x[0] * at(output, 0) + x[1] * at(output, 1))
                    .collect()
            };
            let before = scores(&weights, standardized.as_f32().unwrap());
            head.fold(&standard, &mut weights).unwrap();
            assert_eq!(scores(&weights, &features), before);
        }
    }

    /// Builds a network with two numeric outputs: one or two linear layers, followed by the nodes in
    /// `behind`.
    fn heads(layers: usize, behind: &[NodeProto]) -> Model {
        let weight = |name: &str, seed: f32| {
            let values = (0..4).map(|place| seed + place as f32 / 4.0).collect();
            build::initializer(name, &Tensor::f32([2, 2], values).unwrap())
        };
        let bias = |name: &str, value: f32| {
            build::initializer(name, &Tensor::f32([2], vec![value, -value]).unwrap())
        };
        let mut nodes = vec![build::node("Gemm", &["x", "w", "b"], &["one"])];
        if layers == 2 {
            nodes.push(build::node("Gemm", &["x", "v", "c"], &["other"]));
            nodes.push(build::node("Add", &["one", "other"], &["sum"]));
        }
        nodes.extend(behind.iter().cloned());
        let last = nodes.last().unwrap().output[0].clone();
        let scalar = |name: &str, value| build::initializer(name, &Tensor::f32([], vec![value]).unwrap());
        let graph = GraphProto {
            node: nodes,
            initializer: vec![
                weight("w", 0.5),
                bias("b", 0.1),
                weight("v", -0.3),
                bias("c", 0.4),
                scalar("two", 2.0),
                scalar("three", 3.0),
            ],
            input: vec![build::batched("x", &[2])],
            output: vec![build::batched(&last, &[2])],
            ..GraphProto::default()
        };
        Model::from_proto(build::model(17, graph)).unwrap()
    }

    #[test]
    fn unfolded_heads_give_numbers_as_they_are_however_many_there_are() {
        let node = build::node;
        let sum = heads(2, &[]);
        let mean = heads(2, &[node("Div", &["sum", "two"], &["mean"])]);
        let scaled = heads(
            2,
            &[
                node("Mul", &["three", "sum"], &["more"]),
                node("Div", &["more", "two"], &["mean"]),
            ],
        );
        let standard = Standard {
            per_feature: vec![(100.0, 0.5), (-7.0, 4.0)],
        };
        let rows = Tensor::f32([3, 2], vec![0.2, -1.0, 3.0, 0.5, -2.0, 0.0]).unwrap();
        let outputs = |model: &Model| {
            let options = SessionOptions::default();
            let interrupt = Interrupt::new();
            let mut forward = Forward::open(model, 3, &options, &interrupt, "testing").unwrap();
            forward.run(&rows).unwrap()
        };
        for model in [heads(1, &[]), sum, mean, scaled] {
            assert!(Standard::applies_to(&model).unwrap());
            let names = model.head_weights().unwrap();
            let weights = names
                .iter()
                .map(|name| (name.clone(), model.weight(name).unwrap()));
            let mut weights: Vec<_> = weights.collect();
            standard.restore_units(&model, &mut weights).unwrap();
            let unfolded = outputs(&model.merge(&weights).unwrap());
            let again = standard.apply(&unfolded).unwrap();
            let again = again.as_f32().unwrap();
            let before = outputs(&model);
            assert_eq!(again.len(), before.as_f32().unwrap().len());
            for (again, before) in again.iter().zip(before.as_f32().unwrap()) {
                assert!((again - before).abs() < 1e-4, "{again} instead of {before}");
            }
        }
        let bent = heads(1, &[node("Sigmoid", &["one"], &["bent"])]);
        assert!(Standard::applies_to(&bent).is_ok_and(|fits| !fits) || bent.head_weights().is_err());
    }

    #[test]
    fn only_a_linear_classifier_has_features() {
        let of = |freeze: &str| {
            let network = network().network().unwrap();
            let row = network.frozen_row(freeze).unwrap().dims().to_vec();
            let suffix = crate::tests::network().slice(Some(freeze), None).unwrap();
            LinearHead::from_suffix(&suffix.replace_head(3, 0).unwrap(), &row)
        };
        for freeze in ["features", "pooled", "r2"] {
            let head = of(freeze).unwrap();
            assert_eq!((head.features, head.outputs_first), (6, true), "{freeze}");
        }
        for (freeze, word) in [("c2", "Relu"), ("r1", "in addition to the classifier")] {
            let error = of(freeze).unwrap_err().to_string();
            assert!(error.contains(word), "{freeze}: {error}");
        }
    }
}
