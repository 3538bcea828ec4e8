use crate::TrainerError;
use crate::features::Features;
use frostline_features::RowKey;
use frostline_graph::tensors::in_single_precision;
use frostline_tensor::{Shape, Tensor};
use std::sync::Arc;

/// Rows of a batch. Fetched rows are activations at the split, cached rows are features at the freeze cut.
pub(crate) struct BatchRows {
    fetched: Option<Tensor>,
    cached: Option<Tensor>,
    origins: Vec<Origin>,
    features: Option<Arc<Features>>,
}

/// Origin of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Cached,
    /// Fetched, with the cache key if the row can be cached.
    Fetched(Option<RowKey>),
}

/// Features to cache after the training step.
pub(crate) struct PendingCache {
    keys: Vec<Option<RowKey>>,
    features: Option<Arc<Features>>,
}

impl BatchRows {
    /// Combines rows in the order of `origins`. Returns `None` if `origins` is empty.
    pub(super) fn new(
        fetched: Option<Tensor>,
        cached: Option<Tensor>,
        origins: Vec<Origin>,
        features: Option<Arc<Features>>,
    ) -> Option<Self> {
        (!origins.is_empty()).then_some(Self {
            fetched,
            cached,
            origins,
            features,
        })
    }

    /// Fetched rows for use without a feature cache.
    pub(crate) fn plain(rows: Tensor) -> Self {
        let origins = vec![Origin::Fetched(None); rows.rows().unwrap_or(0)];
        Self {
            fetched: Some(rows),
            cached: None,
            origins,
            features: None,
        }
    }

    /// Number of rows.
    pub(crate) fn count(&self) -> usize {
        self.origins.len()
    }

    /// Number of cached rows.
    pub(crate) fn cached_count(&self) -> usize {
        let kept = self.origins.iter().filter(|origin| **origin == Origin::Cached);
        kept.count()
    }

    /// Rows fetched at the split.
    pub(crate) fn fetched(&self) -> Option<&Tensor> {
        self.fetched.as_ref()
    }

    /// Returns all rows at the freeze cut in batch order, in `f32`. `middle` computes fetched rows from the
    /// split to the freeze cut, or returns `None` if they are already there.
    pub(crate) fn join(
        self,
        middle: impl FnOnce(&Tensor) -> Result<Option<Tensor>, TrainerError>,
    ) -> Result<(Tensor, PendingCache), TrainerError> {
        let keys = self.origins.iter().map(|origin| match origin {
            Origin::Cached => None,
            Origin::Fetched(key) => *key,
        });
        let mut keys: Vec<Option<RowKey>> = keys.collect();
        let fetched = match self.fetched {
            None => None,
            // Steps and the cache use `f32`, also if the network carries half precision here.
            Some(rows) => Some(in_single_precision(middle(&rows)?.unwrap_or(rows))),
        };
        let mut rows = match (fetched, self.cached) {
            (Some(rows), None) | (None, Some(rows)) => rows,
            (Some(fetched), Some(kept)) => interleave(&fetched, &kept, &self.origins)?,
            (None, None) => return Err(TrainerError::Ended { part: "pipeline" }),
        };
        if let Some(features) = &self.features {
            features.round(&mut keys, &mut rows);
        }
        let features = self.features;
        Ok((rows, PendingCache { keys, features }))
    }
}

impl PendingCache {
    /// Stores the features in the cache, if there is one.
    pub(crate) fn cache(self, rows: Tensor) {
        if let Some(features) = self.features
            && self.keys.iter().any(Option::is_some)
        {
            features.cache(self.keys, rows);
        }
    }
}

/// Merges the rows of both tensors in the order of `origins`.
fn interleave(fetched: &Tensor, kept: &Tensor, origins: &[Origin]) -> Result<Tensor, TrainerError> {
    let shape: Shape = kept.shape().row()?;
    let width = shape.elements()?.max(1);
    let mut fetched = fetched.as_f32().unwrap_or_default().chunks_exact(width);
    let mut kept = kept.as_f32().unwrap_or_default().chunks_exact(width);
    let mut values = Vec::with_capacity(origins.len() * width);
    for origin in origins {
        let next = match origin {
            Origin::Cached => kept.next(),
            Origin::Fetched(_) => fetched.next(),
        };
        values.extend_from_slice(next.unwrap_or_default());
    }
    Ok(Tensor::f32(shape.batched(origins.len()), values)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[f32]) -> Option<Tensor> {
        (!values.is_empty()).then(|| Tensor::f32([values.len(), 1], values.to_vec()).unwrap())
    }

    #[test]
    fn rows_come_out_in_the_order_of_their_origins() {
        let twice = |rows: &Tensor| {
            let doubled = rows.as_f32().unwrap().iter().map(|value| value * 2.0).collect();
            Ok(Some(Tensor::f32(rows.shape().clone(), doubled).unwrap()))
        };
        let (kept, new) = (Origin::Cached, Origin::Fetched(None));
        for (fetched, stored, origins, expected) in [
            (
                &[1.0, 2.0][..],
                &[10.0][..],
                vec![new, kept, new],
                &[2.0, 10.0, 4.0][..],
            ),
            (&[1.0], &[10.0, 20.0], vec![kept, kept, new], &[10.0, 20.0, 2.0]),
            (&[], &[10.0], vec![kept], &[10.0]),
            (&[3.0], &[], vec![new], &[6.0]),
        ] {
            let joined = BatchRows::new(rows(fetched), rows(stored), origins, None).unwrap();
            let (tensor, _) = joined.join(twice).unwrap();
            assert_eq!(tensor.as_f32(), Some(expected));
        }
        assert!(BatchRows::new(None, None, Vec::new(), None).is_none());
    }
}
