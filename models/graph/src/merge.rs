//! Merges trained weights into a model.

use crate::tensors::{code_of, dtype_of, to_float};
use crate::{GraphError, Model, build};
use frostline_tensor::Tensor;
use std::collections::HashMap;

impl Model {
    /// Returns the model with the initializers of these names replaced. Slices made by [`Model::slice`] use
    /// the same names as the whole model. Floating-point tensors are converted to the type of the
    /// initializer, because training computes in single precision whatever the type of the stored weights.
    ///
    /// # Errors
    /// Returns [`GraphError::Weight`] if the model does not have an initializer of this name, or its shape or
    /// type differs.
    pub fn merge(&self, weights: &[(String, Tensor)]) -> Result<Self, GraphError> {
        let mut graph = self.graph().clone();
        let places: HashMap<String, usize> = graph
            .initializer
            .iter()
            .enumerate()
            .map(|(place, weight)| (weight.name.clone(), place))
            .collect();
        for (name, tensor) in weights {
            let slot = places
                .get(name)
                .and_then(|&place| graph.initializer.get_mut(place));
            let slot = slot.ok_or_else(|| misfit(name, "the model does not have this initializer".into()))?;
            let stored = dtype_of(slot.data_type).filter(|dtype| *dtype != tensor.dtype());
            let converted = stored.and_then(|dtype| to_float(tensor, dtype));
            let tensor = converted.as_ref().unwrap_or(tensor);
            let merged = build::initializer(name, tensor);
            if slot.dims != merged.dims || slot.data_type != code_of(tensor.dtype()) {
                let there = format!("type {} and shape {:?}", slot.data_type, slot.dims);
                let why = format!(
                    "the model expects {there}, but the new tensor is {}",
                    tensor.describe()
                );
                return Err(misfit(name, why));
            }
            *slot = merged;
        }
        self.with_graph(graph)
    }
}

fn misfit(name: &str, why: String) -> GraphError {
    GraphError::Weight {
        name: name.to_owned(),
        why: why.into(),
    }
}
